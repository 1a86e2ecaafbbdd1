#include "predict/constants.h"

#include <array>

namespace fairway::predict {
namespace {

using Id = ConstantId;

constexpr std::string_view kNcclTopo = "NCCL 2.2x, graph/topo.h";
constexpr std::string_view kTextbook = "the operators' textbook range; its low end from hop counts";

// Ranges: {low, expected, high}. "judgement" marks an end that no source gives.
constexpr auto kTable = std::to_array<ConstantRow>({
    {Id::wire_fill,
     "wire.fill",
     Unit::share,
     {0.985, 0.995, 1.0},
     "share of the line left to packets, after the headers that the model counts itself",
     "0.975 of the port is usual for RoCE at MTU 4096, where headers alone leave 0.980"},
    {Id::one_qp,
     "wire.one_qp",
     Unit::gbps,
     {300, 400, 800},
     "what one queue pair of one NIC sustains",
     "one queue pair fills a 400 Gb/s ConnectX-7 with large writes; its ends are judgement"},
    {Id::nic_messages,
     "nic.messages",
     Unit::mega,
     {2.5, 8, 20},
     "messages that one queue pair sends",
     "8.0 at 256 bytes on ConnectX-5 (perftest pull 98), 2.5 on another with reads (UCX issue 8852); the high end is "
     "judgement"},
    {Id::round_trip,
     "wire.round_trip",
     Unit::us,
     {3, 14, 20},
     "from posting a read or write to its completion, beside the bytes' own time",
     "one read of 512 KiB at a time moved 21.1 GB/s of a 400G NIC (torchcomms pull 2637); perftest's idle 3 is the low "
     "end"},
    {Id::nic_loop,
     "nic.loop",
     Unit::share,
     {0.70, 0.85, 1.0},
     "of a port of 400 Gb/s or more, out and in again through its NIC at once",
     "judgement: one such loop was reported at three quarters of the port; slower ports fill (ConnectX-5: 12.5 GB/s)"},
    {Id::pcie_dma,
     "pcie.dma",
     Unit::share,
     {0.80, 0.87, 0.91},
     "of a PCIe link, for a device's DMA in 256-byte packets",
     "256/(256+24) less link-layer traffic; measured 54.3 of 63 (p2pmark, Gen5), 14.3 of 15.75 (V100, ConnectX-6)"},
    {Id::pcie_copy,
     "pcie.copy",
     Unit::share,
     {0.80, 0.88, 0.90},
     "of a Gen5 link or faster, for a GPU's copy engine",
     "55.4 of 63 GB/s measured on H200; Azure's health check asks 52 of H100"},
    {Id::pcie_copy_old,
     "pcie.copy_old",
     Unit::share,
     {0.76, 0.82, 0.86},
     "of a Gen4 link or slower, for a copy engine",
     "24.8 of 31.5 GB/s (A100), 26.3 (RTX 4090: nvbandwidth issue 15), 12 of 15.75 (V100: BaM issue 54)"},
    {Id::pcie_64_bytes,
     "pcie.64_bytes",
     Unit::share,
     {0.60, 0.70, 0.73},
     "of a PCIe link below an Intel root complex, for traffic between peers",
     "the root complex cuts packets to 64 bytes: 64/(64+24); NCCL's 12/1.2 of 15.75 is the low end"},
    {Id::gpu_read_old,
     "gpu.read_old",
     Unit::gbs,
     {3.5, 6.1, 10},
     "a NIC's reads of a GPU before Ampere through a root complex",
     "6.1 GB/s on V100 with EPYC 7452; NCCL sends through the host there for that reason"},
    {Id::node,
     "cross.node",
     Unit::gbs,
     {17, 27, 44},
     "one flow between host bridges of an Intel or unknown socket",
     "between UCX's 17 GB/s and what 64-byte packets leave of Gen5: expected is their geometric mean"},
    {Id::sys_unknown,
     "cross.sys",
     Unit::gbs,
     {10, 15.5, 22},
     "one flow between peers across sockets of unknown make, or unknown ordering",
     "15 to 16 GB/s is the usual plateau; the ends are NCCL's for Skylake and Sapphire Rapids"},
    {Id::sys_intel_old, "cross.sys.broadwell", Unit::gbs, {3, 6, 9}, "the same, Xeon up to Broadwell", kNcclTopo},
    {Id::sys_intel_skylake,
     "cross.sys.skylake",
     Unit::gbs,
     {8, 10, 14},
     "the same, Xeon Skylake to Ice Lake",
     "NCCL 2.2x, graph/topo.h; 11 GB/s measured with A30 (perftest issue 241)"},
    {Id::sys_intel_sapphire,
     "cross.sys.sapphire",
     Unit::gbs,
     {15, 22, 30},
     "the same, Sapphire Rapids, relaxed ordering",
     kNcclTopo},
    {Id::sys_intel_emerald,
     "cross.sys.emerald",
     Unit::gbs,
     {22, 40, 48},
     "the same, Emerald Rapids or newer, relaxed ordering",
     "NCCL 2.2x, graph/topo.h; UCX pull 10955: over 40 with relaxed ordering, 16 without"},
    {Id::sys_amd_zen12, "cross.sys.zen2", Unit::gbs, {10, 16, 22}, "the same, EPYC 7001 and 7002", kNcclTopo},
    {Id::sys_amd_zen34,
     "cross.sys.zen4",
     Unit::gbs,
     {16, 22, 26},
     "the same, EPYC 7003 and 9004",
     "NCCL's 24; 21.8 to 22.6 measured between A6000 of two sockets (nvbandwidth issue 50)"},
    {Id::sys_amd_zen5, "cross.sys.zen5", Unit::gbs, {16, 32, 45}, "the same, EPYC 9005", kNcclTopo},
    {Id::sys_arm, "cross.sys.arm", Unit::gbs, {4, 6, 22}, "the same, Arm", kNcclTopo},
    {Id::sys_power9, "cross.sys.power9", Unit::gbs, {20, 32, 40}, "the same, POWER9", kNcclTopo},
    {Id::sys_zhaoxin, "cross.sys.zhaoxin", Unit::gbs, {5, 6, 9}, "the same, Zhaoxin", kNcclTopo},
    {Id::strict,
     "order.strict",
     Unit::gbs,
     {14, 15.5, 17},
     "one flow through a root complex with strict ordering",
     "about 16 GB/s on Emerald Rapids (UCX pull 10955), about 15 on 400G NICs (Mooncake issue 1459)"},
    {Id::strict_amd,
     "order.strict_amd",
     Unit::gbs,
     {15, 18.75, 20},
     "the same on EPYC",
     "150 Gb/s without, 200 with relaxed ordering (UCX pull 8062)"},
    {Id::strict_vm,
     "order.strict_vm",
     Unit::gbs,
     {8, 10.5, 15.5},
     "one flow into GPU memory in a virtual machine, strict ordering",
     "84 Gb/s with ACS and ATS, near 400 with relaxed ordering"},
    {Id::socket_memory,
     "socket.memory",
     Unit::share,
     {0.5, 0.7, 0.85},
     "of the links between sockets, for DMA to host memory",
     "judgement: coherence traffic takes the rest"},
    {Id::memory_nic,
     "memory.nic",
     Unit::share,
     {0.25, 0.33, 0.80},
     "of a socket's memory channels, for all NICs that move its memory together",
     "192 GB/s of two Sapphire Rapids sockets (p5en), 230 of two Emerald Rapids (p6-b300): Mooncake's page on EFA"},
    {Id::memory_copy,
     "memory.copy",
     Unit::share,
     {0.50, 0.80, 0.90},
     "of a socket's memory channels, for copies by GPUs or CPUs",
     "STREAM reaches 0.5 in virtual machines (155 GB/s on p5en) and 0.8 on bare metal (EPYC 7001, Xeon 8470)"},
    {Id::stage,
     "stage.host",
     Unit::share,
     {0.45, 0.67, 0.95},
     "of the slowest stage, for bytes that are staged in host memory",
     "8.1 of 12.2 GB/s (UCX issue 11121); a pipeline without gaps is the high end"},
    {Id::copy_core,
     "copy.core",
     Unit::gbs,
     {4, 10, 18},
     "a copy by one CPU core, memory to memory",
     "12 on Skylake, about half more on Broadwell (AnandTech 11544, one thread); 15.9 here: calibrate with fairway "
     "bench"},
    {Id::copy_sockets,
     "copy.sockets",
     Unit::gbs,
     {0.8, 2.5, 6},
     "one TCP connection within a host",
     "judgement: 2 to 4 GB/s are usual; calibrate with fairway bench"},
    {Id::nvlink_sm,
     "nvlink.sm",
     Unit::share,
     {0.79, 0.82, 0.84},
     "of NVLink, for loads and stores of kernels",
     "128-byte packets; 370 of 450 measured on H200; NCCL's 20 of 25 and 20.6 of 25"},
    {Id::nvlink_copy,
     "nvlink.copy",
     Unit::share,
     {0.82, 0.88, 0.93},
     "of NVLink 3 and newer, for copy engines",
     "256-byte packets; 396.7 of 450 measured on H200 at 1 GiB, 371 to 377 on H100 at 40 MB"},
    {Id::nvlink_copy_old,
     "nvlink.copy_old",
     Unit::share,
     {0.90, 0.94, 0.96},
     "of NVLink 1 and 2, for copy engines",
     "47.9 of 50 (V100), 18.3 of 20 (P100): Dell's measurements on C4130"},
    {Id::xgmi,
     "xgmi",
     Unit::share,
     {0.70, 0.75, 0.80},
     "of xGMI between GPUs",
     "48 of 64 GB/s on MI300X: AMD's ROCm blog"},
    {Id::c2c,
     "c2c",
     Unit::share,
     {0.75, 0.85, 0.93},
     "of NVLink-C2C between CPU and GPU memory",
     "judgement: no measurement of our own; the ends are 340 and 420 of 450 GB/s"},
    {Id::latency_pix, "latency.pix", Unit::us, {0.9, 1.5, 2}, "one way, a small write between NIC and GPU", kTextbook},
    {Id::latency_pxb, "latency.pxb", Unit::us, {1.1, 1.8, 2.5}, "the same over several switches", kTextbook},
    {Id::latency_phb, "latency.phb", Unit::us, {1.3, 2.2, 3}, "the same through a host bridge", kTextbook},
    {Id::latency_node, "latency.node", Unit::us, {1.5, 3, 6}, "the same between host bridges", kTextbook},
    {Id::latency_sys, "latency.sys", Unit::us, {2, 5, 15}, "the same across sockets", kTextbook},
    {Id::latency_nvlink,
     "latency.nvlink",
     Unit::us,
     {0.6, 0.75, 1.5},
     "one way, a flag between GPUs",
     "0.74 us measured on H200 through NVSwitch"},
    {Id::latency_host,
     "latency.host",
     Unit::us,
     {0.5, 0.9, 1.5},
     "a device's small write to host memory",
     "judgement: a PCIe round trip is near 1 us"},
    {Id::latency_wire,
     "latency.wire",
     Unit::us,
     {0.3, 0.7, 2},
     "NIC to NIC through one switch",
     "judgement: 0.1 to 0.2 us a switch on InfiniBand, 0.4 to 0.8 on Ethernet, and the ports"},
});

constexpr bool is_in_order() {
  if (kTable.size() != kConstantCount) return false;
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    const auto& r = kTable[i];
    if (static_cast<std::size_t>(r.id) != i) return false;
    if (!(0 < r.range.low && r.range.low <= r.range.expected && r.range.expected <= r.range.high)) return false;
    if (r.unit == Unit::share && r.range.high > 1.0) return false;
  }
  return true;
}
static_assert(is_in_order(), "a row for each constant, in its order, with low <= expected <= high");

}  // namespace

std::string_view to_string(Unit unit) {
  switch (unit) {
    case Unit::share: return "share";
    case Unit::gbs: return "GB/s";
    case Unit::gbps: return "Gb/s";
    case Unit::us: return "us";
    case Unit::mega: return "M/s";
  }
  return "?";
}

std::span<const ConstantRow> constant_table() {
  return kTable;
}

const ConstantRow& row_of(ConstantId id) {
  return kTable[static_cast<std::size_t>(id)];
}

std::optional<ConstantId> constant_from(std::string_view name) {
  for (const auto& row : kTable) {
    if (row.name == name) return row.id;
  }
  return {};
}

Constants::Constants() {
  for (const auto& row : kTable) values_[static_cast<std::size_t>(row.id)] = row.range;
}

}  // namespace fairway::predict
