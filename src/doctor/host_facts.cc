#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "doctor/gather.h"
#include "doctor/netlink.h"
#include "topology/file.h"
#include "topology/text.h"

// Settings and limits of the host: of this one from /proc and /sys, and as commands print them.
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

// ---- as commands print them ----

using topology::Output;

// "kernel.numa_balancing = 1"; of `sysctl -n NAME` and `cat /proc/sys/...` the value alone.
std::string read_sysctl(const Output& output, const Gathered& to) {
  std::string gave;
  std::size_t number = 0;
  std::size_t settings = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto trimmed = text::trim(line);
    if (trimmed.empty()) continue;
    const auto equals = trimmed.find('=');
    std::string name;
    auto value = trimmed;
    if (equals != trimmed.npos) {
      name = text::quote(text::trim(trimmed.substr(0, equals)));
      value = text::trim(trimmed.substr(equals + 1));
    } else if (const auto words = text::words(output.command); !words.empty()) {
      name = text::quote(words.back());
      if (name.starts_with("/proc/sys/")) name = name.substr(10);
      for (auto& c : name) c = c == '/' ? '.' : c;
    }
    if (name.find('.') == std::string::npos) continue;
    const auto fact = name == "vm.nr_hugepages"         ? std::string("memory.hugepages.all.default")
                      : name == "kernel.numa_balancing" ? name
                                                        : "sysctl." + name;
    to.facts.set(fact, text::quote(value, 200), output.at(number));
    if (++settings <= 3) gave += fmt::format("{}{} = {}", gave.empty() ? "" : ", ", name, text::quote(value));
  }
  if (settings > 3) gave += fmt::format(" and {} more", settings - 3);
  return gave;
}

// "Linux node 5.15.0-97-generic #107-Ubuntu SMP ... x86_64 GNU/Linux"
std::string read_uname(const Output& output, const Gathered& to) {
  const auto words = text::words(output.text);
  const bool alone = words.size() == 1 && output.command.find("uname -r") != std::string::npos;
  if (words.size() < 3 && !alone) return {};
  const auto release = text::quote(alone ? words[0] : words[2]);
  to.facts.set("kernel.release", release, output.at(1));
  return "kernel " + release;
}

namespace {

// "64M" of df -h, "65536" in the heading's blocks.
std::optional<double> size_of(std::string_view word, double block) {
  const auto number = text::leading_double(word);
  if (!number) return {};
  constexpr std::string_view kUnits = "KMGTP";
  const auto unit = kUnits.find(word.back());
  double scale = unit == kUnits.npos ? block : 1;
  for (std::size_t i = 0; unit != kUnits.npos && i <= unit; ++i) scale *= 1024;
  return *number * scale;
}

}  // namespace

// df's row of /dev/shm.
std::string read_disk_free(const Output& output, const Gathered& to) {
  double block = 1024;
  std::size_t number = 0;
  std::size_t rows = 0;
  std::string gave;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto words = text::words(line);
    if (words.size() < 6) continue;
    // The heading, in any language.
    if (!words.back().starts_with('/')) {
      for (const auto word : words) block = word.starts_with("1B-") ? 1 : word.starts_with("1M-") ? 1 << 20 : block;
      continue;
    }
    ++rows;
    if (words.back() != "/dev/shm") continue;
    const auto size = size_of(words[words.size() - 5], block);
    const auto free = size_of(words[words.size() - 3], block);
    if (!size || !free) continue;
    to.facts.set("host.dev_shm.bytes", fmt::format("{:.0f}", *size), output.at(number));
    to.facts.set("host.dev_shm.free_bytes", fmt::format("{:.0f}", *free), output.at(number));
    gave = fmt::format("/dev/shm of {:.0f} MiB, {:.0f} MiB free", *size / (1 << 20), *free / (1 << 20));
  }
  if (gave.empty() && rows > 0) gave = fmt::format("{} file systems, /dev/shm not among them", rows);
  return gave;
}

// "/sys/kernel/iommu_groups/31/type:DMA-FQ"
std::string read_iommu_types(const Output& output, const Gathered& to) {
  std::map<std::string, std::size_t> types;
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto colon = line.rfind(':');
    const auto parts = text::split(line.substr(0, colon), '/');
    if (colon == line.npos || parts.size() < 6 || parts[3] != "iommu_groups" || parts[5] != "type") continue;
    const auto type = text::quote(text::trim(line.substr(colon + 1)));
    to.facts.set("iommu.group." + text::quote(parts[4]), type, output.at(number));
    ++types[type];
  }
  std::string gave;
  for (const auto& [type, count] : types)
    gave += fmt::format("{}{} group{} of type {}", gave.empty() ? "" : ", ", count, count == 1 ? "" : "s", type);
  return gave;
}

