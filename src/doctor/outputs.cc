#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "doctor/measurement.h"
#include "topology/assess.h"
#include "topology/commands/command_text.h"
#include "topology/load.h"
#include "topology/output.h"
#include "topology/text.h"

// Outputs of commands: each kind and its one reader, and the readers of those that no other file has.
namespace fairway::doctor {
namespace {

namespace text = topology::text;
using topology::Output;
using Kind = topology::OutputKind;
using OutputReader = std::string (*)(const topology::Output&, const Gathered&);

struct ReaderOf {
  Kind kind;
  OutputReader read;
};

constexpr ReaderOf kReaders[] = {
    {Kind::failure, read_failure},
    {Kind::limits, read_limits},
    {Kind::ulimit, read_ulimit},
    {Kind::cmdline, read_cmdline},
    {Kind::meminfo, read_meminfo},
    {Kind::modules, read_modules},
    {Kind::mlxconfig, read_mlxconfig},
    {Kind::qos, read_qos},
    {Kind::driver_version, read_driver_version},
    {Kind::environment, read_variables},
    {Kind::smi_query, read_smi_query},
    {Kind::smi_table, read_smi_table},
    {Kind::nvlink, read_nvlink_errors},
    {Kind::gpu_query, read_gpu_query_facts},
    {Kind::collect_env, read_collect_env},
    {Kind::lspci, read_lspci_capabilities},
    {Kind::kernel_log, read_kernel_log},
    {Kind::sysctl, read_sysctl},
    {Kind::uname, read_uname},
    {Kind::disk_free, read_disk_free},
    {Kind::iommu_types, read_iommu_types},
    {Kind::ip_link, read_ip_statistics},
    {Kind::ethtool, read_ethtool_modes},
    {Kind::ethtool_statistics, read_ethtool_statistics},
    {Kind::mlxlink, read_mlxlink_facts},
    {Kind::perfquery, read_perfquery},
    {Kind::iblinkinfo, read_iblinkinfo},
    {Kind::ibnetdiscover, read_ibnetdiscover},
    {Kind::hl_smi, read_hl_smi_errors},
    {Kind::nccl_log, read_nccl_log},
    {Kind::ucx_info, read_ucx_info},
    {Kind::ucx_log, read_ucx_log},
    {Kind::fabric_manager, read_fabric_manager},
    {Kind::fi_info, read_fi_info},
};

// Measured rates, as --measured reads them.
void read_rates(topology::Output& output, const Gathered& to) {
  if (output.kind == Kind::rows) {
    output.state = topology::ReadState::not_used;
    output.gave = "rows do not say how they were measured: give the file with --measured";
    return;
  }
  auto rows = read_rates_of(to.machine, output);
  if (!rows) return output.fail(rows.status().message());
  const auto failed = std::ranges::find_if(*rows, [](const auto& row) { return row.failed; });
  if (failed != rows->end()) {
    output.fail(failed->problem);
  } else {
    output.read_as(fmt::format("{} measured row{}", rows->size(), rows->size() == 1 ? "" : "s"));
    if (rows->size() >= kMaxRows) output.cut = "what stands behind them is not read";
  }
  to.measured.insert(to.measured.end(), std::make_move_iterator(rows->begin()), std::make_move_iterator(rows->end()));
}

}  // namespace

void read_output(topology::Output& output, const Gathered& to) {
  to.facts.next_text();
  if (is_measurement(output.kind)) return read_rates(output, to);
  const auto* row = std::ranges::find(kReaders, output.kind, &ReaderOf::kind);
  if (row == std::end(kReaders)) return;
  const auto gave = row->read(output, to);
  if (gave.empty()) {
    // Modules have numbers of their own, which no other output relates to accelerators.
    if (output.kind == Kind::hl_smi && output.state == topology::ReadState::not_understood) {
      output.state = topology::ReadState::not_used;
      output.gave = "modules have numbers of their own: lspci says where accelerators are";
    }
    if ((output.kind == Kind::ethtool_statistics || output.kind == Kind::qos) &&
        output.state == topology::ReadState::not_understood && interface_of(output, to.machine).empty()) {
      output.state = topology::ReadState::not_used;
      output.gave = "neither its command nor the file's name says which interface it is of";
    }
    return;
  }
  output.read_as(output.gave.empty() ? gave : output.gave + "; " + gave);
}

void join_facts(Facts& facts) {
  std::vector<std::pair<std::string, Seen>> types;
  for (const auto& [name, seen] : facts.all()) {
    if (!name.starts_with("pci.") || !name.ends_with(".iommu_group")) continue;
    const auto* type = facts.find("iommu.group." + seen.value);
    const auto device = name.substr(0, name.size() - std::string_view(".iommu_group").size());
    if (type != nullptr) types.emplace_back(device + ".iommu_type", *type);
  }
  for (auto& [name, seen] : types) facts.set(name, seen.value, seen.where);
}

// GPUs that tools cannot read: cells such as "ERR!" within a good output, and sentences in its place.

void ErrorCells::see(const std::string& whose, std::string_view field, std::string_view value,
                     const std::string& where) {
  if (whose.empty() || !topology::is_error_cell(value)) return;
  auto& of = by_gpu_[whose];
  const auto name = text::lower(field);
  // A fan or a power sensor may be unreadable alone; a name or the errors of the memory are not.
  if (topology::says_lost(value) || name.find("name") != std::string::npos || name.find("ecc") != std::string::npos ||
      ++of.cells >= 3)
    of.lost = true;
  if (of.words.empty()) {
    of.words = fmt::format("{}: {}", text::quote(text::trim(field), 40), text::quote(text::trim(value), 40));
    of.where = where;
  }
}

void ErrorCells::tell(Facts& facts) const {
  for (const auto& [whose, of] : by_gpu_) facts.set((of.lost ? "lost." : "unread.") + whose, of.words, of.where);
}

// "Unable to determine the device handle for GPU 0000:43:00.0: GPU is lost.  Reboot the system to recover this GPU"
std::string read_failure(const topology::Output& output, const Gathered& to) {
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (line.find("Error 802") != line.npos)
      to.facts.set("fabric_manager.cuda_waits", text::quote(text::trim(line), 200), output.at(number));
    if (!topology::says_lost(line)) continue;
    std::string whose = "a GPU";
    for (auto word : text::words(line)) {
      if (word.ends_with(':') || word.ends_with(',')) word.remove_suffix(1);
      const auto ordinal = word.starts_with("GPU") ? text::to_u32(word.substr(3)) : std::nullopt;
      if (ordinal) whose = fmt::format("GPU{}", *ordinal);
      if (word.starts_with("GPU")) word.remove_prefix(3);
      if (const auto bus = topology::BusId::parse(word)) {
        whose = bus->to_string();
        break;
      }
    }
    to.facts.set("lost." + whose, text::quote(text::trim(line), 160), output.at(number));
  }
  return {};
}

