#include <fmt/format.h>

#include "doctor/link_facts.h"
#include "doctor/outputs.h"
#include "topology/text.h"

// Settings and limits of the host, as commands print them.
namespace fairway::doctor {

namespace text = topology::text;
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