// `ip -s link`: below "RX:  bytes packets errors dropped  missed   mcast" the numbers.
std::string read_ip_statistics(const Output& output, const Gathered& to) {
  std::string gave;
  std::string interface;
  std::vector<std::string_view> names;
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto words = text::words(line);
    if (words.size() > 2 && line.front() != ' ' && words[1].ends_with(':')) {
      interface = text::quote(words[1].substr(0, words[1].find_first_of("@:")));
      names.clear();
    } else if (words.size() > 3 && (words[0] == "RX:" || words[0] == "TX:")) {
      names = words;
    } else if (!names.empty() && !interface.empty()) {
      for (std::size_t i = 0; i < words.size() && i + 1 < names.size(); ++i) {
        const auto value = names[i + 1] == "errors" ? text::to_unsigned(words[i]) : std::nullopt;
        if (!value) continue;
        const auto name = names[0] == "RX:" ? "rx_errors" : "tx_errors";
        to.facts.set(fmt::format("net.{}.stat.{}", interface, name), std::to_string(*value), output.at(number));
        if (*value > 0 && gave.size() < 100)
          gave += fmt::format("{}{} {} {}", gave.empty() ? "" : ", ", interface, name, *value);
      }
      names.clear();
    }
  }
  return gave;
}

// The fastest of "Supported link modes:   100000baseCR4/Full" and of what the other end advertises, of one interface or
// several; "Duplex: Half", "Auto-negotiation: off".
std::string read_ethtool_modes(const Output& output, const Gathered& to) {
  std::string gave;
  std::string interface;
  const char* list = nullptr;
  std::size_t number = 0;
  double fastest = 0;
  const auto set = [&](const char* name, std::string value) {
    const auto fact = fmt::format("net.{}.{}", interface, name);
    to.facts.forget(fact);
    to.facts.set(fact, std::move(value), output.at(number));
  };
  for (const auto line : text::lines(output.text)) {
    ++number;
    auto trimmed = text::trim(line);
    if (trimmed.starts_with("Settings for "))
      interface = text::quote(trimmed.substr(13, trimmed.ends_with(':') ? trimmed.size() - 14 : trimmed.npos));
    if (interface.empty()) continue;
    if (const auto colon = trimmed.find(':'); colon != trimmed.npos) {
      list = trimmed.starts_with("Supported link modes:")                 ? "supported_gbps"
             : trimmed.starts_with("Link partner advertised link modes:") ? "partner_gbps"
                                                                          : nullptr;
      fastest = 0;
      const auto value = text::trim(trimmed.substr(colon + 1));
      if (trimmed.starts_with("Duplex:") && value == "Half") set("duplex", "half");
      if (trimmed.starts_with("Auto-negotiation:")) set("autoneg", value == "on" ? "on" : "off");
      trimmed = value;
    }
    if (list == nullptr) continue;
    for (const auto word : text::words(trimmed)) {
      const auto mbps = word.find("base") == word.npos ? std::nullopt : text::leading_double(word);
      if (!mbps || *mbps <= fastest || *mbps > 1e8) continue;
      fastest = *mbps;
      set(list, fmt::format("{:g}", fastest / 1000));
    }
    if (fastest > 0 && gave.empty()) gave = fmt::format("link modes of up to {:g} Gb/s", fastest / 1000);
  }
  return gave;
}

// "NIC statistics:" and "     rx_discards_phy: 5512201". Whose it is, it does not say.
std::string read_ethtool_statistics(const Output& output, const Gathered& to) {
  const auto interface = interface_of(output, to.machine);
  if (interface.empty()) return {};
  std::size_t number = 0;
  std::size_t all = 0;
  std::string grown;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto colon = line.rfind(':');
    if (colon == line.npos) continue;
    const auto value = text::to_unsigned(text::trim(line.substr(colon + 1)));
    if (!value) continue;
    ++all;
    const auto name = std::string(text::trim(line.substr(0, colon)));
    if (!is_statistic_of_interest(name)) continue;
    to.facts.set(fmt::format("net.{}.stat.{}", interface, name), std::to_string(*value), output.at(number));
    if (*value > 0 && grown.size() < 100) grown += fmt::format("{}{} {}", grown.empty() ? ": " : ", ", name, *value);
  }
  return all == 0 ? std::string() : fmt::format("{}: {} counters{}", interface, all, grown);
}

}  // namespace fairway::doctor
