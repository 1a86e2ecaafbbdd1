#include <array>
#include <cstdint>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/file.h"
#include "topology/text.h"

// Capability registers of PCI functions: from their config files, or as `lspci -vvv` prints them.
namespace fairway::doctor {
namespace {

namespace text = topology::text;
using topology::list_directory;
using topology::read_file;
using topology::read_link;

// PCI Local Bus and PCI Express Base Specifications.
constexpr std::size_t kHeaderBytes = 64;  // all that the kernel gives without root
constexpr std::size_t kLegacyBytes = 256;
constexpr std::uint8_t kExpress = 0x10;
constexpr std::uint16_t kAcs = 0x000d;
constexpr std::uint16_t kAts = 0x000f;

std::uint32_t word_at(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < size && at + i < bytes.size(); ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

std::optional<std::size_t> find_capability(std::string_view bytes, std::uint8_t id) {
  if (bytes.size() <= kHeaderBytes || (word_at(bytes, 6, 2) & 0x10) == 0) return {};
  std::size_t at = word_at(bytes, 0x34, 1) & 0xfcU;
  for (int steps = 0; steps < 48 && at >= kHeaderBytes && at + 2 <= bytes.size(); ++steps) {
    if (word_at(bytes, at, 1) == id) return at;
    at = word_at(bytes, at + 1, 1) & 0xfcU;
  }
  return {};
}

std::optional<std::size_t> find_extended(std::string_view bytes, std::uint16_t id) {
  std::size_t at = kLegacyBytes;
  for (int steps = 0; steps < 960 && at >= kLegacyBytes && at + 4 <= bytes.size(); ++steps) {
    const auto head = word_at(bytes, at, 4);
    if (head == 0 || head == 0xffffffffU) return {};
    if ((head & 0xffffU) == id) return at;
    at = (head >> 20U) & 0xffcU;
  }
  return {};
}

std::string size_text(std::uint32_t code) {
  return std::to_string(128U << code);
}

// The CPUs that a function's interrupts really go to.
void read_interrupts(const std::string& root, const std::string& folder, const std::string& prefix, Facts& facts) {
  auto numbers = list_directory(root + folder + "/msi_irqs", 4096);
  if (!numbers) return facts.miss(prefix + ".irq_cpus", numbers.status().message());
  topology::CpuSet all;
  for (const auto& number : *numbers) {
    for (const auto* file : {"/effective_affinity_list", "/smp_affinity_list"}) {
      const auto content = read_file(root + "/proc/irq/" + number + file, 65536);
      if (!content) {
        facts.miss(prefix + ".irq_cpus", content.status().message());
        continue;
      }
      const auto cpus = topology::CpuSet::parse_list(text::trim(*content));
      if (!cpus) break;
      for (const auto& range : cpus->ranges()) all.add(range.first, range.last);
      break;
    }
  }
  if (!all.empty()) facts.set(prefix + ".irq_cpus", all.to_list(), "/proc/irq/*/effective_affinity_list");
}

}  // namespace

void read_config_space(std::string_view bytes, const std::string& prefix, const std::string& where, Facts& facts) {
  if (bytes.size() <= kHeaderBytes) {
    const auto why = where + ": capabilities need root (the kernel gives 64 bytes without)";
    for (const auto* name :
         {".acs", ".ats", ".max_read_request", ".max_payload", ".max_payload_able", ".relaxed_ordering"})
      facts.miss(prefix + name, why);
    return;
  }
  if (const auto express = find_capability(bytes, kExpress); express && *express + 12 <= bytes.size()) {
    const auto able = word_at(bytes, *express + 4, 4) & 7U;
    const auto control = word_at(bytes, *express + 8, 2);
    const auto at = fmt::format("{} DevCtl", where);
    facts.set(prefix + ".relaxed_ordering", (control & 0x10U) != 0 ? "1" : "0", at);
    facts.set(prefix + ".max_payload", size_text((control >> 5U) & 7U), at);
    facts.set(prefix + ".max_payload_able", size_text(able), fmt::format("{} DevCap", where));
    facts.set(prefix + ".max_read_request", size_text((control >> 12U) & 7U), at);
  }
  if (bytes.size() <= kLegacyBytes) {
    const auto why = where + ": the capabilities beyond 256 bytes are not in it";
    facts.miss(prefix + ".acs", why);
    facts.miss(prefix + ".ats", why);
    return;
  }
  const auto none = where + ": it has no such capability";
  if (const auto acs = find_extended(bytes, kAcs); acs && *acs + 8 <= bytes.size()) {
    facts.set(prefix + ".acs", fmt::format("{:04x}", word_at(bytes, *acs + 6, 2)), fmt::format("{} ACSCtl", where));
  } else {
    facts.set(prefix + ".acs", "0000", none);  // a port without ACS redirects nothing
  }
  if (const auto ats = find_extended(bytes, kAts); ats && *ats + 8 <= bytes.size()) {
    facts.set(prefix + ".ats", (word_at(bytes, *ats + 6, 2) & 0x8000U) != 0 ? "1" : "0",
              fmt::format("{} ATSCtl", where));
  } else {
    facts.miss(prefix + ".ats", none);
  }
}

void read_pci_facts(const std::string& root, const topology::Machine& machine, Facts& facts) {
  const std::string devices = "/sys/bus/pci/devices/";
  for (const auto& device : machine.pci) {
    const auto bus = device.bus_id.to_string();
    const auto prefix = "pci." + bus;
    const auto folder = devices + bus;
    const auto config = read_file(root + folder + "/config", 4096);
    if (config) {
      read_config_space(*config, prefix, folder + "/config", facts);
    } else {
      facts.miss(prefix, config.status().message());
    }
    if (const auto group = read_link(root + folder + "/iommu_group")) {
      const auto number = std::string(topology::file_name(*group));
      const auto path = "/sys/kernel/iommu_groups/" + number + "/type";
      const auto type = read_file(root + path, 256);
      if (type) facts.set(prefix + ".iommu_type", std::string(text::trim(*type)), path);
    } else {
      facts.set(prefix + ".iommu_type", "none", folder + " has no iommu_group");
    }
    if (read_link(root + folder + "/physfn")) facts.set(prefix + ".physfn", "yes", folder + "/physfn");
    if (const auto count = read_file(root + folder + "/sriov_numvfs", 256)) {
      facts.set(prefix + ".sriov_numvfs", std::string(text::trim(*count)), folder + "/sriov_numvfs");
    } else if (config) {
      facts.set(prefix + ".sriov_numvfs", "0", folder + " has no sriov_numvfs");
    }
    if (device.class_code && (*device.class_code >> 16U) == 2) read_interrupts(root, folder, prefix, facts);
  }
}

namespace {

// "(rev ff)": all bits of a GPU's or NIC's registers read as ones, since nothing answers there.
bool is_gone(std::string_view line) {
  if (line.find("(rev ff)") == line.npos) return false;
  for (const auto* kind : {"3D controller", "VGA compatible", "Display controller", "Processing accelerators",
                           "Infiniband controller", "Ethernet controller", "Network controller"}) {
    if (line.find(kind) != line.npos) return true;
  }
  return false;
}

// `lspci -vv | grep LnkSta`: links of devices that no line names, or of the one that the command names by -s.
class NamelessLinks {
 public:
  explicit NamelessLinks(const topology::Output& output) {
    const auto words = text::words(output.command);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (!words[i].starts_with('-') || !words[i].ends_with('s')) continue;
      if (const auto bus = topology::BusId::parse(words[i + 1])) device_ = bus->to_string();
    }
  }
  void read(std::string_view line, const std::string& where, Facts& facts) {
    const auto able = line.starts_with("LnkCap:");
    if (!able && !line.starts_with("LnkSta:")) return;
    const auto of = [line](std::string_view word) {
      const auto at = line.find(word);
      return at == line.npos ? 0.0 : text::leading_double(line.substr(at + word.size())).value_or(0);
    };
    const std::pair<double, double> now{of("Width x"), of("Speed ")};
    if (able) {
      most_ = now;
      return;
    }
    ++links_;
    const auto name = fmt::format("pcie.nameless.{:04}", links_);
    // The words "(downgraded)" compare with the device's own best.
    const auto narrow = now.first > 0 && now.first < most_.first;
    const auto slow = now.second > 0 && now.second < most_.second;
    const auto down = line.find("(downgraded)") != line.npos;
    if (narrow || slow || (down && now.first > 0)) {
      const auto of_most = [](double is, double best) { return best > is ? fmt::format(" of {:g}", best) : ""; };
      facts.set(name,
                fmt::format("x{:g}{} at {:g}{} GT/s", now.first, of_most(now.first, most_.first), now.second,
                            of_most(now.second, most_.second)),
                where);
      if (!device_.empty()) facts.set(name + ".device", device_, where);
      ++low_;
    }
    most_ = {};
  }
  [[nodiscard]] std::string gave() const {
    if (links_ == 0) return {};
    return fmt::format("{} of {}, {} below what the device can do", topology::text::count(links_, "link"),
                       device_.empty() ? "devices that no line names" : device_, low_);
  }

