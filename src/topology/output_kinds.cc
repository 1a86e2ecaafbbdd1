#include <algorithm>
#include <array>

#include "topology/names.h"
#include "topology/output.h"

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
  const auto found =
      std::find_if(kOutputKinds.begin(), kOutputKinds.end(), [kind](const auto& one) { return one.first == kind; });
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

}  // namespace fairway::topology
