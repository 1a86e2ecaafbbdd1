#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "doctor/measurement.h"

// perftest's command lines for an RDMA device with itself, and what its outputs say beside the rates.
namespace fairway::doctor {

inline constexpr const char* kPerftestPackage = "perftest";  // Debian's

struct PerftestRun {
  Operation operation = Operation::write;  // or read
  std::uint64_t bytes = 65536;
  std::optional<std::uint32_t> qps{};  // else one
  std::optional<std::uint32_t> mtu{};  // else the port's
  std::optional<std::uint32_t> gid{};  // else one that is routable, where the port has any
  bool strict = false;                 // without PCIe's relaxed ordering
  std::optional<std::uint32_t> gpu{};  // that GPU's memory, by ordinal; else host memory
  std::string cpus{};                  // run on these ("0-7"), whose node then has the host memory; else anywhere
  std::optional<std::uint32_t> inline_max{};  // the time of a write, with at most so many bytes in the request itself
};

// "ib_write_bw", "ib_read_bw", "ib_write_lat".
std::string perftest_program(const PerftestRun& run);
// The serving side's words; the measuring side's end with an address too. not_found: the NIC has no RDMA port.
Result<std::vector<std::string>> perftest_words(const topology::Machine& machine, std::uint32_t nic,
                                                const PerftestRun& run, int tcp_port);
// A GID that leaves the host: InfiniBand's own or RoCE v2's, IPv4 before IPv6.
std::optional<std::uint32_t> routable_gid(const topology::RdmaPort& port);
// The line of a failed run that says why.
std::string perftest_problem(std::string_view output);
// The typical time of `ib_write_lat`, in microseconds.
Result<double> perftest_time(std::string_view output);
// Whether memory could not be registered, as it cannot beyond the limit of locked memory.
bool lacks_memory(std::string_view problem);

}  // namespace fairway::doctor
