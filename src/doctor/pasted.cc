#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/assess.h"
#include "topology/load.h"
#include "topology/text.h"

// Outputs of commands and copies of files in /proc, by what they look like.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

std::string at_line(const std::string& name, std::size_t number) {
  return fmt::format("{}:{}", name, number);
}

// "Max locked memory         8388608              8388608              bytes"
bool read_limits(std::string_view content, const std::string& name, Facts& facts) {
  std::size_t number = 0;
  bool any = false;
  for (const auto line : text::lines(content)) {
    ++number;
    if (!line.starts_with("Max locked memory")) continue;
    const auto words = text::words(line.substr(17));
    if (words.empty()) continue;
    facts.set("limit.memlock", std::string(words[0]), at_line(name, number));
    any = true;
  }
  return any;
}

// `ulimit -a` of bash: "max locked memory           (kbytes, -l) 8192"
bool read_ulimit(std::string_view content, const std::string& name, Facts& facts) {
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    if (!line.starts_with("max locked memory")) continue;
    const auto words = text::words(line);
    const auto kib = text::to_unsigned(words.back());
    facts.set("limit.memlock", kib ? std::to_string(*kib * 1024) : std::string(words.back()), at_line(name, number));
    return true;
  }
  return false;
}

bool looks_like_cmdline(std::string_view content) {
  const auto all = text::lines(text::trim(content));
  if (all.size() != 1) return false;
  const auto line = all.front();
  return line.starts_with("BOOT_IMAGE=") || line.find(" root=") != line.npos || line.find("iommu=") != line.npos ||
         line.starts_with("root=");
}

bool read_meminfo(std::string_view content, const std::string& name, Facts& facts) {
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    if (!line.starts_with("HugePages_Total:")) continue;
    facts.set("memory.hugepages.all.default", std::string(text::trim(line.substr(16))), at_line(name, number));
    return true;
  }
  return false;
}

// lsmod: a table headed "Module  Size  Used by".
bool read_modules(std::string_view content, const std::string& name, Facts& facts) {
  const auto all = text::lines(content);
  const auto head = all.empty() ? std::vector<std::string_view>{} : text::words(all.front());
  if (head.size() < 3 || head[0] != "Module" || head[1] != "Size") return false;
  facts.set("kernel.modules", std::to_string(all.size() - 1), name);
  for (std::size_t i = 1; i < all.size(); ++i) {
    const auto words = text::words(all[i]);
    if (words.size() < 3) continue;
    facts.set("kernel.module." + text::quote(words[0]), "loaded", at_line(name, i + 1));
    auto users = words.size() > 3 ? std::string(words[3]) : std::string();
    std::replace(users.begin(), users.end(), ',', ' ');
    facts.set("kernel.holders." + text::quote(words[0]), users, at_line(name, i + 1));
  }
  return true;
}

// mlxconfig query: "Device: 0000:1a:00.0" and lines of a name and a value.
bool read_mlxconfig(std::string_view content, const std::string& name, Facts& facts) {
  if (content.find("Device #") == content.npos || content.find("Configurations:") == content.npos) return false;
  std::string device;
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    const auto words = text::words(line);
    if (words.size() >= 2 && words[0] == "Device:") {
      auto bus = words[1];
      if (const auto slash = bus.rfind('/'); slash != bus.npos) bus = bus.substr(slash + 1);
      const auto parsed = topology::BusId::parse(bus);
      device = parsed ? parsed->to_string() : text::quote(bus);
    } else if (words.size() >= 2 && !device.empty() && words[0].find('_') != words[0].npos) {
      // "PCI_WR_ORDERING   per_mkey(0)": the number is what counts where there is one.
      auto value = std::string(words[1]);
      const auto open = value.find('(');
      if (open != std::string::npos && value.ends_with(')')) value = value.substr(open + 1, value.size() - open - 2);
      facts.set(fmt::format("mlxconfig.{}.{}", device, text::quote(words[0])), value, at_line(name, number));
    }
  }
  return true;
}

// mlnx_qos -i INTERFACE: a row "enabled  0 0 0 1 0 0 0 0" below "PFC configuration:". Whose it is the file's name says.
bool read_qos(std::string_view content, const std::string& name, const topology::Machine& machine, Facts& facts) {
  if (content.find("PFC configuration:") == content.npos) return false;
  std::string interface;
  for (const auto& one : machine.interfaces) {
    if (name.find(one.name) != std::string::npos && one.name.size() > interface.size()) interface = one.name;
  }
  if (interface.empty()) return true;
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    const auto words = text::words(line);
    if (words.size() == 9 && words[0] == "enabled") {
      std::string map;
      for (std::size_t i = 1; i < words.size(); ++i) map += words[i] == "1" ? '1' : '0';
      facts.set(fmt::format("net.{}.pfc", interface), map, at_line(name, number));
    }
    if (text::trim(line).starts_with("Priority trust state:"))
      facts.set(fmt::format("net.{}.trust", interface), std::string(text::words(line).back()), at_line(name, number));
  }
  return true;
}

