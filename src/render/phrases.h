#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fact.h"
#include "topology/machine.h"

// Numbers and names for people, the same in text, pictures and pages.
namespace fairway::render {

// The expected rate of a path, GB/s per direction: a range, and its bottleneck.
struct Expected {
  double low_gbs = 0;
  double expected_gbs = 0;
  double high_gbs = 0;
  std::string bottleneck;  // "PCIe Gen5 x16 of GPU3"
};

// The expected rate between two GPUs, NICs or NUMA nodes of one machine; none if unknown. An empty function: no rates
// are shown.
using ExpectRate = std::function<std::optional<Expected>(topology::NodeRef a, topology::NodeRef b)>;

// "35-48", or one number if both ends are equal.
std::string range(const Expected& expected);

// GB/s without a unit, three digits that matter: "397", "63", "31.5", "0.98".
std::string rate(double gbs);
std::string rate(const topology::Fact<double>& gbs);                                 // "?" when unknown
std::string gigabits(double gbps);                                                   // "200 Gb/s"
std::string gibibytes(std::uint64_t bytes);                                          // "80 GiB", "512 MiB"
std::string count(std::size_t n, std::string_view one, std::string_view many = {});  // "1 GPU", "8 GPUs"

// "Gen5 x16", "8 GT/s x4"; without what is unknown; empty if all is.
std::string pcie_words(const topology::PcieLink& link);
// "H100 80GB HBM3" of "NVIDIA H100 80GB HBM3": without the vendor and filler that every card of the picture repeats.
std::string short_gpu_model(std::string_view model);
std::string short_cpu_model(std::string_view model);
std::string short_nic_model(std::string_view model);

// Columns that a terminal gives the text: UTF-8 characters, none of them wide.
std::size_t columns_of(std::string_view text);
std::string pad(std::string_view text, std::size_t columns);         // on the right
std::string pad_left(std::string_view text, std::size_t columns);    // on the left
std::string pad_center(std::string_view text, std::size_t columns);  // on both sides
std::string cut(std::string_view text, std::size_t columns);         // ends in "…" where it was longer
std::vector<std::string> wrap(std::string_view text, std::size_t columns);

// "mlx5_0, mlx5_1, mlx5_2, mlx5_5" as "mlx5_0-2, mlx5_5"; names that do not end in a number stay as they are.
std::string fold_names(const std::vector<std::string>& names);
// Joins values by `glue`, equal ones once with their number: "8 x A", "4 x A + 4 x B".
std::string tally(const std::vector<std::string>& values, std::string_view glue = " + ");

// "RoCE at 400 Gb/s" of "rail: RoCE at 400 Gb/s", "the loopback" of "no rail: the loopback": for tables with a column
// for the verdict.
std::string bare_reason(std::string_view reason);

// Terminal colours. The text is complete without them.
enum class Ink : std::uint8_t { plain, bold, faint, good, fair, poor, bad, accent };
struct TextStyle {
  bool colour = false;
  std::size_t columns = 120;
  [[nodiscard]] std::string ink(Ink ink, std::string_view text) const;
};
// Nearer is greener.
Ink ink_of(topology::PathKind kind);

}  // namespace fairway::render
