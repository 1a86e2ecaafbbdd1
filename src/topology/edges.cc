#include <algorithm>
#include <map>

#include "topology/machine.h"

namespace fairway::topology {
namespace {

class EdgeBuilder {
 public:
  explicit EdgeBuilder(const Machine& machine) : machine_(machine) { name_devices(); }

  std::vector<Edge> build() {
    add_host();
    add_pci();
    add_links();
    add_ports();
    return std::move(edges_);
  }

 private:
  // The GPU, NVSwitch or NICs that a PCI function is.
  void name_devices() {
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) claim(machine_.gpus[i].pci, {NodeKind::gpu, i});
    for (std::uint32_t i = 0; i < machine_.nv_switches.size(); ++i) {
      claim(machine_.nv_switches[i].pci, {NodeKind::nv_switch, i});
    }
    for (std::uint32_t i = 0; i < machine_.nics.size(); ++i) {
      for (const auto function : machine_.nics[i].functions) claim(function, {NodeKind::nic, i});
    }
  }
  void claim(Ref<PciDevice> pci, NodeRef node) {
    if (pci) owners_[pci.index].push_back(node);
  }

  Edge& add(EdgeKind kind, NodeRef a, NodeRef b) {
    Edge edge;
    edge.kind = kind;
    edge.a = a;
    edge.b = b;
    edge.physical = next_physical_++;
    edges_.push_back(edge);
    return edges_.back();
  }

  void add_host() {
    for (std::uint32_t i = 0; i < machine_.host_bridges.size(); ++i) {
      const auto& numa = machine_.host_bridges[i].numa_node;
      const auto node = numa ? find_numa(machine_, *numa) : Ref<NumaNode>{};
      if (node) add(EdgeKind::memory, {NodeKind::numa_node, node.index}, {NodeKind::host_bridge, i});
    }
    for (std::uint32_t i = 0; i < machine_.numa_nodes.size(); ++i) {
      const auto package = machine_.numa_nodes[i].package;
      if (package) add(EdgeKind::memory, {NodeKind::package, package.index}, {NodeKind::numa_node, i});
    }
    for (const auto& link : machine_.socket_links) {
      auto& edge = add(EdgeKind::socket, {NodeKind::package, link.a.index}, {NodeKind::package, link.b.index});
      edge.count = link.links.value_or(1);
      if (link.gbs_per_link) edge.gbs = {*link.gbs_per_link * edge.count, link.gbs_per_link.source};
      edge.max_gbs = edge.gbs;
    }
    // Sockets without a recorded link are connected at an unknown rate.
    if (machine_.socket_links.empty()) {
      for (std::uint32_t a = 0; a < machine_.packages.size(); ++a) {
        for (std::uint32_t b = a + 1; b < machine_.packages.size(); ++b) {
          add(EdgeKind::socket, {NodeKind::package, a}, {NodeKind::package, b});
        }
      }
    }
  }

  void add_pci() {
    // Functions of one card below one bridge share one physical link.
    std::map<std::pair<std::uint32_t, BusId>, std::uint32_t> cards;
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      const auto& device = machine_.pci[i];
      if (!device.parent && !device.host_bridge) continue;
      const auto above = device.parent ? NodeRef{NodeKind::pci, device.parent.index}
                                       : NodeRef{NodeKind::host_bridge, device.host_bridge.index};
      const bool port = device.kind == PciKind::root_port || device.kind == PciKind::switch_downstream;
      auto card = device.bus_id;
      card.function = 0;
      const auto [place, fresh] = cards.try_emplace({device.parent.index, card}, next_physical_);
      if (fresh) ++next_physical_;
      const auto owners = owners_.find(i);
      const auto below = owners == owners_.end() ? std::vector<NodeRef>{{NodeKind::pci, i}} : owners->second;
      for (const auto node : below) {
        auto& edge = add(port ? EdgeKind::internal : EdgeKind::pcie, above, node);
        if (port) continue;
        edge.physical = place->second;
        edge.gbs = believed_gbs(machine_, device);
        if (edge.gbs || !current_gbs(device.link)) edge.max_gbs = max_gbs(device.link);
        if (!device.parent) continue;
        // Both ends describe the link: either may fill in for the other, and the smaller maximum counts.
        const auto& bridge = machine_.pci[device.parent.index];
        if (bridge.kind == PciKind::pci_switch) continue;
        if (is_virtual(machine_) && claims_least(bridge)) continue;
        if (!edge.gbs) edge.gbs = current_gbs(bridge.link);
        const auto other = max_gbs(bridge.link);
        if (other && (!edge.max_gbs || *other < *edge.max_gbs)) edge.max_gbs = other;
      }
    }
  }

  void add_links() {
    for (const auto& link : machine_.links) {
      const auto kind = link.kind == LinkKind::nvlink ? EdgeKind::nvlink
                        : link.kind == LinkKind::xgmi ? EdgeKind::xgmi
                                                      : EdgeKind::c2c;
      auto& edge = add(kind, link.a, link.b);
      const auto& up = link.active ? link.active : link.count;
      edge.count = up.value_or(1);
      if (link.gbs_per_link && up) edge.gbs = {*link.gbs_per_link * *up, link.gbs_per_link.source};
      if (link.gbs_per_link && link.count) {
        edge.max_gbs = {*link.gbs_per_link * *link.count, link.gbs_per_link.source};
      }
    }
  }

  void add_ports() {
    for (std::uint32_t i = 0; i < machine_.nics.size(); ++i) {
      const auto& nic = machine_.nics[i];
      auto& edge = add(EdgeKind::port, {NodeKind::nic, i}, {});
      const auto gbps = nic_capacity_gbps(machine_, nic);
      if (gbps) edge.gbs = {*gbps / 8.0, gbps.source};
      edge.max_gbs = edge.gbs;
      if (nic.bond) {
        edge.count = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(machine_.bonds[nic.bond.index].legs.size()));
      }
    }
  }

  const Machine& machine_;
  std::map<std::uint32_t, std::vector<NodeRef>> owners_;
  std::vector<Edge> edges_;
  std::uint32_t next_physical_ = 0;
};

}  // namespace

std::vector<Edge> edges(const Machine& machine) {
  return EdgeBuilder(machine).build();
}

}  // namespace fairway::topology
