// size: one table of what lines of outputs begin with, and the words that tell them
#include <algorithm>
#include <array>

#include "topology/commands/command_text.h"
#include "topology/output.h"
#include "topology/text.h"

// What a line is part of, by its words alone.
namespace fairway::topology {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

bool has(std::string_view line, std::string_view part) {
  return line.find(part) != line.npos;
}

// Of most lines no more is needed.
std::string_view first_word(std::string_view line) {
  const auto begin = line.find_first_not_of(" \t");
  if (begin == line.npos) return {};
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

// "Mar 03 10:15:23 node1 systemd[1]: Started foo.": of other programs, in the same file.
bool is_syslog_line(std::string_view line) {
  if (line.size() < 20 || !is_upper(line[0]) || !is_lower(line[1]) || line[3] != ' ') return false;
  const auto parts = text::words(line.substr(0, 100));
  return parts.size() > 4 && parts[0].size() == 3 && text::to_u32(parts[1]) && parts[2].size() == 8 &&
         parts[2][2] == ':' && parts[2][5] == ':' && parts[4].ends_with(':');
}

// "[    8.311209] ", "[Tue Mar  3 10:15:22 2026] ", "Mar  3 10:15:22 node kernel: "
bool is_kernel_line(std::string_view line) {
  if (line.starts_with('[')) {
    const auto close = line.find(']');
    // UCX's own lines: "[1700000000.123456] [node:1:0] ucp_context.c:1071 UCX  WARN ..."
    if (close == line.npos || close > 40 || line.substr(close).find(" UCX  ") != line.npos) return false;
    const auto inside = text::trim(line.substr(1, close - 1));
    if (inside.empty()) return false;
    if (is_digit(inside.front())) {
      const auto dot = inside.find('.');
      return dot != inside.npos && dot + 1 < inside.size() &&
             std::ranges::all_of(inside, [](char c) { return is_digit(c) || c == '.'; });
    }
    const auto parts = text::words(inside);
    return parts.size() == 5 && parts[3].size() == 8 && parts[3][2] == ':';
  }
  const auto at = line.substr(0, 100).find(" kernel: ");
  if ((at != line.npos && at > 0) || is_syslog_line(line)) return true;
  return has(line, "NVRM: Xid (PCI:") || has(line, ": SXid (PCI:") || first_word(line) == "NVRM:";
}

bool is_nccl_line(std::string_view line) {
  return has(line, " NCCL INFO ") || has(line, " NCCL WARN ") || line.starts_with("NCCL version ");
}

bool is_interface_state(std::string_view word) {
  constexpr std::string_view kLinkStates[] = {"UP",         "DOWN",   "UNKNOWN", "DORMANT", "LOWERLAYERDOWN",
                                              "NOTPRESENT", "TESTING"};
  return std::ranges::find(kLinkStates, word) != std::end(kLinkStates);
}

// "0000:2c:00.0 Ethernet controller: ...", without the domain, or "2c:00.0 0200: 15b3:1021".
bool is_lspci_line(std::string_view line) {
  if (line.size() < 9 || !(is_digit(line[0]) || (line[0] >= 'a' && line[0] <= 'f'))) return false;
  const auto blank = line.find(' ');
  if (blank == line.npos || blank < 7 || blank > 16 || !BusId::parse(line.substr(0, blank))) return false;
  // Bus ids head the tables of amd-smi too, several in a line.
  const auto parts = text::words(line.substr(blank));
  return line.find(':', blank) != line.npos && !parts.empty() && !BusId::parse(parts.front());
}

// "3: eth0: <BROADCAST,UP> mtu 1500"
bool is_ip_link_line(std::string_view line) {
  if (line.empty() || !is_digit(line.front()) || !has(line, ": <")) return false;
  const auto parts = text::words(line);
  return parts.size() > 3 && parts[0].ends_with(':') && text::to_u32(parts[0].substr(0, parts[0].size() - 1)) &&
         parts[1].ends_with(':') && parts[2].starts_with('<');
}

// "eth0  UP  10.0.0.1/24"; `ip -br link` has a MAC and flags behind the state.
bool is_ip_brief_line(std::string_view line) {
  const auto first = first_word(line);
  if (!is_interface_state(first_word(line.substr(std::min(line.find(first) + first.size(), line.size())))))
    return false;
  const auto parts = text::words(line);
  if (parts.size() < 2 || !is_interface_state(parts[1]) || parts[0].ends_with(':') || line.front() == ' ') return false;
  return parts.size() == 2 || has(parts[2], "/") || parts.back().ends_with('>');
}

// "kernel.numa_balancing = 1"
bool is_sysctl_line(std::string_view line) {
  if (line.empty() || !is_lower(line.front())) return false;
  const auto equals = line.find('=');
  if (equals == line.npos || equals < 4) return false;
  const auto name = text::trim(line.substr(0, equals));
  return has(name, ".") && std::ranges::all_of(name, [](char c) {
           return is_lower(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
         });
}

// The folders of /proc/sys.
bool is_kernel_setting(std::string_view line) {
  constexpr std::string_view kFolders[] = {"kernel.", "vm.", "net.", "fs.", "dev.", "user."};
  return is_sysctl_line(line) &&
         std::ranges::any_of(kFolders, [line](std::string_view folder) { return line.starts_with(folder); });
}

// "NCCL_DEBUG=INFO", "export UCX_TLS=tcp", "NCCL_NET=IB ./all_reduce_perf"; no sentence that begins so.
bool is_variable_of(std::string_view line, bool any) {
  for (const std::string_view word : {"export ", "declare -x ", "ENV "}) {
    if (line.starts_with(word)) line = text::trim(line.substr(word.size()));
  }
  const auto equals = line.find('=');
  if (equals == line.npos || equals < 2) return false;
  const auto name = line.substr(0, equals);
  const bool is_name = is_upper(name.front()) && std::ranges::all_of(name, [](char c) {
                         return is_upper(c) || is_lower(c) || is_digit(c) || c == '_';
                       });
  if (!is_name) return false;
  if (!name.starts_with("NCCL_") && !name.starts_with("UCX_") && !name.starts_with("FI_")) return any;
  auto rest = line;
  while (!rest.empty() && first_word(rest).find('=') != rest.npos) {  // past the assignments, and quoted blanks
    const auto word = first_word(rest);
    const auto quote = word.find_first_of("\"'");
    const auto close = quote == word.npos ? rest.npos : rest.find(word[quote], quote + 1);
    rest = text::trim(rest.substr(close == rest.npos ? word.size() : close + 1));
  }
  return rest.empty() || rest.front() == '#' || rest.front() == ';' || rest.front() == '&' || rest.front() == '\\' ||
         starts_a_job(rest);
}

// The kernel's options on one line.
bool is_cmdline(std::string_view line) {
  if (line.starts_with("BOOT_IMAGE=") || line.starts_with("root=")) return true;
  if (!has(line, "iommu=") && !has(line, " root=")) return false;
  const auto parts = text::words(line);
  return std::ranges::all_of(
      parts, [](std::string_view word) { return is_lower(word.front()) && word.find_first_of("|:;`$") == word.npos; });
}

// "nvidia_peermem  16384  0" of a list without its heading.
bool is_module_line(std::string_view line) {
  constexpr std::string_view kModules[] = {"nvidia",  "nvidia_peermem", "nvidia_uvm", "nv_peer_mem",
                                           "ib_core", "ib_uverbs",      "mlx5_core",  "mlx5_ib",
                                           "gdrdrv",  "rdma_cm",        "amdgpu",     "efa"};
  if (std::ranges::find(kModules, first_word(line)) == std::end(kModules)) return false;
  const auto parts = text::words(line);
  return (parts.size() == 3 || parts.size() == 4) && text::to_unsigned(parts[1]) && text::to_u32(parts[2]);
}

// "rx_discards_phy: 5512201" of `ethtool -S eth0 | grep discard`.
bool is_driver_counter(std::string_view line) {
  if (!line.starts_with("rx") && !line.starts_with("tx") && !line.starts_with("link_down_events")) return false;
  const auto colon = line.find(": ");
  if (colon == line.npos || colon < 5 || !text::to_unsigned(text::trim(line.substr(colon + 2)))) return false;
  return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
}

// "[1700000000.123456] [node1:2211:0]  ucp_context.c:1071 UCX  WARN  network device ..."
bool is_ucx_line(std::string_view line) {
  const auto at = line.find(" UCX  ");
  if (at == line.npos || line.front() != '[') return false;
  const auto level = first_word(line.substr(at + 6));
  constexpr std::string_view kLevels[] = {"FATAL", "ERROR", "WARN", "DIAG", "INFO", "DEBUG", "TRACE", "REQ", "DATA"};
  return std::ranges::find(kLevels, level) != std::end(kLevels);
}

// "index, name, bus_id" of `hl-smi -Q`; nvidia-smi's are pci.bus_id and gpu_bus_id.
bool is_hl_query(std::string_view line) {
  if (!has(line, "bus_id") || !has(line, ",")) return false;
  const auto cells = text::split(line, ',');
  const auto named = [&](std::string_view name) {
    return std::ranges::any_of(cells, [&](auto cell) { return text::trim(cell) == name; });
  };
  return named("bus_id") && (named("index") || named("module_id") || named("name") || named("uuid"));
}

// The heading of df in the languages that people paste.
bool is_df_heading(std::string_view line) {
  if (!has(line, "%")) return false;
  for (const auto* end : {"Mounted on", "Eingehängt auf", "Monté sur", "Montado en", "Montado em", "Montato su",
                          "Gekoppeld op", "Смонтировано в", "マウント位置", "挂载点", "마운트위치"}) {
    if (line.ends_with(end)) return true;
  }
  return false;
}
bool is_df_row(std::string_view line) {
  if (!has(line, "% /")) return false;
  const auto parts = text::words(line);
  return parts.size() == 6 && parts[5].starts_with('/') && parts[4].ends_with('%') &&
         text::to_u32(parts[4].substr(0, parts[4].size() - 1));
}

struct Start {
  std::string_view words;
  OutputKind kind;
};

// How lines of outputs begin, after blanks.
constexpr auto kStarts = std::to_array<Start>({
    {"hca_id:", OutputKind::ibv_devinfo},
    {"Infiniband device '", OutputKind::ibstatus},
    {"CA '", OutputKind::ibstat},
    {"Ethernet Channel Bonding Driver", OutputKind::bonding},
    {"Bonding Mode:", OutputKind::bonding},
    {"==============NVSMI LOG", OutputKind::smi_query},
    {"| NVIDIA-SMI ", OutputKind::smi_table},
    {"NVRM version:", OutputKind::driver_version},
    {"Settings for ", OutputKind::ethtool},
    {"NIC statistics:", OutputKind::ethtool_statistics},
    {"PyTorch version:", OutputKind::collect_env},
    {"Collecting environment information", OutputKind::collect_env},
    {"Versions of relevant libraries:", OutputKind::collect_env},
    {"CPU op-mode(s):", OutputKind::lscpu},
    {"Architecture:  ", OutputKind::lscpu},
    {"NUMA node0 CPU(s):", OutputKind::lscpu},
    {"MemTotal: ", OutputKind::meminfo},
    {"HugePages_Total:", OutputKind::meminfo},
    {"Max locked memory", OutputKind::limits},
    {"Limit                     Soft", OutputKind::limits},
    {"max locked memory", OutputKind::ulimit},
    {"core file size  ", OutputKind::ulimit},
    {"Device #", OutputKind::mlxconfig},
    {"Operational Info", OutputKind::mlxlink},
    {"Troubleshooting Info", OutputKind::mlxlink},
    {"Physical Counters and BER Info", OutputKind::mlxlink},
    {"# Topology file: generated on", OutputKind::ibnetdiscover},
    {"ACCESS TABLE:", OutputKind::amd_smi},
    {"WEIGHT TABLE:", OutputKind::amd_smi},
    {"HOPS TABLE:", OutputKind::amd_smi},
    {"LINK TYPE TABLE:", OutputKind::amd_smi},
    {"NUMA BW TABLE:", OutputKind::amd_smi},
    {"mx-smi  version:", OutputKind::mx_smi},
    {"| MX-SMI ", OutputKind::mx_smi},
    {"| HL-SMI Version", OutputKind::hl_smi},
    {"| AIP ", OutputKind::hl_smi},
    {"| npu-smi ", OutputKind::npu_smi},
    {"| NPU   Name ", OutputKind::npu_smi},
    {"DCBX mode:", OutputKind::qos},
    {"Priority trust state:", OutputKind::qos},
    {"PFC configuration:", OutputKind::qos},
    {"# Memory domain:", OutputKind::ucx_info},
    {"#      Transport:", OutputKind::ucx_info},
    {"# Library version:", OutputKind::ucx_info},
    {"provider: ", OutputKind::fi_info},
    {"/sys/kernel/iommu_groups/", OutputKind::iommu_types},
    {"LnkCap:\t", OutputKind::lspci},
    {"LnkSta:\t", OutputKind::lspci},
    {"LnkCap: Port", OutputKind::lspci},
    {"LnkSta: Speed", OutputKind::lspci},
    {"[P2P (Peer-to-Peer) GPU Bandwidth", OutputKind::p2p_test},
    {"P2P Connectivity Matrix", OutputKind::p2p_test},
    {"Unidirectional P2P=", OutputKind::p2p_test},
    {"Bidirectional P2P=", OutputKind::p2p_test},
    {"P2P=Disabled ", OutputKind::p2p_test},
    {"P2P=Enabled ", OutputKind::p2p_test},
    {"# OSU ", OutputKind::osu},
    {"# Benchmarking ", OutputKind::imb},
    {"initializing CUDA", OutputKind::perftest},
    {"Couldn't allocate MR", OutputKind::perftest},
    {"Picking device No.", OutputKind::perftest},
    {"Picking GPU number", OutputKind::perftest},
    {"* Waiting for client to connect", OutputKind::perftest},
    {"WARNING: BW peak won't be measured", OutputKind::perftest},
    {"# nThread ", OutputKind::nccl_tests},
    {"# Collective test starting:", OutputKind::nccl_tests},
    {"nvbandwidth Version", OutputKind::nvbandwidth},
    {"Final:  ", OutputKind::ucx_perftest},
    {"[thread ", OutputKind::ucx_perftest},
    {"|    Stage  ", OutputKind::ucx_perftest},
    {"[ ID] Interval", OutputKind::iperf},
    {"Connecting to host ", OutputKind::iperf},
    {"Server listening on ", OutputKind::iperf},
    {"Block Size (B)", OutputKind::nixlbench},
    {"NIXLBench", OutputKind::nixlbench},
});

// Words that stand somewhere in a line of an output.
constexpr auto kParts = std::to_array<Start>({
    {" ROCm System Management Interface ", OutputKind::rocm_smi},
    {" MetaX System Management Interface ", OutputKind::mx_smi},
    {")==>", OutputKind::iblinkinfo},
    {"Intel(R) MPI Benchmarks", OutputKind::imb},
    {" BW Test", OutputKind::perftest},
    {"(row) -> GPU(column)", OutputKind::nvbandwidth},
    {"(row) <- GPU(column)", OutputKind::nvbandwidth},
    {"(row) <-> GPU(column)", OutputKind::nvbandwidth},
    {"bytes_per_second", OutputKind::bench},
    {"overhead (usec)", OutputKind::ucx_perftest},
});

OutputKind kind_of_rdma_line(std::string_view line) {
  if (!line.starts_with("link ") && !has(line, ": state ")) return OutputKind::unknown;
  const auto parts = text::words(line);
  // `rdma statistic -p` has its counters below.
  if (parts.size() == 2 && has(parts[1], "/") && text::to_u32(parts[1].substr(parts[1].rfind('/') + 1)))
    return OutputKind::rdma_statistic;
  if (parts.size() > 3 && parts[0] == "link" && has(parts[1], "/")) {
    return parts[2] == "state" || has(line, " physical_state ") ? OutputKind::rdma_link
           : text::to_unsigned(parts[3])                        ? OutputKind::rdma_statistic
                                                                : OutputKind::unknown;
  }
  // Before iproute2 5.0: "1/1: mlx5_0/1: state ACTIVE".
  if (parts.size() > 3 && parts[0].ends_with(':') && parts[1].ends_with(':') && parts[2] == "state" &&
      has(parts[1], "/"))
    return OutputKind::rdma_link;
  return OutputKind::unknown;
}

// "GPU: 3" of amd-smi.
bool is_amd_heading(std::string_view line) {
  return line.starts_with("GPU: ") && text::to_u32(line.substr(5));
}

// "module ID  CPU Affinity  NUMA Affinity" of hl-smi.
bool is_hl_heading(std::string_view line) {
  return text::starts_with_nocase(line, "mod") && has(line, "CPU Affinity") && has(line, "NUMA Affinity");
}

// "Switch  24 "S-005442ba00003080"  # ..." and "Ca  2 "H-...""; "[1]  "H-..."[1](...)  # ... lid 4 4xSDR"
bool is_ibnetdiscover_line(std::string_view line) {
  if (!has(line, " \"S-") && !has(line, " \"H-") && !has(line, "\t\"S-") && !has(line, "\t\"H-")) return false;
  return line.starts_with("Switch") || line.starts_with("Ca") || (line.starts_with('[') && has(line, "# "));
}

OutputKind kind_by_words(std::string_view line) {
  if (is_amd_heading(line)) return OutputKind::amd_smi;
  // "GPU 00000000:1B:00.0": a log whose heading was left out
  if (line.starts_with("GPU ") && BusId::parse(text::trim(line.substr(4)))) return OutputKind::smi_query;
  if (is_hl_heading(line) || is_hl_query(line)) return OutputKind::hl_smi;
  if ((line.starts_with("CA: ") || line.starts_with("Switch: 0x")) && line.ends_with(':'))
    return OutputKind::iblinkinfo;
  if (is_ibnetdiscover_line(line)) return OutputKind::ibnetdiscover;
  if (has(line, " -> ") && is_sysfs_link(line)) return OutputKind::sysfs_links;
  if (is_sysfs_file(line)) return OutputKind::sysfs_files;
  if (has(line, " ==> ") && has(line, " port ")) return OutputKind::ibdev2netdev;
  if ((has(line, "pci.bus_id") || has(line, "pcie.link.")) && has(line, ",") && !has(line, "--query"))
    return OutputKind::gpu_query;
  if (line.starts_with("# Port ") && has(line, "counters: ")) return OutputKind::perfquery;
  if (line.starts_with("device ") && line.ends_with("node GUID")) return OutputKind::ibv_devices;
  if (has(line, "algbw") && has(line, "busbw")) return OutputKind::nccl_tests;
  if (has(line, "(UUID: GPU-")) return OutputKind::nvlink;
  if (line.starts_with("available: ") && has(line, " nodes (")) return OutputKind::numactl;
  if (is_df_heading(line)) return OutputKind::disk_free;
  if (line.starts_with("Module ") && has(line, "Used by")) return OutputKind::modules;
  if (line.starts_with("Linux ") && (has(line, " SMP") || has(line, "GNU/Linux"))) return OutputKind::uname;
  if (line.starts_with("DEV") && has(line, "PORT") && has(line, "INDEX") && has(line, "GID"))
    return OutputKind::show_gids;
  if (line.starts_with("-[") && has(line, "]-")) return OutputKind::lspci_drawing;
  // A prompt or an escape may stand before the heading's first word.
  const auto gpu0 = line.find("GPU0");
  const bool whole = gpu0 != line.npos && (gpu0 + 4 == line.size() || line[gpu0 + 4] == ' ' || line[gpu0 + 4] == '\t');
  if (whole && !has(line, "(") && text::words(line).size() > 1) return OutputKind::topo_matrix;
  return kind_of_rdma_line(line);
}

}  // namespace

OutputKind kind_of_line(std::string_view line) {
  if (line.empty()) return OutputKind::unknown;
  if (is_kernel_line(line)) return OutputKind::kernel_log;
  if (is_nccl_line(line)) return OutputKind::nccl_log;
  if (is_ucx_line(line)) return OutputKind::ucx_log;
  // `nvidia-smi -q | grep -A 2 Fabric`
  if (line == kFabricHeading) return OutputKind::smi_query;
  if (has(line, "nvidia-fabricmanager.service")) return OutputKind::fabric_manager;
  if (is_lspci_line(line)) return OutputKind::lspci;
  if (is_ip_link_line(line)) return OutputKind::ip_link;
  const auto trimmed = text::trim(line);
  if (trimmed.empty()) return OutputKind::unknown;
  for (const auto& start : kStarts) {
    if (trimmed.front() == start.words.front() && trimmed.starts_with(start.words)) return start.kind;
  }
  for (const auto& part : kParts) {
    if (has(trimmed, part.words)) return part.kind;
  }
  if (is_variable_of(trimmed, false)) return OutputKind::environment;
  if (is_cmdline(trimmed)) return OutputKind::cmdline;
  if (is_kernel_setting(trimmed)) return OutputKind::sysctl;
  if (is_module_line(trimmed)) return OutputKind::modules;
  if (is_ip_brief_line(line) && text::words(line).size() > 2) return OutputKind::ip_brief;
  return kind_by_words(trimmed);
}

OutputKind weak_kind_of_line(std::string_view line) {
  if (line.empty()) return OutputKind::unknown;
  if (is_ip_brief_line(line)) return OutputKind::ip_brief;
  const auto trimmed = text::trim(line);
  if (is_sysctl_line(trimmed)) return OutputKind::sysctl;
  if (is_variable_of(trimmed, true)) return OutputKind::environment;
  if (is_driver_counter(trimmed)) return OutputKind::ethtool_statistics;
  if (is_df_row(trimmed)) return OutputKind::disk_free;
  if (std::ranges::count(trimmed, ',') > 1 && (has(trimmed, "gbps") || has(trimmed, "gbs"))) return OutputKind::rows;
  return OutputKind::unknown;
}

bool is_assignment(std::string_view line) {
  return is_variable_of(line, true) && !is_cmdline(line);
}

OutputKind kind_of_document(std::string_view content) {
  const auto head = text::trim(content.substr(0, 64 * 1024));
  if (head.starts_with('{')) {
    const auto start = head.substr(0, 4096);  // version 1 was named with a space
    if (has(start, "\"fairway-fabric\"") || has(start, "\"fairway fabric\"")) return OutputKind::fabric_snapshot;
    if (has(head, "bytes_per_second")) return OutputKind::bench;
    return OutputKind::snapshot;
  }
  if (head.starts_with('[') && text::trim(head.substr(1)).starts_with('{') && has(head, "bytes_per_second"))
    return OutputKind::bench;
  if (head.starts_with('<')) {
    if (has(head, "<system")) return OutputKind::nccl_xml;
    if (has(head, "<topology")) return OutputKind::hwloc_xml;
  }
  return OutputKind::unknown;
}

bool is_failure(std::string_view line) {
  constexpr std::string_view kWords[] = {"command not found",
                                         ": not found",
                                         "No devices were found",
                                         "No devices found",
                                         "No supported devices",
                                         "Failed to initialize NVML",
                                         "NVIDIA-SMI has failed",
                                         "Failed to run topology matrix",
                                         "No IB devices found",
                                         "Failed to get IB devices list",
                                         "Unable to determine the device handle",
                                         "couldn't communicate with the NVIDIA driver",
                                         ": Permission denied",
                                         ": Operation not permitted",
                                         ": No such file or directory",
                                         ": No such device",
                                         "Cannot get device settings",
                                         "-E- ",  // mlxlink and its kin
                                         "ibwarn: ",
                                         "ibpanic: ",
                                         "pcilib: Cannot",
                                         "Cannot find any working access method",
                                         "fi_getinfo: -",
                                         "Failed to open",
                                         "No AIPs found",
                                         "Error: No device",
                                         "Error 802: system not yet initialized",
                                         "iperf3: error"};
  return std::ranges::any_of(kWords, [line](auto one) { return has(line, one); });
}

}  // namespace fairway::topology
