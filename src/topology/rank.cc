#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "topology/assess.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

void take_least(Fact<double>& least, const Fact<double>& gbs) {
  if (gbs && (!least || *gbs < *least)) least = gbs;
}

// The smallest known rate of the PCIe links from a device up to where its path meets the other end's.
void take_pcie(const Machine& machine, Ref<PciDevice> device, const std::vector<std::uint32_t>& stop,
               Fact<double>& least) {
  for (std::size_t depth = 0; device && depth <= kMaxPciDepth; ++depth) {
    if (std::find(stop.begin(), stop.end(), device.index) != stop.end()) return;
    take_least(least, believed_gbs(machine, machine.pci[device.index]));
    device = machine.pci[device.index].parent;
  }
}

std::vector<std::uint32_t> bridges_above(const Machine& machine, Ref<PciDevice> device) {
  std::vector<std::uint32_t> out;
  for (std::size_t depth = 0; device && depth <= kMaxPciDepth; ++depth) {
    out.push_back(device.index);
    device = machine.pci[device.index].parent;
  }
  return out;
}

// Whether two NUMA nodes belong to one socket: a path of class SYS between them crosses no link between sockets.
bool one_socket(const Machine& machine, const Fact<std::uint32_t>& a, const Fact<std::uint32_t>& b) {
  const auto first = a ? find_numa(machine, *a) : Ref<NumaNode>{};
  const auto second = b ? find_numa(machine, *b) : Ref<NumaNode>{};
  if (!first || !second) return false;
  const auto package = machine.numa_nodes[first.index].package;
  return package && package == machine.numa_nodes[second.index].package;
}

std::string_view class_words(PathKind kind, bool is_one_socket) {
  switch (kind) {
    case PathKind::pix: return "behind the same PCIe switch";
    case PathKind::pxb: return "behind the same host bridge, over several switches";
    case PathKind::phb: return "over one host bridge of the CPU";
    case PathKind::node: return "in the same NUMA node, over two host bridges";
    case PathKind::sys: return is_one_socket ? "across NUMA nodes of one socket" : "across sockets";
    default: return "its place is not recorded";
  }
}

void finish(const Machine& machine, NicChoice& choice, Ref<PciDevice> other, const Fact<std::uint32_t>& numa) {
  const auto& nic = machine.nics[choice.nic.index];
  const auto position = nic.functions.empty() ? Ref<PciDevice>{} : nic.functions.front();
  Fact<double> pcie;
  const auto above_other = bridges_above(machine, other);
  const auto above_nic = bridges_above(machine, position);
  take_pcie(machine, position, above_other, pcie);
  take_pcie(machine, other, above_nic, pcie);
  const auto port_gbps = nic_capacity_gbps(machine, nic);
  choice.gbs = pcie;
  if (port_gbps) take_least(choice.gbs, {*port_gbps / 8.0, port_gbps.source});
  const auto verdict = rail_verdict(machine, {NodeKind::nic, choice.nic.index});
  choice.rail = verdict.rail;
  const bool is_one_socket = one_socket(machine, numa, numa_of(machine, {NodeKind::nic, choice.nic.index}));
  choice.reason = fmt::format("{}: {}", choice.path.to_string(), class_words(choice.path.kind, is_one_socket));
  if (!choice.rail) choice.reason += "; " + verdict.reason;
}

void sort_choices(const Machine& machine, std::vector<NicChoice>& choices) {
  std::stable_sort(choices.begin(), choices.end(), [&machine](const NicChoice& a, const NicChoice& b) {
    const auto key = [](const NicChoice& c) { return std::tuple(!c.rail, c.path.kind, -c.gbs.value_or(0)); };
    if (key(a) != key(b)) return key(a) < key(b);
    return text::natural_less(machine.nics[a.nic.index].name, machine.nics[b.nic.index].name);
  });
}

}  // namespace

std::vector<NicChoice> nics_for_gpu(const Machine& machine, Ref<Gpu> gpu) {
  std::vector<NicChoice> choices;
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    NicChoice choice;
    choice.nic = Ref<Nic>(i);
    choice.path =
        path_class(machine, {NodeKind::gpu, gpu.index}, {NodeKind::nic, choice.nic.index}).value_or(PathClass{});
    finish(machine, choice, machine.gpus[gpu.index].pci, numa_of(machine, {NodeKind::gpu, gpu.index}));
    choices.push_back(std::move(choice));
  }
  sort_choices(machine, choices);
  return choices;
}

std::vector<NicChoice> nics_for_numa(const Machine& machine, std::uint32_t numa_os_index) {
  std::vector<NicChoice> choices;
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    NicChoice choice;
    choice.nic = Ref<Nic>(i);
    const auto numa = numa_of(machine, {NodeKind::nic, choice.nic.index});
    if (numa) choice.path = {*numa == numa_os_index ? PathKind::phb : PathKind::sys, 0};
    if (!numa && machine.numa_nodes.size() == 1) choice.path = {PathKind::phb, 0};
    finish(machine, choice, {}, {numa_os_index, Source::derived});
    choices.push_back(std::move(choice));
  }
  sort_choices(machine, choices);
  return choices;
}

}  // namespace fairway::topology
