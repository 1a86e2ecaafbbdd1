#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/assess.h"
#include "topology/pci.h"

namespace fairway::topology {
namespace {

// NCCL's own limits on nodes of one kind (its NCCL_TOPO_MAX_NODES): up to 2.26, from 2.27 and from 2.29.7 on.
constexpr std::size_t kOldNcclNodes = 256;
constexpr std::size_t kMidNcclNodes = 576;
constexpr std::size_t kNcclMaxNodes = 640;
constexpr std::size_t kMaxFindings = 1000;

class Linter {
 public:
  explicit Linter(const Machine& machine) : machine_(machine) {}

  std::vector<Finding> run() {
    check_masks();
    check_affinity();
    check_links();
    check_places();
    check_counts();
    check_near_nics();
    check_classes();
    check_ports();
    for (auto& list : {lint_places(machine_), lint_slots(machine_)}) {
      for (const auto& finding : list) keep(finding);
    }
    if (const auto ends = matrix_ends(machine_).size(); ends > kMaxMatrixEnds) {
      add(Severity::notice, "matrix-cut-off", fmt::format("{} GPUs and NICs", ends),
          fmt::format("the matrix shows the first {} of them", kMaxMatrixEnds));
    }
    std::ranges::stable_sort(findings_, {}, &Finding::severity);
    if (findings_.size() > kMaxFindings) {
      left_out_ += findings_.size() - kMaxFindings;
      findings_.resize(kMaxFindings);
    }
    if (left_out_ > 0) {
      findings_.push_back({Severity::notice, "findings-left-out", fmt::format("{} more findings", left_out_),
                           fmt::format("the worst {} are shown", kMaxFindings)});
    }
    return std::move(findings_);
  }

 private:
  void add(Severity severity, const char* rule, std::string subject, std::string text) {
    keep({severity, rule, std::move(subject), std::move(text)});
  }

  // As many of each severity as are shown in all, so that the worst are among them.
  void keep(Finding finding) {
    auto& count = kept_[finding.severity];
    if (count >= kMaxFindings) {
      ++left_out_;
      return;
    }
    ++count;
    findings_.push_back(std::move(finding));
  }

  std::string name(std::uint32_t pci) const {
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      if (machine_.gpus[i].pci.index == pci) return gpu_and_bus(machine_, machine_.gpus[i]);
    }
    return machine_.pci[pci].bus_id.to_string();
  }

  void check_masks() {
    const auto& nodes = machine_.numa_nodes;
    for (std::size_t a = 0; a < nodes.size(); ++a) {
      for (std::size_t b = a + 1; b < nodes.size() && b < a + 512; ++b) {
        // hwloc shows several kinds of memory near the same CPUs (HBM and DRAM, CXL) as several nodes: one mask then
        // contains the other.
        const bool overlap = nodes[a].cpus && nodes[b].cpus && nodes[a].cpus->intersects(*nodes[b].cpus);
        const bool by_hwloc =
            overlap && (nodes[a].cpus.source == Source::hwloc || nodes[a].cpus.source == Source::hwloc_xml);
        const bool nested =
            overlap && (nodes[a].cpus->includes(*nodes[b].cpus) || nodes[b].cpus->includes(*nodes[a].cpus));
        if (overlap && !(by_hwloc && nested)) {
          add(Severity::error, "numa-masks-overlap",
              fmt::format("NUMA nodes {} and {}", nodes[a].os_index, nodes[b].os_index),
              fmt::format("both claim CPUs ({} and {}): threads pinned by this go to the wrong socket",
                          nodes[a].cpus->to_list(), nodes[b].cpus->to_list()));
        }
      }
      if (nodes[a].cpus && nodes[a].cpus->empty() && !nodes[a].memory_bytes) {
        add(Severity::warning, "numa-without-cpus", fmt::format("NUMA node {}", nodes[a].os_index),
            "has neither CPUs nor memory on record");
      }
      for (const auto& package : machine_.packages) {
        if (!nodes[a].package || !nodes[a].cpus ||
            machine_.packages[nodes[a].package.index].os_index != package.os_index)
          continue;
        // A node may also span sockets.
        if (package.cpus && !package.cpus->includes(*nodes[a].cpus) && !nodes[a].cpus->includes(*package.cpus)) {
          add(Severity::error, "numa-outside-package", fmt::format("NUMA node {}", nodes[a].os_index),
              fmt::format("has CPUs ({}) that its package {} lacks ({})", nodes[a].cpus->to_list(), package.os_index,
                          package.cpus->to_list()));
        }
      }
    }
  }

