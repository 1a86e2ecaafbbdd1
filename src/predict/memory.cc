#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "predict/plan.h"

// Host memory: the rate of its channels, and of copies by CPUs. Also messages that are too small or too few.
namespace fairway::predict {

using topology::NodeKind;
using topology::NodeRef;

namespace {

// GB/s of all memory channels of one socket, as these CPUs are usually filled.
Range channels_gbs(const topology::Machine& machine, CpuKind cpu) {
  const auto named = [&](std::string_view word) {
    return std::any_of(machine.packages.begin(), machine.packages.end(), [&](const topology::Package& package) {
      return package.model && package.model->find(word) != std::string::npos;
    });
  };
  switch (cpu) {
    case CpuKind::intel_old: return {51.2, 76.8, 76.8};          // 4 x DDR4-2400
    case CpuKind::intel_skylake: return {128, 140.8, 204.8};     // 6 x 2666 to 8 x 3200 (Ice Lake)
    case CpuKind::intel_sapphire: return {281.6, 307.2, 307.2};  // 8 x DDR5-4400 to 4800
    case CpuKind::intel_emerald: return {307.2, 358.4, 409.6};   // 8 x 5600
    case CpuKind::intel_granite: return {409.6, 614.4, 844.8};   // 8 or 12 x 6400, 12 x 8800 (MRDIMM)
    case CpuKind::amd_zen12: return {170.6, 204.8, 204.8};       // 8 x DDR4-2666 to 3200
    case CpuKind::amd_zen34:                                     // Milan has 8 x DDR4-3200, Genoa 12 x DDR5-4800
      return named("EPYC 7")   ? Range::exactly(204.8)
             : named("EPYC 9") ? Range::exactly(460.8)
                               : Range{204.8, 204.8, 460.8};
    case CpuKind::amd_zen5: return {576, 576, 614.4};  // 12 x 6000 to 6400
    case CpuKind::power9: return {150, 170, 170};
    case CpuKind::arm:
    case CpuKind::zhaoxin: return Range::exactly(kUnbounded);
    case CpuKind::unknown: break;
  }
  // From a desktop's two channels to Turin's twelve; expected is the mean of Ice Lake's and Milan's 204.8, Sapphire
  // Rapids' 307.2 and Emerald Rapids' 358.4, the usual servers.
  return {40, 290, 614.4};
}

}  // namespace

void Planner::make_memories() {
  const auto socket = channels_gbs(machine_, cpu_);
  if (!std::isfinite(socket.expected)) return;  // the channels of such sockets are unknown
  for (std::uint32_t i = 0; i < machine_.numa_nodes.size(); ++i) {
    const auto package = machine_.numa_nodes[i].package;
    // Memory without CPUs (CXL, HBM, a GPU's) has channels of its own, which are unknown.
    const auto memory_alone = [](const topology::NumaNode& node) { return node.cpus && node.cpus->empty(); };
    if (memory_alone(machine_.numa_nodes[i])) continue;
    // The nodes of a socket share its channels. Without recorded sockets each node is one.
    const auto sharing = std::count_if(machine_.numa_nodes.begin(), machine_.numa_nodes.end(), [&](const auto& other) {
      return package && other.package == package && !memory_alone(other);
    });
    const double part = 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(sharing, 1));
    Range gbs;
    for (const auto level : kLevels) gbs.set(level, socket.at(level) * part);
    const NodeRef node{NodeKind::numa_node, i};
    of_memory_[node] = static_cast<std::uint32_t>(resources_.size());
    resources_.push_back({ResourceKind::memory, i, node, false, gbs});
  }
}

void Planner::add_memory(Plan& plan, NodeRef numa, ConstantId constant) const {
  if (const auto found = of_memory_.find(numa); found != of_memory_.end())
    plan.terms.push_back({found->second, constant, Range::exactly(1), {}});
}

// Small messages: a queue pair sends only so many a second, and only so many are in flight. `line_gbs`: the rate at
// which the bytes of one message leave.
void Planner::add_messages(Plan& plan, double line_gbs, const Conditions& how) const {
  if (!how.message_bytes) return;
  const auto bytes = static_cast<double>(*how.message_bytes);
  add_ceiling(plan, ConstantId::nic_messages, "the messages that its queue pairs send",
              Range::exactly(how.qps * bytes * 1e-3));
  if (!how.outstanding) return;
  // So many messages in each round trip, which includes the time of their bytes.
  const double window = static_cast<double>(*how.outstanding) * how.qps * bytes;
  const auto& trip = constants_[ConstantId::round_trip];
  Range gbs;
  for (const auto level : kLevels) {
    const double us = level == Level::low ? trip.high : level == Level::high ? trip.low : trip.expected;
    gbs.set(level, window / (us * 1e3 + bytes / line_gbs));
  }
  // wire.fill already counts what the port loses.
  add_ceiling(plan, ConstantId::wire_fill,
              *how.outstanding == 1 ? "one message at a time" : "the messages that may be on the way", gbs);
}

void Planner::add_stage(Plan& plan, const Range& slowest) const {
  add_ceiling(plan, ConstantId::stage, "staging in host memory", slowest);
}

void Planner::add_cpu_copy(Plan& plan, const Endpoint& from, const Endpoint& to, Mover mover) const {
  const auto a = node_of(from);
  const auto b = node_of(to);
  if (mover == Mover::cpu) {
    add_ceiling(plan, ConstantId::copy_core, "what one core copies in memory: more within its caches");
  } else {
    add_ceiling(plan, ConstantId::copy_sockets, "what one TCP connection within a host moves");
  }
  add_memory(plan, a, ConstantId::memory_copy);
  add_memory(plan, b, ConstantId::memory_copy);
  add_socket_to_memory(plan, a, b);
  plan.latency_us = plan.latency_us + constants_[ConstantId::latency_host];
  plan.path = {a == b                ? topology::PathKind::self
               : is_one_socket(a, b) ? topology::PathKind::node
                                     : topology::PathKind::sys,
               0};
}

}  // namespace fairway::predict
