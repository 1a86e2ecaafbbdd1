#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "topology/machine.h"

// Pasted outputs of commands, each recognised by content. Every reader takes what it understands, lists what
// contradicts earlier facts as a conflict, and invents nothing; `place` names the file in notes.
namespace fairway::topology {

enum class CommandKind : std::uint8_t {
  unknown,
  topo_matrix,
  lspci,
  ibv_devinfo,
  ibdev2netdev,
  ip_link,
  ip_brief,
  bonding,
  sysfs_links,
  gpu_query,
};
CommandKind recognise_command(std::string_view content);

// The buses below a bridge, as `lspci -v` says them: "Bus: primary=00, secondary=01, subordinate=05".
struct BusesBelow {
  std::uint8_t first = 0;
  std::uint8_t last = 0;
};
// Gives devices without a place their parents and roots by those.
void place_by_buses(const std::map<BusId, BusesBelow>& bridges, const std::string& place, Machine& machine);
// `lspci -t`: a drawing without names, which is no list of devices.
bool is_lspci_drawing(std::string_view content);

void read_lspci(std::string_view content, const std::string& place, Machine& machine);
void read_ibv_devinfo(std::string_view content, const std::string& place, Machine& machine);
void read_ibdev2netdev(std::string_view content, const std::string& place, Machine& machine);
void read_ip_link(std::string_view content, const std::string& place, Machine& machine);
// `ls -l` of /sys/class/infiniband, /sys/class/net or /sys/bus/pci/devices; after all that names PCI functions.
void read_sysfs_links(std::string_view content, const std::string& place, Machine& machine);
bool is_sysfs_link(std::string_view line);
// `nvidia-smi --query-gpu=index,pci.bus_id --format=csv`
void read_gpu_query(std::string_view content, const std::string& place, Machine& machine);
// GPUs without a bus id and as many GPU functions that are nobody's: paired in order.
void join_gpus_by_bus_order(Machine& machine);
void read_ip_brief(std::string_view content, const std::string& place, Machine& machine);

}  // namespace fairway::topology
