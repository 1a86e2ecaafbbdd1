#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/discover.h"
#include "topology/file.h"
#include "topology/load.h"
#include "topology/text.h"

namespace fairway::doctor {

constexpr std::size_t kMaxFiles = 1000;
constexpr std::size_t kMaxBytes = 32U << 20;

Result<Case> look_around(const std::map<std::string, std::string>& environment) {
  auto machine = topology::discover();
  if (!machine) return machine.status();
  Case found{std::move(*machine), {}};
  read_kernel_facts("", found.machine, found.facts);
  read_pci_facts("", found.machine, found.facts);
  read_nvml_facts(found.machine, found.facts);
  read_link_facts(found.machine, found.facts);
  // The log is a device, which needs root or an open kernel.dmesg_restrict; it is not worth a blocking read.
  const auto log = topology::read_file("/var/log/dmesg", kMaxBytes);
  if (log) {
    read_kernel_log(*log, "/var/log/dmesg", found.facts);
  } else {
    found.facts.miss("kernel.log", "run `dmesg > dmesg.txt` as root and give its folder with --from, or look yourself");
  }
  read_environment(environment, "environment", found.machine, found.facts);
  return found;
}

Result<Case> read_case(const std::string& path) {
  if (!topology::is_directory(path)) {
    const auto content = topology::read_file(path, kMaxBytes);
    if (content && is_case(*content)) return parse_case(*content, path);
    auto machine = topology::load(path);
    if (!machine) return machine.status();
    Case found{std::move(*machine), {}};
    // lspci -vvv alone is a machine and its registers.
    if (content) read_lspci_capabilities(*content, std::string(topology::file_name(path)), found.facts);
    return found;
  }
  auto machine = topology::load(path);
  if (!machine) return machine.status();
  Case found{std::move(*machine), {}};
  if (topology::is_directory(path + "/sys") || topology::is_directory(path + "/proc")) {
    read_kernel_facts(path, found.machine, found.facts);
    read_pci_facts(path, found.machine, found.facts);
  }
  const auto names = topology::list_directory(path, kMaxFiles);
  if (!names) return names.status();
  for (const auto& name : *names) {
    if (topology::is_directory(path + "/" + name)) continue;
    const auto content = topology::read_file(path + "/" + name, kMaxBytes);
    if (content) read_pasted(*content, name, found.machine, found.facts);
  }
  return found;
}

}  // namespace fairway::doctor
