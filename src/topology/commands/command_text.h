#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "topology/machine.h"
#include "topology/output.h"
#include "topology/text.h"

// Pasted outputs of commands, each recognised by content. Every reader takes what it understands, lists what
// contradicts earlier facts as a conflict, and invents nothing; `place` names the file in notes. It returns how many
// devices, ports or lines it understood.
namespace fairway::topology {

// Entries of a machine's list by name, for readers that meet a name on every line. It borrows the machine for one
// reading, in which entries are added and none is removed or renamed.
template <class T>
class ByName {
 public:
  ByName(Machine& machine, std::vector<T>& list, LimitOf limit) : machine_(machine), list_(list), limit_(limit) {}

  // The entry of that name, which is new if there was none; null, and a note, where the list is full.
  T* find_or_add(std::string_view name) {
    auto quoted = text::quote(name);
    if (auto* known = find(quoted)) return known;
    if (list_.size() >= limit_.most) {
      if (!full_) leave_out(machine_, limit_);
      full_ = true;
      return nullptr;
    }
    list_.emplace_back().name = std::move(quoted);
    return &list_.back();
  }

 private:
  // A short text asks for few names, for which no index is worth making.
  static constexpr std::size_t kFew = 4;

  T* find(const std::string& name) {
    if (asked_ < kFew) {
      ++asked_;
      const auto found = std::ranges::find(list_, name, &T::name);
      return found == list_.end() ? nullptr : &*found;
    }
    for (; indexed_ < list_.size(); ++indexed_) places_.try_emplace(list_[indexed_].name, indexed_);
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &list_[found->second];
  }

  Machine& machine_;
  std::vector<T>& list_;
  LimitOf limit_;
  bool full_ = false;  // and a note says so
  std::size_t asked_ = 0;
  std::size_t indexed_ = 0;  // how many entries of the list are in `places_`
  std::unordered_map<std::string, std::size_t> places_;
};

// The buses below a bridge, as `lspci -v` says them: "Bus: primary=00, secondary=01, subordinate=05".
struct BusesBelow {
  std::uint8_t first = 0;
  std::uint8_t last = 0;
};
// Gives devices without a place their parents and roots by those.
void place_by_buses(const std::map<BusId, BusesBelow>& bridges, const std::string& place, Machine& machine);

std::size_t read_lspci(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_ibv_devinfo(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_ibdev2netdev(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_ip_link(std::string_view content, const std::string& place, Machine& machine);
// `ls -l` of /sys/class/infiniband, /sys/class/net or /sys/bus/pci/devices; after all that names PCI functions.
std::size_t read_sysfs_links(std::string_view content, const std::string& place, Machine& machine);
bool is_sysfs_link(std::string_view line);
// Files of /sys on RDMA ports, interfaces and PCI functions: "PATH:value" of `grep .`, the value alone below the path
// that its command or "==> PATH <==" names.
std::size_t read_sysfs_files(const Output& output, Machine& machine);
bool is_sysfs_file(std::string_view line);
// "0000:81:00.0/current_link_width", "mlx5_0/ports/1/rate": below the folder that a shell stood in.
bool is_sysfs_path(std::string_view word);
// What "ports/1/rate" of a device holds; false: it is nothing that a machine has.
using RdmaByName = ByName<RdmaDevice>;
using InterfaceByName = ByName<NetInterface>;
bool read_port_file(std::string_view device, std::string_view file, std::string_view value, Machine& machine,
                    RdmaByName& devices);
// `nvidia-smi --query-gpu=index,pci.bus_id --format=csv`
std::size_t read_gpu_query(std::string_view content, const std::string& place, Machine& machine);
// ibstat, ibstatus, `rdma link`, `rdma statistic`, show_gids
std::size_t read_ibstat(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_ibstatus(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_rdma_link(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_rdma_statistic(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_ibv_devices(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_show_gids(std::string_view content, const std::string& place, Machine& machine);
// `nvidia-smi -q`, `nvidia-smi`, `nvidia-smi nvlink`, `nvidia-smi topo -p2p`, `rocm-smi --showtopo`
std::size_t read_smi_query(const Output& output, Machine& machine);
std::size_t read_smi_table(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_nvlink(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_topo_peers(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_rocm_smi(std::string_view content, const std::string& place, Machine& machine);
// `amd-smi list`, `static` and `topology`; `mx-smi` and `mx-smi topo -m` (MetaX); hl-smi (Gaudi)
std::size_t read_amd_smi(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_mx_smi(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_npu_smi(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_hl_smi(std::string_view content, const std::string& place, Machine& machine);
// The GPU of a number, and the one at a bus id, which is new at `place` if it is none's; none if there are too many.
struct GpuMaker {
  const char* name;
  std::uint32_t vendor_id;
  std::uint32_t class_code;
};
Ref<Gpu> gpu_numbered(Machine& machine, std::uint32_t ordinal, const char* vendor);
Ref<PciDevice> gpu_function(Machine& machine, const BusId& bus, const GpuMaker& maker);  // none: there are too many
Ref<Gpu> gpu_at(Machine& machine, const BusId& bus, std::uint32_t place, const GpuMaker& maker);
RdmaPort& port_numbered(RdmaDevice& device, std::uint32_t number);  // new if it has none of that number
std::vector<std::string_view> comma_cells(std::string_view line);   // of a line of CSV, without blanks around them
std::optional<std::uint64_t> bytes_of_mib(std::string_view value);  // "81559 MiB"; none also for 0 and 2^30 and more
// mlxlink: the state of the port that its command or its file names. Which device that is: the name, or empty.
std::string read_mlxlink(const Output& output, Machine& machine);
std::string device_of_mlxlink(const Output& output, const Machine& machine);
// The lines of `nvidia-smi -q`. Of a field the heading is the line that it stands to the right of; where a grep left
// that out, the heading that its name and value alone tell.
inline constexpr std::string_view kFabricHeading = "    Fabric";
struct SmiField {
  std::string_view key;  // a heading's name, where there is no value
  std::string_view value;
  std::string_view section;
  bool is_heading = false;
  bool is_lost = false;  // its meaning depends on a heading that is not there
};
class SmiFields {
 public:
  void begin_gpu();
  SmiField read(std::string_view line);

 private:
  std::vector<std::pair<std::size_t, std::string_view>> above_;  // headings of the next line, and their indents
  std::set<std::string_view> seen_;                              // fields of this GPU whose heading their name tells
};
// Those of its fields that are lost so, for reports; empty: none.
std::string lost_smi_fields(const Output& output);
// lscpu, `numactl -H`, ethtool
std::size_t read_lscpu(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_numactl(std::string_view content, const std::string& place, Machine& machine);
std::size_t read_ethtool(std::string_view content, const std::string& place, Machine& machine);
// A cell that a tool prints where it could not read: "ERR!", "[Unknown Error]", "GPU is lost".
bool is_error_cell(std::string_view value);
// Whether these words say that a GPU is lost, or must be reset before anything can use it.
bool says_lost(std::string_view words);
// GPUs without a bus id and as many GPU functions that are nobody's: paired in order.
void join_gpus_by_bus_order(Machine& machine);
std::size_t read_ip_brief(std::string_view content, const std::string& place, Machine& machine);

}  // namespace fairway::topology
