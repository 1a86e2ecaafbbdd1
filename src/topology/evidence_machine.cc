#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/contradict.h"
#include "topology/load.h"
#include "topology/sysfs.h"
#include "topology/text.h"

// The machine of all outputs together.
namespace fairway::topology {
namespace {

using Kind = OutputKind;

// Empty where there is none.
std::string some(std::size_t n, std::string_view noun) {
  return n == 0 ? std::string() : text::count(n, noun);
}

// For notes: the file, and the line where it is not the first.
std::string place_of(const Output& output) {
  return output.numbers.empty() || output.numbers.front() == 1 ? output.file : output.at(1);
}

// /proc/net/bonding/<name> does not contain the name: its legs' master has it, else the command or the file's name.
std::string bond_name(const Machine& machine, const Output& output) {
  for (const auto line : text::lines(output.text)) {
    if (!line.starts_with("Slave Interface:")) continue;
    const auto leg = find_interface(machine, text::quote(text::trim(line.substr(16))));
    if (leg && machine.interfaces[leg.index].master) return *machine.interfaces[leg.index].master;
  }
  for (const auto& name : {output.command, output.file}) {
    const auto at = name.rfind("bond");
    if (at == std::string::npos) continue;
    auto end = at + 4;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (end > at + 4) return name.substr(at, end - at);
  }
  return {};
}

// Bonds that only `ip link` shows: their legs name them as their master.
void add_bonds_from_links(Machine& machine) {
  std::set<std::uint32_t> described;
  for (const auto& bond : machine.bonds) described.insert(bond.interface.index);
  for (std::size_t i = 0; i < machine.interfaces.size(); ++i) {
    if (machine.interfaces[i].kind != InterfaceKind::bond || described.contains(static_cast<std::uint32_t>(i)))
      continue;
    Bond bond;
    bond.interface = Ref<NetInterface>(i);
    for (std::size_t k = 0; k < machine.interfaces.size(); ++k) {
      if (machine.interfaces[k].master.value_or("") != machine.interfaces[i].name) continue;
      auto& leg = bond.legs.emplace_back();
      leg.interface = Ref<NetInterface>(k);
      leg.up = machine.interfaces[k].carrier;
      leg.speed_gbps = machine.interfaces[k].speed_gbps;
    }
    if (bond.legs.empty()) continue;
    add_note(machine, NoteKind::unknown, machine.interfaces[i].name,
             "its bonding file is not in the folder: mode and the speed of its legs are unknown");
    machine.bonds.push_back(std::move(bond));
  }
}

// Which commands would add what is missing.
void say_what_is_missing(Machine& machine) {
  const bool unplaced = std::ranges::any_of(machine.gpus, [](const Gpu& gpu) { return !gpu.pci; });
  if (unplaced) {
    add_note(machine, NoteKind::unknown, "GPUs",
             "their bus ids are not recorded: paste `nvidia-smi --query-gpu=index,pci.bus_id --format=csv`, or take a "
             "snapshot "
             "on the machine");
  }
  for (const auto& nic : machine.nics) {
    if (nic.rdma && machine.rdma[nic.rdma.index].software.value_or(false)) continue;
    if (nic.rdma && nic.functions.empty()) {
      add_note(machine, NoteKind::unknown, nic.name,
               "its PCI function is not recorded: paste `ls -l /sys/class/infiniband /sys/class/net`");
    }
    if (nic.rdma && !nic_one_flow_gbps(machine, nic)) {
      add_note(machine, NoteKind::unknown, nic.name,
               "its rate is not recorded: paste its `ibv_devinfo -v` or its bonding file");
    }
  }
}

Result<Machine> read_whole(const Output& output, const std::string& name) {
  switch (output.kind) {
    case Kind::snapshot: return read_snapshot(output.text, name);
    case Kind::hwloc_xml: return read_hwloc_xml(output.text, name);
    case Kind::nccl_xml: return read_nccl_xml(output.text, name);
    case Kind::topo_matrix:
      return read_topo_matrix(output.text, name, output.numbers.empty() ? 1 : output.numbers.front());
    default: break;
  }
  auto fabric = read_fabric_snapshot(output.text, name);
  if (!fabric) return fabric.status();
  if (fabric->machines.size() == 1) return std::move(fabric->machines.front());
  return Status(ErrorCode::invalid_argument,
                fmt::format("{}: has {} machines, and this needs one", name, fabric->machines.size()));
}

// The reason that the output itself gives, where it has one.
std::string why_failed(const Output& output, const Status& status) {
  for (const auto line : text::lines(output.text)) {
    if (is_failure(line)) return text::quote(text::trim(line), 120);
  }
  return status.message();
}

// The first of them is the machine to which all else is added.
Status read_base(const std::string& path, bool have, Machine& machine, Evidence& evidence) {
  const Output* base = nullptr;
  for (const auto kind : {Kind::snapshot, Kind::fabric_snapshot, Kind::hwloc_xml, Kind::nccl_xml, Kind::topo_matrix}) {
    for (auto& output : evidence.outputs) {
      if (output.kind != kind) continue;
      if (have) {
        const bool same = base != nullptr && output.text == base->text;
        output.state = same ? ReadState::read : ReadState::not_used;
        output.gave = fmt::format("a second description of the machine: {} is kept",
                                  base != nullptr ? place_of(*base) : std::string("/sys"));
        if (!same) add_note(machine, NoteKind::conflict, place_of(output), output.gave);
        continue;
      }
      const bool alone = evidence.outputs.size() == 1 && evidence.others.empty();
      auto read = read_whole(output, alone ? path : output.file);
      if (!read) {
        const auto why = why_failed(output, read.status());
        if (alone)
          return why == read.status().message() ? read.status()
                                                : Status(ErrorCode::invalid_argument, fmt::format("{}: {}", path, why));
        output.fail(why);
        continue;
      }
      const auto name = machine.name;
      machine = std::move(read).value();
      if (machine.name.empty() || kind == Kind::topo_matrix) machine.name = name;
      std::string gave = some(machine.gpus.size(), "GPU");
      if (const auto nics = some(machine.nics.size(), "NIC"); !nics.empty()) gave += (gave.empty() ? "" : ", ") + nics;
      output.read_as(gave.empty() ? some(machine.pci.size(), "PCI device") : gave);
      base = &output;
      have = evidence.described = true;
    }
  }
  return {};
}

std::string read_bond(const Output& output, Machine& machine) {
  const auto name = bond_name(machine, output);
  if (name.empty()) return {};
  const auto before = machine.bonds.size();
  if (!read_bonding(output.text, name, Source::bonding, machine) || machine.bonds.size() == before) return {};
  return fmt::format("{}: {}", name, text::count(machine.bonds.back().legs.size(), "leg"));
}

using PartReader = std::size_t (*)(std::string_view, const std::string&, Machine&);

struct PartOf {
  Kind kind;
  PartReader read;
  std::string_view noun;  // of what it counts
};

// Names before what is said of them: the GPUs' numbers before their links, interfaces before their bonds, and the links
// of /sys after all that names PCI functions. Of two sources the one above is the first.
constexpr PartOf kPartReaders[] = {
    {Kind::lspci, read_lspci, "PCI device"},
    {Kind::ibv_devinfo, read_ibv_devinfo, "RDMA device"},
    {Kind::ibv_devices, read_ibv_devices, "RDMA device"},
    {Kind::ibstat, read_ibstat, "RDMA device"},
    {Kind::ibstatus, read_ibstatus, "port"},
    {Kind::rdma_link, read_rdma_link, "port"},
    {Kind::show_gids, read_show_gids, "GID"},
    {Kind::rdma_statistic, read_rdma_statistic, "port"},
    {Kind::sysfs_files, nullptr, "file"},
    {Kind::ibdev2netdev, read_ibdev2netdev, "port"},
    {Kind::ip_link, read_ip_link, "interface"},
    {Kind::ip_brief, read_ip_brief, "interface"},
    {Kind::ethtool, read_ethtool, "interface"},
    {Kind::mlxlink, nullptr, "port"},
    {Kind::bonding, nullptr, "leg"},
    {Kind::gpu_query, read_gpu_query, "GPU"},
    {Kind::smi_table, read_smi_table, "GPU"},
    {Kind::smi_query, nullptr, "GPU"},
    {Kind::nvlink, read_nvlink, "GPU"},
    {Kind::topo_peers, read_topo_peers, "pair of GPUs"},
    {Kind::rocm_smi, read_rocm_smi, "GPU"},
    {Kind::amd_smi, read_amd_smi, "GPU"},
    {Kind::mx_smi, read_mx_smi, "GPU"},
    {Kind::hl_smi, read_hl_smi, "GPU"},
    {Kind::npu_smi, read_npu_smi, "accelerator"},
    {Kind::lscpu, read_lscpu, "property of the CPUs"},
    {Kind::numactl, read_numactl, "NUMA node"},
    {Kind::sysfs_links, read_sysfs_links, "link"},
};

// What an output says of the machine's parts; empty: nothing.
std::string read_part(const PartOf& part, const Output& output, Machine& machine) {
  if (part.kind == Kind::mlxlink) return read_mlxlink(output, machine);
  if (part.kind == Kind::sysfs_files) {
    const auto n = read_sysfs_files(output, machine);
    return n == 0 ? std::string() : text::count(n, part.noun);
  }
  if (part.kind == Kind::smi_query) {
    const auto n = read_smi_query(output, machine);
    return n == 0 ? std::string() : text::count(n, part.noun);
  }
  if (part.read == nullptr) return read_bond(output, machine);
  const auto n = part.read(output.text, place_of(output), machine);
  if (n == 0) return {};
  if (part.kind == Kind::topo_peers) return text::count(n, "answer") + " on peer access";
  if (part.kind == Kind::numactl) {
    auto gave = text::count(n, "NUMA node");
    for (const auto& node : machine.numa_nodes) {
      if (node.memory_bytes && *node.memory_bytes == 0) gave += fmt::format("; node {} has no memory", node.os_index);
    }
    return gave;
  }
  return part.kind == Kind::lscpu ? std::string("CPUs and NUMA nodes") : text::count(n, part.noun);
}

// What describes the whole machine is one of the sources that may differ.
void add_base(const Machine& machine, const Evidence& evidence, Contradictions& differ) {
  if (!evidence.described) return;
  const auto base = std::ranges::find_if(evidence.outputs, [](const Output& one) {
    return one.state == ReadState::read && one.kind >= Kind::snapshot && one.kind <= Kind::topo_matrix;
  });
  differ.add(machine, 0, base == evidence.outputs.end() ? std::string("sys/") : place_of(*base));
}

}  // namespace

Status build_machine(const std::string& path, Machine machine, Evidence& evidence) {
  if (auto status = read_base(path, evidence.described, machine, evidence); !status) return status;
  Contradictions differ;
  add_base(machine, evidence, differ);
  for (const auto& part : kPartReaders) {
    for (std::size_t i = 0; i < evidence.outputs.size(); ++i) {
      auto& output = evidence.outputs[i];
      if (output.kind != part.kind) continue;
      output.cut = cut_off(output);
      if (auto lost = part.kind == Kind::smi_query ? lost_smi_fields(output) : std::string(); !lost.empty())
        evidence.others.push_back(
            {place_of(output), std::string(to_string(part.kind)), ReadState::not_used, std::move(lost)});
      // A bond's file names its legs alone.
      if (Machine alone; part.kind != Kind::bonding && !read_part(part, output, alone).empty())
        differ.add(alone, i + 1, place_of(output));
      auto gave = read_part(part, output, machine);
      if (!gave.empty()) {
        output.read_as(std::move(gave));
        evidence.described = true;
      } else if (part.kind == Kind::sysfs_files) {
        output.state = ReadState::not_used;
        output.gave =
            "no line says of a port, an interface or a PCI function which file it is of (`grep . FILES` does)";
      } else if (part.kind == Kind::bonding) {
        output.gave = "neither `ip link` nor the file's name tells which bond this is";
        add_note(machine, NoteKind::unknown, place_of(output), output.gave + ": ignored");
      }
    }
  }
  for (auto& output : evidence.outputs) {
    if (output.kind == Kind::lspci_drawing) {
      output.gave = "the drawing has neither NUMA nodes nor links: `lspci -vvv` (as root) has the tree too";
      add_note(machine, NoteKind::unknown, place_of(output), output.gave);
    } else if (output.kind == Kind::unknown && !output.prose && output.state == ReadState::not_understood) {
      add_note(machine, NoteKind::remark, place_of(output), "not understood: ignored");
    }
  }
  for (auto& one : differ.settle(machine)) evidence.others.push_back(std::move(one));
  for (const auto& other : evidence.hosts)
    add_note(machine, NoteKind::remark, other.host, "its outputs are another machine's: left out here");
  const bool pasted = std::ranges::any_of(evidence.outputs, [](const Output& one) {
    return one.state == ReadState::read && one.kind >= Kind::topo_matrix;
  });
  if (pasted) {
    add_bonds_from_links(machine);
    join_gpus_by_bus_order(machine);
    complete(machine);
    if (!machine.pci.empty() && machine.host_bridges.empty()) {
      add_note(machine, NoteKind::unknown, "",
               "these outputs name no bridges' buses, so nothing has a place: `lspci -vvv` (as root) has them");
    }
    say_what_is_missing(machine);
    if (auto status = validate(machine); !status) return status.with_context(path);
  }
  evidence.machine = std::move(machine);
  return {};
}

}  // namespace fairway::topology