// Outputs of commands and copies of files in /proc.

namespace {

// "8388608", and "8 MiB" for people.
std::string memlock_text(const std::string& bytes) {
  const auto number = text::to_unsigned(bytes);
  return "locked memory " + (number ? fmt::format("{} KiB", *number >> 10U) : bytes);
}

}  // namespace

// "Max locked memory         8388608              8388608              bytes"
std::string read_limits(const Output& output, const Gathered& to) {
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (!line.starts_with("Max locked memory")) continue;
    const auto words = text::words(line.substr(17));
    if (words.empty()) continue;
    to.facts.set("limit.memlock", std::string(words[0]), output.at(number));
    return memlock_text(std::string(words[0]));
  }
  return {};
}

// `ulimit -a` of bash: "max locked memory           (kbytes, -l) 8192"; `ulimit -l`: the last word alone.
std::string read_ulimit(const Output& output, const Gathered& to) {
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto words = text::words(line);
    const bool alone = words.size() == 1 && output.command.find("-l") != std::string::npos &&
                       (words[0] == "unlimited" || text::to_unsigned(words[0]));
    if (words.empty() || (!alone && !line.starts_with("max locked memory"))) continue;
    const auto kib = text::to_unsigned(words.back());
    const auto value = kib ? std::to_string(*kib * 1024) : std::string(words.back());
    to.facts.set("limit.memlock", value, output.at(number));
    return memlock_text(value);
  }
  return {};
}

std::string read_cmdline(const Output& output, const Gathered& to) {
  const auto words = text::trim(output.text);
  if (words.empty()) return {};
  to.facts.set("kernel.cmdline", std::string(words), output.at(1));
  return fmt::format("{} options", text::words(words).size());
}

std::string read_meminfo(const Output& output, const Gathered& to) {
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (!line.starts_with("HugePages_Total:")) continue;
    const auto value = std::string(text::trim(line.substr(16)));
    to.facts.set("memory.hugepages.all.default", value, output.at(number));
    return value + " huge pages";
  }
  return {};
}

// lsmod: a table headed "Module  Size  Used by", or its rows alone.
std::string read_modules(const Output& output, const Gathered& to) {
  const auto all = text::lines(output.text);
  std::size_t number = 0;
  std::size_t modules = 0;
  bool whole = false;
  for (const auto line : all) {
    ++number;
    const auto words = text::words(line);
    whole = whole || line.starts_with("Module ");
    if (words.size() < 3 || !text::to_unsigned(words[1])) continue;
    ++modules;
    to.facts.set("kernel.module." + text::quote(words[0]), "loaded", output.at(number));
    auto users = words.size() > 3 ? std::string(words[3]) : std::string();
    std::ranges::replace(users, ',', ' ');
    to.facts.set("kernel.holders." + text::quote(words[0]), users, output.at(number));
  }
  // A part of the list does not say what is not loaded.
  if (whole) to.facts.set("kernel.modules", std::to_string(modules), output.at(1));
  return modules == 0 ? std::string() : fmt::format("{} modules{}", modules, whole ? "" : ", a part of the list");
}

