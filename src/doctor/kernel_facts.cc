#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "doctor/gather.h"
#include "topology/file.h"
#include "topology/text.h"

// Settings of the kernel and limits of this process, from /proc and /sys.
namespace fairway::doctor {
namespace {

namespace text = topology::text;
using topology::list_directory;
using topology::read_file;

constexpr std::size_t kMaxEntries = 65536;

// One small file as a fact.
void take(const std::string& path, const std::string& shown, const std::string& name, Facts& facts) {
  const auto content = read_file(path, 1U << 20);
  if (!content) return facts.miss(name, content.status().message());
  facts.set(name, std::string(text::trim(*content)), shown);
}

void read_limits(const std::string& root, Facts& facts) {
  const auto path = root + "/proc/self/limits";
  const auto content = read_file(path, 65536);
  if (!content) return facts.miss("limit", content.status().message());
  read_pasted(*content, "/proc/self/limits", {}, facts);
}

// Whether this process has CAP_IPC_LOCK where it counts: in the first user namespace.
void read_capabilities(const std::string& root, Facts& facts) {
  constexpr std::uint64_t kIpcLock = 1ULL << 14U;  // capability.h: CAP_IPC_LOCK
  const auto status = read_file(root + "/proc/self/status", 65536);
  const auto map = read_file(root + "/proc/self/uid_map", 4096);
  if (!status) return facts.miss("limit.ipc_lock", status.status().message());
  for (const auto line : text::lines(*status)) {
    if (!line.starts_with("CapEff:")) continue;
    const auto words = map ? text::words(*map) : std::vector<std::string_view>{};
    const bool first = words.size() == 3 && words[0] == "0" && words[1] == "0" && words[2] == "4294967295";
    const bool has = (text::to_hex(text::trim(line.substr(7))).value_or(0) & kIpcLock) != 0;
    facts.set("limit.ipc_lock", has && first ? "yes" : "no", "/proc/self/status, CapEff");
  }
}

void read_shm(Facts& facts) {
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) != 0) return facts.miss("host.dev_shm", "there is no /dev/shm");
  facts.set("host.dev_shm.bytes", std::to_string(static_cast<std::uint64_t>(shm.f_blocks) * shm.f_frsize), "/dev/shm");
}

void read_modules(const std::string& root, Facts& facts) {
  const auto folder = root + "/sys/module";
  const auto names = list_directory(folder, kMaxEntries);
  if (!names) {
    facts.miss("kernel.modules", names.status().message());
    facts.miss("kernel.module", names.status().message());
    return;
  }
  facts.set("kernel.modules", std::to_string(names->size()), "/sys/module");
  for (const auto& name : *names) {
    static const std::set<std::string> kOfInterest = {"nvidia",    "nvidia_peermem", "nv_peer_mem", "ib_core",
                                                      "ib_uverbs", "mlx5_ib",        "mlx5_core",   "rdma_rxe",
                                                      "gdrdrv",    "amdgpu",         "efa",         "efa_nv_peermem"};
    if (!kOfInterest.contains(name)) continue;
    const auto version = read_file(folder + "/" + name + "/version", 4096);
    facts.set("kernel.module." + name, version ? std::string(text::trim(*version)) : "loaded", "/sys/module/" + name);
    const auto holders = list_directory(folder + "/" + name + "/holders", kMaxEntries);
    if (!holders) continue;
    std::string list;
    for (const auto& holder : *holders) list += (list.empty() ? "" : " ") + holder;
    facts.set("kernel.holders." + name, list, "/sys/module/" + name + "/holders");
  }
  const auto peers = list_directory(root + "/sys/kernel/mm/memory_peers", kMaxEntries);
  if (peers) {
    for (const auto& peer : *peers)
      facts.set("kernel.memory_peers." + peer, "there", "/sys/kernel/mm/memory_peers/" + peer);
  }
}

void read_gpu_driver(const std::string& root, Facts& facts) {
  const auto driver = read_file(root + "/proc/driver/nvidia/version", 65536);
  if (!driver) return;
  facts.set("gpu.kernel_module", driver->find("Open Kernel Module") != std::string::npos ? "open" : "proprietary",
            "/proc/driver/nvidia/version");
}