bool read_variables(std::string_view content, const std::string& name, const topology::Machine& machine, Facts& facts) {
  std::map<std::string, std::string> found;
  for (auto line : text::lines(content)) {
    line = text::trim(line);
    if (line.starts_with("export ")) line = text::trim(line.substr(7));
    const auto equals = line.find('=');
    if (equals == line.npos || (!line.starts_with("NCCL_") && !line.starts_with("UCX_"))) continue;
    found[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  }
  if (found.empty()) return false;
  read_environment(found, name, machine, facts);
  return true;
}

}  // namespace

bool read_pasted(std::string_view content, const std::string& name, const topology::Machine& machine, Facts& facts) {
  if (looks_like_cmdline(content)) {
    facts.set("kernel.cmdline", std::string(text::trim(content)), name);
    return true;
  }
  if (content.find("NVRM: Xid") != content.npos || content.find("] Linux version ") != content.npos) {
    read_kernel_log(content, name, facts);
    return true;
  }
  if (content.find("NVRM version:") != content.npos) {
    facts.set("gpu.kernel_module", content.find("Open Kernel Module") != content.npos ? "open" : "proprietary", name);
    return true;
  }
  return read_limits(content, name, facts) || read_ulimit(content, name, facts) || read_meminfo(content, name, facts) ||
         read_modules(content, name, facts) || read_mlxconfig(content, name, facts) ||
         read_qos(content, name, machine, facts) || read_gpu_query_full(content, name, machine, facts) ||
         read_lspci_capabilities(content, name, facts) || read_variables(content, name, machine, facts);
}

bool read_gpu_query_full(std::string_view content, const std::string& name, const topology::Machine& machine,
                         Facts& facts) {
  if (content.find("NVSMI LOG") == content.npos) return false;
  std::string prefix;
  std::string section;
  std::size_t number = 0;
  std::size_t told = 0;  // GPUs so far
  const auto normal = [](std::string_view words) { return text::lower(words); };
  for (const auto line : text::lines(content)) {
    ++number;
    if (line.starts_with("GPU ")) {
      const auto bus = topology::BusId::parse(text::trim(line.substr(4)));
      prefix.clear();
      for (const auto& gpu : machine.gpus) {
        if (bus && gpu.pci && machine.pci[gpu.pci.index].bus_id == *bus) prefix = fmt::format("gpu.{}", gpu.ordinal);
      }
      // Without bus ids on record the order of the file is that of the numbers.
      if (bus && prefix.empty() && told < machine.gpus.size() && !machine.gpus[told].pci)
        prefix = fmt::format("gpu.{}", machine.gpus[told].ordinal);
      if (bus) ++told;
      continue;
    }
    if (prefix.empty()) continue;
    const auto colon = line.find(" : ");
    const auto key = text::trim(colon == line.npos ? line : line.substr(0, colon));
    if (colon == line.npos) {
      section = std::string(key);
      continue;
    }
    const auto value = std::string(text::trim(line.substr(colon + 3)));
    const auto where = at_line(name, number);
    const bool active = normal(value) == "active";
    if (key == "Persistence Mode") facts.set(prefix + ".persistence", normal(value), where);
    if (key == "Current" && section == "MIG Mode") facts.set(prefix + ".mig", normal(value), where);
    if (key == "State" && section == "Fabric") facts.set(prefix + ".fabric_state", normal(value), where);
    if (key == "HW Slowdown" || key == "HW Thermal Slowdown" || key == "HW Power Brake Slowdown" ||
        key == "SW Thermal Slowdown") {
      if (active)
        facts.set(prefix + ".throttle",
                  key == "HW Slowdown"           ? "hw_slowdown"
                  : key == "HW Thermal Slowdown" ? "hw_thermal"
                  : key == "SW Thermal Slowdown" ? "sw_thermal"
                                                 : "hw_power_brake",
                  where);
    }
    if (key == "Pending" && section == "Remapped Rows") facts.set(prefix + ".remap_pending", normal(value), where);
    if (key == "Remapping Failure Occurred") facts.set(prefix + ".remap_failure", normal(value), where);
    if (key == "DRAM Uncorrectable" || key == "SRAM Uncorrectable")
      facts.set(prefix + ".ecc_uncorrected", value, where);
  }
  for (const auto& gpu : machine.gpus) {
    // A whole log that names no reason says that there is none.
    if (facts.find(fmt::format("gpu.{}.persistence", gpu.ordinal)) != nullptr)
      facts.set(fmt::format("gpu.{}.throttle", gpu.ordinal), "none", name);
  }
  return true;
}

void read_environment(const std::map<std::string, std::string>& environment, const std::string& where,
                      const topology::Machine& machine, Facts& facts) {
  for (const auto& [name, value] : environment) facts.set("env." + name, text::quote(value, 400), where);
  const auto file = environment.find("NCCL_TOPO_FILE");
  if (file == environment.end()) return;
  facts.set("topology_file.path", file->second, where + " NCCL_TOPO_FILE");
  const auto read = topology::load(file->second);
  std::size_t number = 0;
  const auto say = [&](const std::string& what) {
    facts.set(fmt::format("topology_file.says.{:03}", ++number), text::quote(what, 300), file->second);
  };
  if (!read) return say(read.status().message());
  for (const auto& finding : topology::lint(*read)) {
    if (finding.severity == topology::Severity::error) say(finding.subject + ": " + finding.text);
  }
  for (const auto& finding : topology::lint_against(*read, machine)) say(finding.subject + ": " + finding.text);
}

}  // namespace fairway::doctor
