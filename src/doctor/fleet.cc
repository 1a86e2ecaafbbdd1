#include "doctor/fleet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "doctor/cost.h"
#include "doctor/rule.h"
#include "topology/assess.h"
#include "topology/text.h"

namespace fairway::doctor {

using topology::Machine;
using topology::NodeKind;

namespace {

template <class T>
std::string value_text(const topology::Fact<T>& fact) {
  return fact ? fmt::format("{}", *fact) : std::string();
}

// "8 x H100, 8 x ConnectX-7".
std::string devices_of(const Machine& machine) {
  std::map<std::string, std::size_t> parts;
  for (const auto& gpu : machine.gpus) ++parts[gpu.model.value_or("GPU")];
  for (const auto& nic : machine.nics) {
    if (nic.rdma) ++parts[nic.model.value_or(machine.rdma[nic.rdma.index].hca_type.value_or("RDMA device"))];
  }
  std::string out;
  for (const auto& [what, count] : parts) out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", count, what);
  return out.empty() ? "none" : out;
}

// What nodes of one group share: models of GPUs and types of NICs.
std::string shape_of(const Machine& machine) {
  std::map<std::string, std::size_t> parts;
  for (const auto& gpu : machine.gpus) ++parts["gpu " + gpu.model.value_or("")];
  for (const auto& nic : machine.nics) {
    if (nic.rdma) ++parts["nic " + machine.rdma[nic.rdma.index].hca_type.value_or("")];
  }
  std::string out = machine.architecture.value_or("");
  for (const auto& [what, count] : parts) {
    // Only common parts count: a node that lacks one device stays in its group and deviates.
    if (count * 2 >= parts.size()) out += " " + what;
  }
  return out;
}

// The kernel's options without those that name the node itself: its image, disk, addresses, and how it was booted over
// the network (Warewulf, xCAT, Bright, MAAS, dracut, cloud-init).
std::string shared_options(std::string_view line) {
  static constexpr std::string_view kOwn[] = {"BOOT_IMAGE=",
                                              "BOOTIF=",
                                              "root=",
                                              "rootflags=",
                                              "resume=",
                                              "initrd=",
                                              "ip=",
                                              "nameserver=",
                                              "hostname=",
                                              "systemd.hostname=",
                                              "nodename=",
                                              "wwid=",
                                              "wwhost=",
                                              "wwmac=",
                                              "wwserver=",
                                              "wwipaddr=",
                                              "wwhostname=",
                                              "xcatd=",
                                              "MAC=",
                                              "NODE=",
                                              "SN=",
                                              "cloud-config-url=",
                                              "ds=",
                                              "uuid=",
                                              "console=",
                                              "rd.iscsi",
                                              "rd.luks",
                                              "rd.lvm",
                                              "rd.md",
                                              "netroot=",
                                              "ifname=",
                                              "bootdev=",
                                              "rd.neednet",
                                              "iscsi_initiator=",
                                              "systemd.machine_id=",
                                              "crashkernel="};
  std::string kept;
  for (const auto word : topology::text::words(line)) {
    const bool own = std::ranges::any_of(kOwn, [&](auto one) { return word.starts_with(one); });
    if (!own) kept += (kept.empty() ? "" : " ") + std::string(word);
  }
  return kept;
}

}  // namespace

std::vector<std::tuple<std::string, std::string, std::string>> compared_of(const Case& one) {
  const auto& machine = one.machine;
  std::vector<std::tuple<std::string, std::string, std::string>> out;
  const auto add = [&out](std::string subject, const char* field, std::string value) {
    if (!value.empty()) out.emplace_back(std::move(subject), field, std::move(value));
  };
  add("machine", "GPUs", std::to_string(machine.gpus.size()));
  add("machine", "RDMA devices", std::to_string(machine.rdma.size()));
  add("machine", "sockets", machine.packages.empty() ? "" : std::to_string(machine.packages.size()));
  add("machine", "NUMA nodes", machine.numa_nodes.empty() ? "" : std::to_string(machine.numa_nodes.size()));
  add("machine", "product", value_text(machine.product));
  add("machine", "kernel", value_text(machine.kernel));
  add("machine", "GPU driver", value_text(machine.gpu_driver));
  for (const auto& node : machine.numa_nodes) {
    // Firmware reserves a varying amount: rounded to 2 %, at least 1 GiB.
    if (node.memory_bytes) {
      const auto gib = static_cast<double>(*node.memory_bytes) / (1ULL << 30U);
      const double step = std::max(1.0, gib / 50);
      add(fmt::format("NUMA node {}", node.os_index), "memory",
          fmt::format("about {:.0f} GiB", std::round(gib / step) * step));
    }
  }
  const auto link = [&](const std::string& name, topology::Ref<topology::PciDevice> pci, bool gpu) {
    if (!pci) return;
    const auto& device = machine.pci[pci.index];
    add(name, "PCIe width", device.link.width ? fmt::format("x{}", *device.link.width) : "");
    // Idle GPUs lower their link speed: compare the highest.
    const auto& speed = gpu ? device.link.max_speed_gts : device.link.speed_gts;
    add(name, "PCIe speed", speed ? fmt::format("{:g} GT/s", *speed) : "");
    add(name, "NUMA node", value_text(device.numa_node));
    const auto prefix = "pci." + device.bus_id.to_string();
    for (const auto& [key, field] : {std::pair{".max_read_request", "MaxReadReq"},
                                     {".max_payload", "MaxPayload"},
                                     {".relaxed_ordering", "relaxed ordering"},
                                     {".ats", "ATS"},
                                     {".iommu_type", "IOMMU"}}) {
      add(name, field, one.facts.text(prefix + key));
    }
    for (auto at = device.parent; at; at = machine.pci[at.index].parent) {
      const auto acs = one.facts.text("pci." + machine.pci[at.index].bus_id.to_string() + ".acs");
      if (acs.empty()) continue;
      add(name, "ACS of the port above", acs);
      break;
    }
  };
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) {
    const auto& gpu = machine.gpus[i];
    const auto name = topology::gpu_name(machine, gpu);
    add(name, "model", value_text(gpu.model));
    add(name, "memory", gpu.memory_bytes ? fmt::format("{} MiB", *gpu.memory_bytes >> 20U) : "");
    add(name, "BAR1", gpu.bar1_bytes ? fmt::format("{} MiB", *gpu.bar1_bytes >> 20U) : "");
    add(name, "persistence mode", one.facts.text(fmt::format("gpu.{}.persistence", gpu.ordinal)));
    std::size_t active = 0;
    for (const auto& port : gpu.nvlinks) active += port.active.value_or(false) ? 1 : 0;
    if (!gpu.nvlinks.empty()) add(name, "NVLinks up", std::to_string(active));
    link(name, gpu.pci, true);
  }
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto& nic = machine.nics[i];
    if (!nic.rdma) continue;
    const auto& rdma = machine.rdma[nic.rdma.index];
    add(nic.name, "firmware", value_text(rdma.firmware));
    add(nic.name, "board", value_text(rdma.board_id));
    link(nic.name, topology::pci_of(machine, {NodeKind::nic, i}), false);
    if (const auto* active = port_of(machine, i); active != nullptr) {
      const auto& port = *active;
      add(nic.name, "state", value_text(port.state));
      add(nic.name, "rate", port.rate_gbps ? fmt::format("{:g} Gb/s", *port.rate_gbps) : "");
      add(nic.name, "link layer", value_text(port.link_layer));
      add(nic.name, "MTU", value_text(port.active_mtu));
      const auto gid = std::ranges::find_if(port.gids, is_routable);
      if (gid != port.gids.end()) add(nic.name, "routable GID", std::to_string(gid->index));
    }
    if (nic.bond) {
      const auto& legs = machine.bonds[nic.bond.index].legs;
      add(nic.name, "bond legs up",
          std::to_string(std::ranges::count_if(legs, [](const auto& leg) { return leg.up.value_or(true); })));
    }
  }
  for (const auto& [fact, field] : {std::pair{"kernel.cmdline", "kernel command line"},
                                    {"kernel.numa_balancing", "NUMA balancing"},
                                    {"limit.memlock", "locked memory"},
                                    {"cpu.governor", "governor"},
                                    {"kernel.module.nvidia_peermem", "nvidia_peermem"},
                                    {"gpu.kernel_module", "GPU kernel module"}}) {
    auto value = one.facts.text(fact);
    if (std::string_view(fact) == "kernel.cmdline") value = shared_options(value);
    add("host", field, value);
  }
  return out;
}

