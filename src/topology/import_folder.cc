#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/command_text.h"
#include "topology/file.h"
#include "topology/load.h"
#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr std::size_t kMaxFiles = 1000;
constexpr std::size_t kMaxBytes = 8U << 20;

struct Pasted {
  std::string name;
  std::string content;
  CommandKind kind = CommandKind::unknown;
};

// /proc/net/bonding/<name> does not contain the name: its legs' master has it, else the file's name.
std::string bond_name(const Machine& machine, const Pasted& file) {
  for (const auto line : text::lines(file.content)) {
    if (!line.starts_with("Slave Interface:")) continue;
    const auto leg = find_interface(machine, text::quote(text::trim(line.substr(16))));
    if (leg && machine.interfaces[leg.index].master) return *machine.interfaces[leg.index].master;
  }
  const auto at = file.name.rfind("bond");
  if (at == std::string::npos) return {};
  auto end = at + 4;
  while (end < file.name.size() && file.name[end] >= '0' && file.name[end] <= '9') ++end;
  return end > at + 4 ? file.name.substr(at, end - at) : std::string();
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
      BondLeg leg;
      leg.interface = Ref<NetInterface>(k);
      leg.up = machine.interfaces[k].carrier;
      leg.speed_gbps = machine.interfaces[k].speed_gbps;
      bond.legs.push_back(std::move(leg));
    }
    if (bond.legs.empty()) continue;
    add_note(machine, NoteKind::unknown, machine.interfaces[i].name,
             "its bonding file is not in the folder: mode and the speed of its legs are unknown");
    machine.bonds.push_back(std::move(bond));
  }
}

// Which commands would add what is missing.
void say_what_is_missing(Machine& machine) {
  const bool unplaced = std::any_of(machine.gpus.begin(), machine.gpus.end(), [](const Gpu& gpu) { return !gpu.pci; });
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

}  // namespace

Result<Machine> read_command_folder(const std::string& directory) {
  auto names = list_directory(directory, kMaxFiles);
  if (!names) return names.status();
  Machine machine;
  std::vector<Pasted> files;
  for (const auto& name : *names) {
    const auto path = directory + "/" + name;
    if (is_directory(path)) continue;
    auto content = read_file(path, kMaxBytes);
    if (!content) {
      add_note(machine, NoteKind::unreadable, name, content.status().message());
      continue;
    }
    Pasted file{name, std::move(content).value(), CommandKind::unknown};
    file.kind = recognise_command(file.content);
    if (file.kind == CommandKind::unknown && is_lspci_drawing(file.content)) {
      add_note(machine, NoteKind::unknown, name,
               "the drawing of `lspci -t` has neither NUMA nodes nor links: ignored; `lspci -vvv` (as root) has "
               "the tree too");
      continue;
    }
    if (file.kind == CommandKind::unknown) {
      add_note(machine, NoteKind::remark, name, "not recognised: ignored");
      continue;
    }
    files.push_back(std::move(file));
  }
  if (files.empty()) {
    return Status(ErrorCode::invalid_argument,
                  directory +
                      ": no file here is a snapshot, a sysfs tree or the output of a known command (lspci, "
                      "ibv_devinfo, ibdev2netdev, ip link, ip -br a, a bonding file, nvidia-smi topo -m, nvidia-smi "
                      "--query-gpu=index,pci.bus_id --format=csv, ls -l of /sys/class/infiniband, /sys/class/net or "
                      "/sys/bus/pci/devices)");
  }
  // The matrix first: it names the NICs. Bonding after the links, which name the bonds.
  constexpr CommandKind kOrder[] = {CommandKind::topo_matrix,  CommandKind::lspci,     CommandKind::ibv_devinfo,
                                    CommandKind::ibdev2netdev, CommandKind::ip_link,   CommandKind::ip_brief,
                                    CommandKind::bonding,      CommandKind::gpu_query, CommandKind::sysfs_links};
  bool have_matrix = false;
  for (const auto kind : kOrder) {
    for (const auto& file : files) {
      if (file.kind != kind) continue;
      switch (kind) {
        case CommandKind::topo_matrix: {
          if (have_matrix) {
            add_note(machine, NoteKind::conflict, file.name, "a second topo -m: the first is kept");
            break;
          }
          auto matrix = read_topo_matrix(file.content, file.name);
          if (!matrix) return matrix.status().with_context(directory);
          auto notes = std::move(machine.notes);
          machine = std::move(matrix).value();
          for (auto& note : notes) add_note(machine, note.kind, note.subject, note.text);
          have_matrix = true;
          break;
        }
        case CommandKind::lspci: read_lspci(file.content, file.name, machine); break;
        case CommandKind::ibv_devinfo: read_ibv_devinfo(file.content, file.name, machine); break;
        case CommandKind::ibdev2netdev: read_ibdev2netdev(file.content, file.name, machine); break;
        case CommandKind::gpu_query: read_gpu_query(file.content, file.name, machine); break;
        case CommandKind::sysfs_links: read_sysfs_links(file.content, file.name, machine); break;
        case CommandKind::ip_link: read_ip_link(file.content, file.name, machine); break;
        case CommandKind::ip_brief: read_ip_brief(file.content, file.name, machine); break;
        case CommandKind::bonding: {
          const auto name = bond_name(machine, file);
          if (name.empty()) {
            add_note(machine, NoteKind::unknown, file.name,
                     "neither ip link nor the file's name tells which bond this is: ignored");
          } else {
            read_bonding(file.content, name, Source::bonding, machine);
          }
          break;
        }
        case CommandKind::unknown: break;
      }
    }
  }
  machine.name = std::string(file_name(directory));
  add_bonds_from_links(machine);
  join_gpus_by_bus_order(machine);
  complete(machine);
  say_what_is_missing(machine);
  if (auto status = validate(machine); !status) return status.with_context(directory);
  return machine;
}

}  // namespace fairway::topology
