#include "predict/what_if.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "topology/text.h"

namespace fairway::predict {
namespace {

namespace text = topology::text;
using topology::NodeKind;
using topology::NodeRef;

Status wrong(std::string_view word, std::string_view why) {
  return {ErrorCode::invalid_argument, fmt::format("what if '{}': {}", text::quote(word), why)};
}

std::optional<bool> yes_or_no(std::string_view value) {
  if (value == "yes" || value == "on" || value == "1") return true;
  if (value == "no" || value == "off" || value == "0") return false;
  return {};
}

// "4x16": GB/s per direction of a Gen4 link of 16 lanes.
std::optional<double> link_gbs(std::string_view value) {
  const auto parts = text::split(value, 'x');
  if (parts.size() != 2) return {};
  auto generation_text = parts[0];
  if (generation_text.starts_with("gen")) generation_text.remove_prefix(3);
  const auto generation = text::to_u32(generation_text);
  const auto width = text::to_u32(parts[1]);
  if (!generation || !width || *generation < 1 || *generation > 7) return {};
  if (*width == 0 || *width > 32 || (*width & (*width - 1)) != 0) return {};
  constexpr double kGts[] = {2.5, 5, 8, 16, 32, 64, 128};
  return topology::pcie_gbs(kGts[*generation - 1], *width);
}

Result<std::vector<NodeRef>> devices(const topology::Machine& machine, std::string_view word) {
  std::vector<NodeRef> out;
  if (word == "gpus") {
    for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) out.push_back({NodeKind::gpu, i});
  } else if (word == "nics") {
    for (std::uint32_t i = 0; i < machine.nics.size(); ++i) out.push_back({NodeKind::nic, i});
  } else {
    const auto endpoint = parse_endpoint(machine, word);
    if (!endpoint) return endpoint.status();
    const auto node = node_of(*endpoint);
    if (node.kind == NodeKind::gpu || node.kind == NodeKind::nic) out.push_back(node);
  }
  if (out.empty()) return Status(ErrorCode::invalid_argument, "it names no GPU and no NIC");
  return out;
}

// In a captured matrix the NIC gets the nearest class to that GPU, and to others what their NUMA nodes allow.
bool move_in_matrix(topology::Machine& machine, NodeRef nic, NodeRef gpu) {
  auto& matrix = machine.matrix;
  const auto place = std::ranges::find(matrix.ends, nic);
  if (place == matrix.ends.end()) return false;
  const auto n = matrix.ends.size();
  const auto row = static_cast<std::size_t>(place - matrix.ends.begin());
  const auto home = topology::numa_of(machine, gpu);
  for (std::size_t c = 0; c < n; ++c) {
    if (c == row) continue;
    topology::PathClass path{topology::PathKind::unknown, 0};
    const auto there = topology::numa_of(machine, matrix.ends[c]);
    if (home && there) path.kind = *home == *there ? topology::PathKind::node : topology::PathKind::sys;
    if (matrix.ends[c] == gpu) path.kind = topology::PathKind::pix;
    matrix.cells[row * n + c] = matrix.cells[c * n + row] = path;
  }
  return true;
}

Status move_nic(std::string_view word, WhatIf& what, NodeRef nic, std::string_view where) {
  auto& machine = what.machine;
  const auto target = parse_endpoint(machine, where);
  if (!target) return wrong(word, target.status().message());
  const auto gpu = node_of(*target);
  if (gpu.kind != NodeKind::gpu) return wrong(word, "a NIC moves beside a GPU: nic0.at=gpu5");
  auto& moved = machine.nics[nic.index];
  const auto place = machine.gpus[gpu.index].pci;
  const auto numa = topology::numa_of(machine, gpu);
  const bool in_tree = place && machine.pci[place.index].host_bridge && !moved.functions.empty();
  const bool in_matrix = move_in_matrix(machine, nic, gpu);
  if (!in_tree && !in_matrix) return wrong(word, "the place of one of the two is unknown");
  moved.numa_node = numa;
  if (!in_tree) return {};
  for (const auto function : moved.functions) {
    auto& device = machine.pci[function.index];
    device.parent = machine.pci[place.index].parent;
    device.host_bridge = machine.pci[place.index].host_bridge;
    device.numa_node = numa;
  }
  return {};
}

Status apply_to_device(std::string_view word, WhatIf& what, std::string_view device, std::string_view field,
                       std::string_view value) {
  const auto nodes = devices(what.machine, device);
  if (!nodes) return wrong(word, nodes.status().message());
  for (const auto node : *nodes) {
    if (field == "link") {
      const auto gbs = link_gbs(value);
      if (!gbs) return wrong(word, "a link is GENERATIONxWIDTH, such as 4x16");
      what.assumptions.link_gbs[node] = *gbs;
    } else if (field == "rate" && node.kind == NodeKind::nic) {
      const auto gbps = text::to_double(value);
      if (!gbps || !(*gbps > 0) || *gbps > 1e5) return wrong(word, "a rate is Gb/s of one port, such as 400");
      what.assumptions.port_gbps[node.index] = *gbps;
    } else if (field == "at" && node.kind == NodeKind::nic && nodes->size() == 1) {
      return move_nic(word, what, node, value);
    } else {
      return wrong(word, "of a GPU: link; of a NIC: link, rate, at");
    }
  }
  return {};
}

}  // namespace

