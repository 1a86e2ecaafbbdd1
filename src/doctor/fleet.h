#pragma once

#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "doctor/finding.h"
#include "doctor/gather.h"
#include "render/words.h"

// Machines that should be alike, and where one is not.
namespace fairway::doctor {

struct Node {
  std::string name;
  Case found;
  Report report;  // of it alone
};

struct Deviation {
  std::string node;
  std::string subject;    // "GPU3", "mlx5_0", "kernel"
  std::string field;      // "PCIe width", "firmware", "MTU"
  std::string value;      // its own; "missing" where it lacks the device
  std::string usual;      // of most of its like
  std::size_t agree = 0;  // nodes with the usual value
  std::size_t of = 0;     // nodes that say it
  std::optional<double> loss_gbps;
};

struct Fleet {
  std::vector<std::vector<std::string>> groups;  // names of nodes that are alike in GPUs and NICs
  std::vector<Deviation> deviations;             // costliest first
  std::vector<std::string> undecided;            // fields in which a group has no majority, as sentences
};
Fleet compare_fleet(std::span<const Node> nodes);
// 0: alike and each ok; 1: they differ, or one is degraded; 2: one is broken.
int exit_code(const Fleet& fleet, std::span<const Node> nodes);

std::string text_of(const Fleet& fleet, std::span<const Node> nodes, const render::TextStyle& style);
Result<std::string> json_of(const Fleet& fleet, std::span<const Node> nodes);
std::string html_of(const Fleet& fleet, std::span<const Node> nodes);
// Names and values of everything that is compared, of one node; for tests.
std::vector<std::tuple<std::string, std::string, std::string>> compared_of(const Case& one);

}  // namespace fairway::doctor