void read_huge_pages(const std::string& root, Facts& facts) {
  const auto nodes = list_directory(root + "/sys/devices/system/node", kMaxEntries);
  if (!nodes) return facts.miss("memory.hugepages", nodes.status().message());
  for (const auto& node : *nodes) {
    if (!node.starts_with("node")) continue;
    const auto folder = "/sys/devices/system/node/" + node + "/hugepages";
    const auto sizes = list_directory(root + folder, 64);
    if (!sizes) continue;
    for (const auto& size : *sizes) {
      take(root + folder + "/" + size + "/nr_hugepages", folder + "/" + size + "/nr_hugepages",
           fmt::format("memory.hugepages.{}.{}", node, size), facts);
    }
  }
}

// The governor that most CPUs have, and the slowest state to wake from that any may enter.
void read_cpus(const std::string& root, Facts& facts) {
  const std::string folder = "/sys/devices/system/cpu/cpu0";
  take(root + folder + "/cpufreq/scaling_governor", folder + "/cpufreq/scaling_governor", "cpu.governor", facts);
  std::uint64_t deepest = 0;
  const auto states = list_directory(root + folder + "/cpuidle", 64);
  if (!states) return;
  for (const auto& state : *states) {
    const auto disabled = read_file(root + folder + "/cpuidle/" + state + "/disable", 64);
    const auto latency = read_file(root + folder + "/cpuidle/" + state + "/latency", 64);
    if (!latency || (disabled && text::trim(*disabled) == "1")) continue;
    deepest = std::max(deepest, text::to_unsigned(text::trim(*latency)).value_or(0));
  }
  facts.set("cpu.deepest_idle_us", std::to_string(deepest), folder + "/cpuidle");
}

// Who answers for which address.
void read_arp(const std::string& root, const std::string& interface, Facts& facts) {
  for (const char* setting : {"arp_ignore", "arp_announce", "arp_filter"}) {
    const auto path = fmt::format("/proc/sys/net/ipv4/conf/{}/{}", interface, setting);
    take(root + path, path, fmt::format("sysctl.net.ipv4.conf.{}.{}", interface, setting), facts);
  }
}

void read_interfaces(const std::string& root, const topology::Machine& machine, Facts& facts) {
  read_arp(root, "all", facts);
  for (const auto& interface : machine.interfaces) {
    read_arp(root, interface.name, facts);
    const auto folder = "/sys/class/net/" + interface.name;
    take(root + folder + "/statistics/tx_bytes", folder + "/statistics/tx_bytes",
         fmt::format("net.{}.tx_bytes", interface.name), facts);
    take(root + folder + "/qos/trust", folder + "/qos/trust", fmt::format("net.{}.trust", interface.name), facts);
  }
  for (const auto& device : machine.rdma) {
    const auto path = fmt::format("/sys/class/infiniband/{}/tc/1/traffic_class", device.name);
    const auto content = read_file(root + path, 4096);
    if (!content) continue;
    // "Global tclass=106", or a number alone.
    auto words = std::string(text::trim(*content));
    if (const auto equals = words.rfind('='); equals != std::string::npos) words.erase(0, equals + 1);
    facts.set(fmt::format("rdma.{}.traffic_class", device.name), words, path);
  }
}

}  // namespace

void read_kernel_facts(const std::string& root, const topology::Machine& machine, Facts& facts) {
  take(root + "/proc/cmdline", "/proc/cmdline", "kernel.cmdline", facts);
  take(root + "/proc/sys/kernel/numa_balancing", "/proc/sys/kernel/numa_balancing", "kernel.numa_balancing", facts);
  read_limits(root, facts);
  read_capabilities(root, facts);
  if (root.empty()) read_shm(facts);
  read_modules(root, facts);
  read_gpu_driver(root, facts);
  read_huge_pages(root, facts);
  read_cpus(root, facts);
  read_interfaces(root, machine, facts);
}

}  // namespace fairway::doctor
