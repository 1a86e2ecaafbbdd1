#pragma once

#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "doctor/finding.h"
#include "doctor/gather.h"
#include "render/phrases.h"

// Compares machines that should be equal.
namespace fairway::doctor {

struct Node {
  std::string name;
  Case found;
  Report report;  // without measurements or baseline
};

struct Deviation {
  std::string node;
  std::string subject;    // "GPU3", "mlx5_0", "kernel"
  std::string field;      // "PCIe width", "firmware", "MTU"
  std::string value;      // of this node; "missing" if it lacks the device
  std::string usual;      // of most nodes in its group
  std::size_t agree = 0;  // nodes with the usual value
  std::size_t of = 0;     // nodes that have the field
  std::optional<double> loss_gbps;
};

struct Fleet {
  std::vector<std::vector<std::string>> groups;  // names of nodes with the same GPUs and NICs
  std::vector<Deviation> deviations;             // costliest first
  std::vector<std::string> undecided;            // a sentence for each field without a majority
  std::size_t compared = 0;                      // nodes that have another of their kind
};
Fleet compare_fleet(std::span<const Node> nodes);
// 0: equal and all ok; 1: they differ, or one is degraded; 2: one is broken.
int exit_code(const Fleet& fleet, std::span<const Node> nodes);

std::string text_of(const Fleet& fleet, std::span<const Node> nodes, const render::TextStyle& style);
Result<std::string> json_of(const Fleet& fleet, std::span<const Node> nodes);
std::string html_of(const Fleet& fleet, std::span<const Node> nodes);
// All that is compared of one node: subject, field, value. For tests.
std::vector<std::tuple<std::string, std::string, std::string>> compared_of(const Case& one);

}  // namespace fairway::doctor