Status imagine(std::string_view input, WhatIf& what) {
  const auto word = text::lower(text::trim(input));
  const auto equals = word.find('=');
  if (equals == std::string::npos || equals + 1 == word.size()) return wrong(input, "say NAME=VALUE, such as qps=4");
  const auto name = std::string_view(word).substr(0, equals);
  const auto value = std::string_view(word).substr(equals + 1);
  if (const auto dot = name.rfind('.'); dot != name.npos) {
    return apply_to_device(input, what, name.substr(0, dot), name.substr(dot + 1), value);
  }
  const auto number = text::to_u32(value);
  if (name == "qps") {
    if (!number || *number == 0 || *number > 65536) return wrong(input, "a number of queue pairs from 1 to 65536");
    what.conditions.qps = *number;
  } else if (name == "legs") {
    if (!number || *number == 0 || *number > 64) return wrong(input, "a number of bond legs from 1 to 64");
    what.conditions.legs = *number;
  } else if (name == "mtu") {
    if (!number || !is_rdma_mtu(*number))
      return wrong(input, "an MTU of RDMA: 256, 512, 1024, 2048 or 4096 (an interface of 9000 carries 4096)");
    what.conditions.mtu = *number;
  } else if (name == "ordering") {
    if (value != "relaxed" && value != "strict" && value != "unknown") {
      return wrong(input, "relaxed, strict or unknown");
    }
    what.conditions.ordering = value == "relaxed"  ? Ordering::relaxed
                               : value == "strict" ? Ordering::strict
                                                   : Ordering::unknown;
  } else if (name == "by") {
    if (value != "kernel" && value != "copy" && value != "cpu" && value != "sockets")
      return wrong(input, "kernel, copy, cpu or sockets");
    what.conditions.by_kernel = value == "kernel";
    what.conditions.mover = value == "cpu" ? Mover::cpu : value == "sockets" ? Mover::sockets : Mover::device;
  } else if (name == "bytes") {
    if (!number || *number == 0) return wrong(input, "bytes of a message, from 1");
    what.conditions.message_bytes = *number;
  } else if (name == "outstanding") {
    if (!number || *number == 0 || *number > 65536) return wrong(input, "a number of messages from 1 to 65536");
    what.conditions.outstanding = *number;
  } else if (name == "round-robin") {
    const auto answer = yes_or_no(value);
    if (!answer) return wrong(input, "yes or no");
    what.conditions.round_robin = *answer;
  } else if (name == "vm") {
    const auto answer = yes_or_no(value);
    if (!answer) return wrong(input, "yes or no");
    what.assumptions.virtual_machine = *answer;
  } else if (name == "cpu") {
    const auto kind = cpu_kind_from(value);
    if (!kind)
      return wrong(input, "broadwell, skylake, icelake, spr, emr, gnr, rome, milan, genoa, turin, arm, power9");
    what.assumptions.cpu = *kind;
  } else {
    return wrong(input, "there is no such change");
  }
  return {};
}

std::string_view what_if_help() {
  return R"(Changes (--what-if, several times):
  qps=4  round-robin=yes  legs=1  mtu=1024       queue pairs, and the bond's legs they use
  ordering=relaxed|strict  vm=yes  cpu=spr       how memory is registered, and the host
  by=kernel|cpu|sockets                          who moves the bytes, where not a device's own engine
  bytes=65536  outstanding=1                     size of a message, and how many are on the way
  gpu3.link=4x16  nic0.link=5x8  gpus.link=4x16  PCIe generation and width
  nic0.rate=400  nics.rate=200                   Gb/s of one port or leg
  nic0.at=gpu5                                   the NIC moves beside that GPU)";
}

}  // namespace fairway::predict