Fleet compare_fleet(std::span<const Node> nodes) {
  Fleet fleet;
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < nodes.size(); ++i) groups[shape_of(nodes[i].found.machine)].push_back(i);
  for (const auto& [shape, members] : groups) {
    std::vector<std::string> names;
    for (const auto i : members) names.push_back(nodes[i].name);
    fleet.groups.push_back(std::move(names));
    if (members.size() < 2) {
      // Where most nodes are of one kind, one of no other's kind is a node that differs: its driver may be down.
      const auto most = std::ranges::max_element(groups, [](const auto& a, const auto& b) {
                          return a.second.size() < b.second.size();
                        })->second;
      if (most.size() < 2 || most.size() * 2 <= nodes.size()) continue;
      fleet.deviations.push_back({nodes[members.front()].name,
                                  "machine",
                                  "GPUs and NICs",
                                  devices_of(nodes[members.front()].found.machine),
                                  devices_of(nodes[most.front()].found.machine),
                                  most.size(),
                                  nodes.size(),
                                  {}});
      continue;
    }
    fleet.compared += members.size();
    std::map<std::pair<std::string, std::string>, std::map<std::string, std::vector<std::size_t>>> values;
    std::map<std::string, std::set<std::size_t>> subjects;  // which nodes have a device of that name
    for (const auto i : members) {
      for (auto& [subject, field, value] : compared_of(nodes[i].found)) {
        values[{subject, field}][value].push_back(i);
        subjects[subject].insert(i);
      }
    }
    for (const auto& [subject, having] : subjects) {
      if (having.size() == members.size() || having.size() * 2 <= members.size()) continue;
      for (const auto i : members) {
        if (!having.contains(i))
          fleet.deviations.push_back(
              {nodes[i].name, subject, "presence", "missing", "present", having.size(), members.size(), {}});
      }
    }
    for (const auto& entry : values) {
      const auto& what = entry.first;  // no structured binding: clang 14 cannot capture one
      const auto& by_value = entry.second;
      if (by_value.size() < 2) continue;
      std::size_t said = 0;
      auto most = by_value.begin();
      for (auto at = by_value.begin(); at != by_value.end(); ++at) {
        said += at->second.size();
        if (at->second.size() > most->second.size()) most = at;
      }
      if (most->second.size() * 2 <= said) {
        std::string list;
        for (const auto& [value, who] : by_value) {
          list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", topology::text::quote(value, 60),
                              who.size() == 1 ? nodes[who.front()].name : fmt::format("{} nodes", who.size()));
        }
        fleet.undecided.push_back(fmt::format("{}: {} is {}", what.first, what.second, list));
        continue;
      }
      for (const auto& [value, who] : by_value) {
        if (value == most->first) continue;
        for (const auto i : who) {
          Deviation one{nodes[i].name, what.first, what.second, value, most->first, most->second.size(), said, {}};
          // The cost, if the node's own report has a finding about this device.
          for (const auto& finding : nodes[i].report.findings) {
            if (finding.level == Level::note) continue;
            const bool named = std::ranges::any_of(finding.devices, [&](const auto& device) {
              return topology::node_name(nodes[i].found.machine, device) == what.first;
            });
            if (named && finding.loss_gbps) one.loss_gbps = std::max(one.loss_gbps.value_or(0), *finding.loss_gbps);
          }
          fleet.deviations.push_back(std::move(one));
        }
      }
    }
  }
  std::ranges::stable_sort(fleet.deviations, [](const Deviation& a, const Deviation& b) {
    return a.loss_gbps.value_or(0) > b.loss_gbps.value_or(0);
  });
  return fleet;
}

int exit_code(const Fleet& fleet, std::span<const Node> nodes) {
  const bool nothing_compared = nodes.size() > 1 && fleet.compared == 0;
  int code = fleet.deviations.empty() && fleet.undecided.empty() && !nothing_compared ? 0 : 1;
  bool unclear = false;
  for (const auto& node : nodes) {
    const bool found = !node.report.verdict.ok;
    if (found) code = std::max(code, exit_code(node.report.verdict));
    unclear = unclear || (!found && !node.report.verdict.whole);
  }
  return code == 0 && unclear ? 4 : code;
}

}  // namespace fairway::doctor
