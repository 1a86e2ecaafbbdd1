#include <algorithm>
#include <array>

#include "topology/fact.h"
#include "topology/machine.h"
#include "topology/output.h"
#include "topology/text.h"

// The names of outputs, and the lines that belong to each.
namespace fairway::topology {
namespace {

constexpr auto kOutputKinds = std::to_array<std::pair<OutputKind, std::string_view>>({
    {OutputKind::unknown, "unknown"},
    {OutputKind::failure, "a failed command"},
    {OutputKind::snapshot, "snapshot"},
    {OutputKind::fabric_snapshot, "fabric snapshot"},
    {OutputKind::hwloc_xml, "hwloc XML"},
    {OutputKind::nccl_xml, "NCCL or RCCL topology XML"},
    {OutputKind::topo_matrix, "nvidia-smi topo -m"},
    {OutputKind::topo_peers, "nvidia-smi topo -p2p"},
    {OutputKind::gpu_query, "nvidia-smi --query-gpu"},
    {OutputKind::smi_query, "nvidia-smi -q"},
    {OutputKind::smi_table, "nvidia-smi"},
    {OutputKind::nvlink, "nvidia-smi nvlink"},
    {OutputKind::rocm_smi, "rocm-smi"},
    {OutputKind::amd_smi, "amd-smi"},
    {OutputKind::mx_smi, "mx-smi"},
    {OutputKind::hl_smi, "hl-smi"},
    {OutputKind::npu_smi, "npu-smi"},
    {OutputKind::fabric_manager, "systemctl status nvidia-fabricmanager"},
    {OutputKind::driver_version, "/proc/driver/nvidia/version"},
    {OutputKind::lspci, "lspci"},
    {OutputKind::lspci_drawing, "lspci -t"},
    {OutputKind::sysfs_links, "ls -l of /sys"},
    {OutputKind::iommu_types, "/sys/kernel/iommu_groups/*/type"},
    {OutputKind::sysfs_files, "files of /sys"},
    {OutputKind::ibv_devinfo, "ibv_devinfo"},
    {OutputKind::ibv_devices, "ibv_devices"},
    {OutputKind::ibdev2netdev, "ibdev2netdev"},
    {OutputKind::ibstat, "ibstat"},
    {OutputKind::ibstatus, "ibstatus"},
    {OutputKind::show_gids, "show_gids"},
    {OutputKind::rdma_link, "rdma link"},
    {OutputKind::rdma_statistic, "rdma statistic"},
    {OutputKind::mlxconfig, "mlxconfig query"},
    {OutputKind::mlxlink, "mlxlink"},
    {OutputKind::perfquery, "perfquery"},
    {OutputKind::iblinkinfo, "iblinkinfo"},
    {OutputKind::ibnetdiscover, "ibnetdiscover"},
    {OutputKind::ip_link, "ip link"},
    {OutputKind::ip_brief, "ip -br a"},
    {OutputKind::bonding, "/proc/net/bonding"},
    {OutputKind::ethtool, "ethtool"},
    {OutputKind::ethtool_statistics, "ethtool -S"},
    {OutputKind::qos, "mlnx_qos"},
    {OutputKind::lscpu, "lscpu"},
    {OutputKind::numactl, "numactl -H"},
    {OutputKind::kernel_log, "dmesg"},
    {OutputKind::cmdline, "/proc/cmdline"},
    {OutputKind::modules, "lsmod"},
    {OutputKind::limits, "/proc/self/limits"},
    {OutputKind::ulimit, "ulimit"},
    {OutputKind::meminfo, "/proc/meminfo"},
    {OutputKind::sysctl, "sysctl"},
    {OutputKind::uname, "uname -a"},
    {OutputKind::disk_free, "df"},
    {OutputKind::environment, "environment"},
    {OutputKind::collect_env, "collect_env.py"},
    {OutputKind::nccl_log, "NCCL's log"},
    {OutputKind::ucx_info, "ucx_info"},
    {OutputKind::ucx_log, "UCX's log"},
    {OutputKind::fi_info, "fi_info"},
    {OutputKind::perftest, "perftest"},
    {OutputKind::nccl_tests, "nccl-tests"},
    {OutputKind::nvbandwidth, "nvbandwidth"},
    {OutputKind::bench, "fairway bench"},
    {OutputKind::p2p_test, "p2pBandwidthLatencyTest"},
    {OutputKind::osu, "OSU micro-benchmarks"},
    {OutputKind::imb, "Intel MPI Benchmarks"},
    {OutputKind::ucx_perftest, "ucx_perftest"},
    {OutputKind::iperf, "iperf3"},
    {OutputKind::nixlbench, "nixlbench"},
    {OutputKind::rows, "measured rows"},
});

constexpr NameTable<ReadState, 7> kReadStates{{{ReadState::read, "read"},
                                               {ReadState::not_used, "not used"},
                                               {ReadState::not_understood, "not understood"},
                                               {ReadState::failed, "failed"},
                                               {ReadState::empty, "empty"},
                                               {ReadState::contradicted, "contradicted"},
                                               {ReadState::cut, "cut off"}}};

}  // namespace

std::string_view to_string(OutputKind kind) {
  const auto found = std::ranges::find_if(kOutputKinds, [&](const auto& one) { return one.first == kind; });
  return found == kOutputKinds.end() ? std::string_view("unknown") : found->second;
}

std::string_view to_string(ReadState state) {
  return name_of(kReadStates, state);
}

std::optional<ReadState> read_state_from(std::string_view text) {
  return value_of(kReadStates, text);
}

bool is_measurement(OutputKind kind) {
  return kind >= OutputKind::perftest && kind <= OutputKind::rows;
}

// Which lines belong to an output though no output is known by them.

namespace {

using Kind = OutputKind;

// A row of a matrix, its legend, or why there is none.
bool is_of_matrix(std::string_view line) {
  const auto parts = text::words(line);
  if (parts[0].starts_with("GPU") || parts[0].starts_with("NIC") || parts[0].starts_with("Legend")) return true;
  if (parts.size() > 1 && PathClass::parse(parts[1])) return true;
  // "SYS  = Connection traversing ..."
  const auto is_name = [](char c) { return (c >= 'A' && c <= 'Z') || c == '#'; };
  if (parts.size() > 1 && parts[1] == "=" && std::ranges::all_of(parts[0], is_name)) return true;
  return is_failure(line);
}

}  // namespace

bool may_hold(Kind kind, std::string_view line, bool after_blank) {
  const bool indented = line.front() == ' ' || line.front() == '\t';
  const auto starts = [&](std::string_view word) { return line.starts_with(word); };
  switch (kind) {
    case Kind::environment:
    case Kind::sysctl:
    case Kind::ip_brief:
    case Kind::ibdev2netdev:
    case Kind::iommu_types:
    case Kind::ucx_log:
    case Kind::sysfs_files:
    case Kind::cmdline:
    case Kind::uname: return false;
    case Kind::fabric_manager:
    case Kind::ibv_devices:
    case Kind::rdma_link:
    case Kind::rdma_statistic: return indented;
    case Kind::perfquery: return line.find(":...") != line.npos || starts("# ");
    // A paste may have lost what stands before its lines.
    case Kind::lspci:
    case Kind::ibstat:
    case Kind::ibstatus:
    case Kind::ibv_devinfo:
    case Kind::ethtool:
    case Kind::ethtool_statistics: return indented || !after_blank || line.substr(0, 60).find(':') != line.npos;
    case Kind::nvlink: return indented || starts("Link ") || starts("NVML: ");
    case Kind::ip_link:
      return indented || starts("link/") || starts("inet") || starts("altname") || starts("valid_lft");
    case Kind::npu_smi: return starts("|") || starts("+");
    case Kind::smi_query:
      return line == "--" || indented || starts("GPU ") || starts("=====") || line.find(" : ") != line.npos;
    case Kind::smi_table: return indented || starts("|") || starts("+") || !after_blank;
    case Kind::numactl: return indented || starts("node");
    case Kind::sysfs_links: return starts("total ") || starts("/") || starts("l") || starts("d") || starts("-");
    case Kind::iblinkinfo: return indented || starts("CA: ") || starts("Switch: ") || starts("Router: ");
    case Kind::ibnetdiscover:
      return starts("#") || starts("[") || starts("Switch") || starts("Ca") || starts("Non-Chassis") ||
             starts("Chassis") || line.find("guid=") != line.npos || line.find("id=0x") != line.npos;
    case Kind::mlxlink: return indented || line.find(':') != line.npos || starts("----") || line.ends_with(" Info");
    case Kind::amd_smi: return indented || line.find(':') != line.npos;
    case Kind::lscpu:
    case Kind::meminfo: return line.find(':') != line.npos;
    case Kind::bonding:
      return line.find(':') != line.npos || line.starts_with("802.3ad") || line.starts_with("details");
    case Kind::disk_free: return line.find('%') != line.npos;
    case Kind::modules: {
      const auto parts = text::words(line);
      return parts.size() > 2 && text::to_unsigned(parts[1]);
    }
    case Kind::topo_matrix:
    case Kind::topo_peers: return indented || is_of_matrix(line);
    case Kind::collect_env:
      return indented || line.find(':') != line.npos || line.find("==") != line.npos || starts("[");
    default: {
      // What programs that measure print between their rows is their readers' own.
      if (is_measurement(kind) || !after_blank || indented) return true;
      const char first = line.front();
      const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
      return !letter || starts("GPU") || line.find_first_of(":=,") != line.npos;
    }
  }
}

}  // namespace fairway::topology