 private:
  std::string device_;
  std::pair<double, double> most_;
  std::size_t links_ = 0;
  std::size_t low_ = 0;
};

}  // namespace

// `lspci -vvv`, of all its functions.
std::string read_lspci_capabilities(const topology::Output& output, const Gathered& to) {
  auto& facts = to.facts;
  std::string prefix;
  std::string address;
  bool refused = false;
  bool extended = false;
  std::size_t number = 0;
  // "ReqRedir+" -> true, "ReqRedir-" -> false
  const auto flag = [](std::string_view line, std::string_view word) {
    const auto at = line.find(word);
    return at != line.npos && at + word.size() < line.size() && line[at + word.size()] == '+';
  };
  const auto number_after = [](std::string_view line, std::string_view word) -> std::optional<std::uint64_t> {
    const auto at = line.find(word);
    return at == line.npos ? std::nullopt : text::leading_unsigned(line.substr(at + word.size()));
  };
  NamelessLinks nameless(output);
  std::set<std::string> listed;  // functions whose capabilities are there
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto words = text::words(line);
    if (words.empty()) continue;
    const auto where = output.at(number);
    if (line.front() != ' ' && line.front() != '\t') {
      if (const auto bus = topology::BusId::parse(words[0])) {
        address = bus->to_string();
        prefix = "pci." + address;
        if (is_gone(line)) facts.set("lost." + address, text::quote(line, 120), where);
        continue;
      }
    }
    const auto trimmed = text::trim(line);
    if (prefix.empty()) {
      nameless.read(trimmed, where, facts);
      continue;
    }
    if (trimmed.starts_with("Capabilities: <access denied>")) {
      refused = true;
      facts.miss(prefix, where + ": capabilities were refused: lspci -vvv needs root");
    } else if (trimmed.starts_with("Capabilities:")) {
      listed.insert(prefix);
      // "[148 v1]": beyond the 256 bytes that a dump without root or an old one has
      const auto close = trimmed.find_first_of(" ]", 15);
      extended = extended || (close != trimmed.npos && close > 17);
    } else if (trimmed.starts_with("ACSCtl:")) {
      const unsigned control = (flag(trimmed, "SrcValid") ? 1U : 0U) | (flag(trimmed, "TransBlk") ? 2U : 0U) |
                               (flag(trimmed, "ReqRedir") ? 4U : 0U) | (flag(trimmed, "CmpltRedir") ? 8U : 0U) |
                               (flag(trimmed, "UpstreamFwd") ? 16U : 0U) | (flag(trimmed, "EgressCtrl") ? 32U : 0U) |
                               (flag(trimmed, "DirectTrans") ? 64U : 0U);
      facts.set(prefix + ".acs", fmt::format("{:04x}", control), where);
    } else if (trimmed.starts_with("ATSCtl:")) {
      facts.set(prefix + ".ats", flag(trimmed, "Enable") ? "1" : "0", where);
    } else if (trimmed.starts_with("DevCap:")) {
      if (const auto bytes = number_after(trimmed, "MaxPayload "))
        facts.set(prefix + ".max_payload_able", std::to_string(*bytes), where);
    } else if (trimmed.find("RlxdOrd") != trimmed.npos) {
      facts.set(prefix + ".relaxed_ordering", flag(trimmed, "RlxdOrd") ? "1" : "0", where);
    } else if (trimmed.find("MaxReadReq ") != trimmed.npos) {
      if (const auto bytes = number_after(trimmed, "MaxReadReq "))
        facts.set(prefix + ".max_read_request", std::to_string(*bytes), where);
      if (const auto bytes = number_after(trimmed, "MaxPayload "))
        facts.set(prefix + ".max_payload", std::to_string(*bytes), where);
    } else if (trimmed.starts_with("IOMMU group:")) {
      facts.set(prefix + ".iommu_group", std::string(text::trim(trimmed.substr(12))), where);
      facts.miss(prefix + ".iommu_type",
                 where + " names the group and not its type: /sys/kernel/iommu_groups/*/type says it");
    }
  }
  for (const auto& one : listed) {
    if (extended) {
      facts.set(one + ".acs", "0000", output.file + ": no ACS capability there");  // such a port redirects nothing
    } else {
      facts.miss(one + ".acs", output.file + ": it has no capabilities beyond 256 bytes, where ACS is");
      facts.miss(one + ".ats", output.file + ": it has no capabilities beyond 256 bytes, where ATS is");
    }
  }
  if (auto gave = nameless.gave(); !gave.empty()) return gave;
  if (listed.empty()) return refused ? "capabilities refused: lspci -vvv needs root" : "";
  return fmt::format("registers of {}", listed.size());
}

}  // namespace fairway::doctor