// mlxconfig query: "Device: 0000:1a:00.0" and lines of a name and a value.
std::string read_mlxconfig(const Output& output, const Gathered& to) {
  std::string device;
  std::size_t number = 0;
  std::size_t settings = 0;
  for (const auto line : text::lines(output.text)) {
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
      to.facts.set(fmt::format("mlxconfig.{}.{}", device, text::quote(words[0])), value, output.at(number));
      ++settings;
    }
  }
  return settings == 0 ? std::string() : fmt::format("{} settings of {}", settings, device);
}

// mlnx_qos -i INTERFACE: a row "enabled  0 0 0 1 0 0 0 0" below "PFC configuration:". Whose it is the command or the
// file's name says.
std::string read_qos(const Output& output, const Gathered& to) {
  const auto interface = interface_of(output, to.machine);
  if (interface.empty()) return {};
  std::string gave;
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto words = text::words(line);
    if (words.size() == 9 && words[0] == "enabled") {
      std::string map;
      for (std::size_t i = 1; i < words.size(); ++i) map += words[i] == "1" ? '1' : '0';
      to.facts.set(fmt::format("net.{}.pfc", interface), map, output.at(number));
      gave = fmt::format("{}: PFC {}", interface, map);
    }
    if (text::trim(line).starts_with("Priority trust state:")) {
      const auto trust = std::string(words.back());
      to.facts.set(fmt::format("net.{}.trust", interface), trust, output.at(number));
      if (gave.empty()) gave = fmt::format("{}: trust {}", interface, trust);
    }
  }
  return gave;
}

std::string read_driver_version(const Output& output, const Gathered& to) {
  const std::string kind = output.text.find("Open Kernel Module") != std::string::npos ? "open" : "proprietary";
  to.facts.set("gpu.kernel_module", kind, output.at(1));
  return kind + " kernel module";
}

namespace {

// Variables that every environment has, or that jobs and accelerators have.
bool is_of_environments(std::string_view name) {
  constexpr std::string_view kNames[] = {"PATH",     "HOME",    "USER",  "SHELL",       "PWD",        "LANG", "TERM",
                                         "HOSTNAME", "LOGNAME", "SHLVL", "MASTER_ADDR", "WORLD_SIZE", "RANK"};
  constexpr std::string_view kBegins[] = {"LD_",   "CUDA",  "NV",    "HSA_",        "HIP_",   "ROC",    "OMPI_",
                                          "SLURM", "PMIX_", "GLOO_", "TORCH",       "PYTHON", "VLLM_",  "SGLANG_",
                                          "MLX5_", "IBV_",  "RDMA",  "OMP_",        "MPI",    "I_MPI_", "NVSHMEM_",
                                          "RCCL_", "HCCL_", "MCCL_", "KUBERNETES_", "XDG_",   "LC_"};
  return std::ranges::find(kNames, name) != std::end(kNames) ||
         std::ranges::any_of(kBegins, [&](auto one) { return name.starts_with(one); });
}

}  // namespace

std::string read_variables(const Output& output, const Gathered& to) {
  std::map<std::string, std::string> found;
  std::size_t all = 0;
  // Words with "=" between them are none, unless a command or a name says that they are.
  bool known = topology::kind_of_command(output.command) == topology::OutputKind::environment ||
               output.command.starts_with("export ");
  for (auto line : text::lines(output.text)) {
    line = text::trim(line);
    if (line.starts_with("export ")) line = text::trim(line.substr(7));
    const auto equals = line.find('=');
    if (equals == line.npos) continue;
    ++all;
    for (auto& one : topology::job_variables(line)) found[one.name] = one.value;
    if (found.empty()) known = known || is_of_environments(line.substr(0, equals));
  }
  if (all == 0 || (found.empty() && !known)) return {};
  read_environment(found, output.at(1), to.machine, to.facts);
  return found.empty() ? fmt::format("{} variables, none of NCCL or UCX", all)
                       : fmt::format("{} variable{} of NCCL and UCX", found.size(), found.size() == 1 ? "" : "s");
}

std::string interface_of(const Output& output, const topology::Machine& machine) {
  // `ethtool -S eth0 | grep discard`, `mlnx_qos -i eth0`: the last word that is no option.
  const auto words = text::words(std::string_view(output.command).substr(0, output.command.find_first_of("|;>")));
  if (words.size() > 1 && !words.back().starts_with('-')) return text::quote(words.back());
  std::string interface;
  for (const auto& one : machine.interfaces) {
    if (output.file.find(one.name) != std::string::npos && one.name.size() > interface.size()) interface = one.name;
  }
  if (!interface.empty()) return interface;
  // "ethtool_S_ens2f0np0.txt": what stands behind the tool's name and options.
  auto stem = output.file.substr(0, output.file.rfind('.'));
  const auto at = stem.rfind('_') == std::string::npos ? stem.rfind('-') : stem.rfind('_');
  return at == std::string::npos ? std::string() : text::quote(stem.substr(at + 1));
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