  // A device's CPU list against its NUMA node: finds swapped masks.
  void check_affinity() {
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      const auto& gpu = machine_.gpus[i];
      check_near(gpu_name(machine_, gpu), numa_of(machine_, {NodeKind::gpu, i}), gpu.cpus);
    }
    for (const auto& device : machine_.pci) check_near(device.bus_id.to_string(), device.numa_node, device.local_cpus);
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      const auto& device = machine_.pci[i];
      if (!device.numa_node || find_numa(machine_, *device.numa_node) || machine_.numa_nodes.empty()) continue;
      add(Severity::error, "numa-does-not-exist", name(i),
          fmt::format("its NUMA node {} does not exist", *device.numa_node));
    }
    std::vector<bool> leads_somewhere(machine_.host_bridges.size(), false);
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      if (machine_.pci[i].host_bridge && matters(i)) leads_somewhere[machine_.pci[i].host_bridge.index] = true;
    }
    for (const auto& bridge : machine_.host_bridges) {
      if (bridge.numa_node || machine_.numa_nodes.size() < 2) continue;
      if (!leads_somewhere[static_cast<std::size_t>(&bridge - machine_.host_bridges.data())]) continue;
      add(Severity::notice, "numa-unknown", fmt::format("host bridge {:04x}:{:02x}", bridge.domain, bridge.bus),
          "its NUMA node is unknown (-1) on a machine of several: NODE and SYS below it cannot be told apart, and "
          "pinning near its devices is a guess");
    }
  }

  void check_near(const std::string& subject, const Fact<std::uint32_t>& numa, const Fact<CpuSet>& cpus) {
    if (!numa || !cpus || cpus->empty()) return;
    const auto node = find_numa(machine_, *numa);
    if (!node || !machine_.numa_nodes[node.index].cpus || machine_.numa_nodes[node.index].cpus->empty()) return;
    const auto& own = *machine_.numa_nodes[node.index].cpus;
    if (own.intersects(*cpus)) return;
    add(Severity::error, "numa-masks-swapped", subject,
        fmt::format("its CPUs are {}, those of its NUMA node {} are {}: the masks of two nodes are swapped or wrong",
                    cpus->to_list(), *numa, own.to_list()));
  }

  bool matters(std::uint32_t pci) const { return is_gpu(machine_.pci[pci]) || is_network(machine_.pci[pci]); }

  void check_links() {
    std::vector<bool> carries(machine_.pci.size(), false);  // a GPU or NIC is at or below it
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      if (!matters(i)) continue;
      std::size_t depth = 0;
      for (auto at = Ref<PciDevice>(std::size_t{i}); at && depth++ <= kMaxPciDepth; at = machine_.pci[at.index].parent)
        carries[at.index] = true;
    }
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      const auto& device = machine_.pci[i];
      if (!carries[i]) continue;
      const auto& link = device.link;
      const bool virtual_function = device.vendor_id.value_or(0) == kVendorVirtio;
      if ((link.speed_gts && *link.speed_gts == 0) || (link.width && *link.width == 0) ||
          (link.gbs && *link.gbs == 0 && !link.speed_gts)) {
        add(Severity::warning, "link-speed-zero", name(i),
            "its link reports speed or width 0 (a virtual machine, or a link that is off): its rate is unknown, and "
            "tools that believe it choose another path");
      }
      if (link.speed_gts && *link.speed_gts > 64) {
        add(Severity::error, "link-speed-absurd", name(i),
            fmt::format("{:g} GT/s is no PCIe generation", *link.speed_gts));
      }
      if (link.width && *link.width > 32) {
        add(Severity::error, "link-width-absurd", name(i),
            fmt::format("a link of {} lanes does not exist", *link.width));
      }
      check_narrow(i, virtual_function);
      check_bridge(i);
    }
    if (!is_virtual(machine_) || !slow_bridges_.empty()) return;
    std::size_t claims = 0;
    std::uint32_t first = 0;
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      if (carries[i] && claims_least(machine_.pci[i]) && claims++ == 0) first = i;
    }
    if (claims == 0) return;
    add(Severity::notice, "links-emulated", name(first),
        fmt::format("{} 2.5 GT/s x1, as emulated bridges and devices do: the rates of these links are unknown",
                    claims == 1 ? "its link reports" : fmt::format("its link and {} others report", claims - 1)));
  }

  void check_narrow(std::uint32_t i, bool virtual_function) {
    const auto& link = machine_.pci[i].link;
    if (virtual_function) return;
    if (link.width && link.max_width && *link.width<*link.max_width&& * link.width> 0 && matters(i)) {
      add(Severity::warning, "link-narrow", name(i),
          fmt::format("runs x{} of x{}: {:.0f} % of its rate is lost; check riser, slot and contacts", *link.width,
                      *link.max_width, 100.0 * (1.0 - static_cast<double>(*link.width) / *link.max_width)));
    }
    if (link.speed_gts && link.max_speed_gts && *link.speed_gts<*link.max_speed_gts&& * link.speed_gts> 0 &&
        matters(i)) {
      const bool gpu = is_gpu(machine_.pci[i]);
      add(gpu ? Severity::notice : Severity::warning, "link-slow", name(i),
          fmt::format("runs at {:g} of {:g} GT/s{}", *link.speed_gts, *link.max_speed_gts,
                      gpu ? ": an idle GPU lowers its link to save power; check again under load" : ""));
    }
  }

  // A bridge slower than a device below it: emulated bridges report 2.5 GT/s x1 above Gen5 devices.
  void check_bridge(std::uint32_t i) {
    const auto parent = machine_.pci[i].parent;
    if (!parent) return;
    const auto own = current_gbs(machine_.pci[i].link);
    const auto above = current_gbs(machine_.pci[parent.index].link);
    if (!own || !above || *above >= 0.6 * *own || !slow_bridges_.insert(parent.index).second) return;
    const auto& bridge = machine_.pci[parent.index].link;
    const bool emulated = bridge.speed_gts.value_or(0) == 2.5 && bridge.width.value_or(0) == 1;
    add(emulated ? Severity::warning : Severity::notice, "bridge-slower-than-device",
        machine_.pci[parent.index].bus_id.to_string(),
        fmt::format("reports {:.3g} GB/s above {} at {:.3g} GB/s: {}", *above, name(i), *own,
                    emulated ? "an emulated bridge, whose 2.5 GT/s x1 is not real"
                             : "a real bottleneck, or a hand-written or emulated number"));
  }

  void check_places() {
    bool any_bridge = !machine_.host_bridges.empty();
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      const auto& device = machine_.pci[i];
      if (is_gpu(device) && any_bridge && !device.host_bridge) {
        add(Severity::error, "device-outside-tree", name(i), "its bus id is not in the machine's PCI tree");
      }
      if (device.bus_id.bus == 0xff && device.bus_id.domain == 0xffff) {
        add(Severity::notice, "bus-id-made-up", device.bus_id.to_string(),
            "is a bus id that no machine has: a hand-written switch, for grouping");
      }
    }
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      const auto& port_list = machine_.gpus[i].nvlinks;
      const auto down = std::ranges::count_if(port_list, [](const NvLinkPort& p) { return p.active && !*p.active; });
      if (down > 0) {
        add(Severity::warning, "nvlink-down", gpu_name(machine_, machine_.gpus[i]),
            fmt::format("{} of {} NVLinks are down", down, port_list.size()));
      }
    }
    std::map<std::uint32_t, std::uint32_t> sums;
    for (const auto& link : machine_.links) {
      if (link.kind != LinkKind::nvlink) continue;
      for (const auto end : {link.a, link.b}) {
        if (end.kind == NodeKind::gpu) sums[end.index] += link.count.value_or(0);
      }
    }
    const auto most = std::ranges::max_element(sums, [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [gpu, sum] : sums) {
      if (sum < most->second && most->second - sum > most->second / 8) {
        add(Severity::warning, "nvlink-uneven", gpu_name(machine_, machine_.gpus[gpu]),
            fmt::format("has {} NVLinks where {} has {}", sum, gpu_name(machine_, machine_.gpus[most->first]),
                        most->second));
      }
    }
  }

  void check_counts() {
    const auto too_many = [this](std::size_t n, const char* what) {
      if (n <= kOldNcclNodes) return;
      add(n > kNcclMaxNodes ? Severity::error : Severity::warning, "more-than-nccl-takes", what,
          fmt::format("{} {}: NCCL refuses more than {} up to 2.26, {} from 2.27, {} from 2.29.7 on", n, what,
                      kOldNcclNodes, kMidNcclNodes, kNcclMaxNodes));
    };
    // NCCL takes those that carry traffic: virtual functions and management ports it leaves out.
    std::size_t rails = 0;
    for (std::uint32_t i = 0; i < machine_.nics.size(); ++i) {
      if (rail_verdict(machine_, {NodeKind::nic, i}).rail) ++rails;
    }
    too_many(machine_.gpus.size(), "GPUs");
    too_many(rails, "NICs");
    too_many(machine_.numa_nodes.size(), "NUMA nodes");
    const auto switches = std::ranges::count_if(machine_.pci, [](const PciDevice& device) {
      return device.kind == PciKind::pci_switch || device.kind == PciKind::switch_upstream;
    });
    too_many(static_cast<std::size_t>(switches), "PCIe switches");
  }

  void check_near_nics() {
    const auto matrix = path_matrix(machine_);
    const auto n = matrix.ends.size();
    const bool any_nic = std::ranges::any_of(matrix.ends, [](NodeRef end) { return end.kind == NodeKind::nic; });
    if (!any_nic) return;
    for (std::size_t r = 0; r < n; ++r) {
      if (matrix.ends[r].kind != NodeKind::gpu) continue;
      bool near = false;
      bool known = false;
      for (std::size_t c = 0; c < n; ++c) {
        if (matrix.ends[c].kind != NodeKind::nic) continue;
        const auto kind = matrix.at(r, c).kind;
        known = known || kind != PathKind::unknown;
        near = near || (kind != PathKind::sys && kind != PathKind::unknown);
      }
      if (known && !near) {
        add(Severity::warning, "gpu-without-near-nic", node_name(machine_, matrix.ends[r]),
            "reaches every NIC across sockets only (SYS): its network traffic takes the slowest path; route it over "
            "NVLink to a GPU with a near NIC");
      }
    }
  }

  void check_classes() {
    for (const auto& conflict : class_conflicts(machine_)) {
      add(Severity::warning, "class-conflict",
          fmt::format("{} - {}", node_name(machine_, conflict.a), node_name(machine_, conflict.b)),
          fmt::format("the tree says {}, the recorded matrix {}", conflict.tree.to_string(),
                      conflict.recorded.to_string()));
    }
    for (const auto& note : machine_.notes) {
      if (note.kind == NoteKind::conflict && note.text.starts_with("appears twice")) {
        add(Severity::error, "bus-id-repeated", note.subject, note.text);
        continue;
      }
      if (note.kind == NoteKind::conflict) add(Severity::warning, "sources-disagree", note.subject, note.text);
    }
  }

  void check_ports() {
    for (const auto& rdma : machine_.rdma) {
      for (const auto& port : rdma.ports) {
        if (port.state && *port.state != "ACTIVE") {
          add(Severity::warning, "port-not-active", rdma.name, fmt::format("port {} is {}", port.number, *port.state));
        }
        if (port.active_mtu && port.max_mtu && *port.active_mtu < *port.max_mtu) {
          add(Severity::notice, "mtu-below-maximum", rdma.name,
              fmt::format("port {} runs MTU {} of {}: a larger share of each packet is header", port.number,
                          *port.active_mtu, *port.max_mtu));
        }
        for (const auto& counter : port.counters) {
          // Standard error counters of eight bits stop at 255.
          const bool eight_bits = counter.name == "link_downed" || counter.name == "link_error_recovery";
          if (eight_bits && counter.value == 255) {
            add(Severity::notice, "counter-saturated", rdma.name,
                fmt::format("{} is 255, the most it can count: the true number is unknown", counter.name));
          } else if (counter.value > 0 && (counter.name == "symbol_error" || eight_bits)) {
            add(Severity::notice, "port-errors", rdma.name,
                fmt::format("{} = {} since the counters were reset", counter.name, counter.value));
          }
        }
      }
    }
    for (const auto& bond : machine_.bonds) {
      const auto bond_name = bond.interface ? machine_.interfaces[bond.interface.index].name : "bond";
      for (const auto& leg : bond.legs) {
        if (leg.up && !*leg.up)
          add(Severity::warning, "bond-leg-down", bond_name,
              fmt::format("its leg {} is down", machine_.interfaces[leg.interface.index].name));
        if (leg.aggregator && bond.active_aggregator && *leg.aggregator != *bond.active_aggregator) {
          add(Severity::warning, "bond-leg-idle", bond_name,
              fmt::format("its leg {} is in another aggregator and carries nothing",
                          machine_.interfaces[leg.interface.index].name));
        }
      }
    }
  }

  const Machine& machine_;
  std::set<std::uint32_t> slow_bridges_;  // reported once each
  std::vector<Finding> findings_;
  std::map<Severity, std::size_t> kept_;
  std::size_t left_out_ = 0;
};

}  // namespace

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::error: return "error";
    case Severity::warning: return "warning";
    case Severity::notice: return "notice";
  }
  return "notice";
}

std::vector<Finding> lint(const Machine& machine) {
  return Linter(machine).run();
}

}  // namespace fairway::topology
