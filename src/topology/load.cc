#include "topology/load.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/file.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr std::size_t kMaxFiles = 8192;
constexpr std::size_t kMaxFileBytes = 33U << 20;
constexpr std::size_t kMaxAllBytes = 512U << 20;
constexpr std::size_t kMaxHosts = 1024;

bool is_tree(const std::string& path) {
  if (is_directory(path + "/sys") || is_directory(path + "/class/infiniband") || is_directory(path + "/class/net") ||
      is_directory(path + "/bus/pci/devices"))
    return true;
  const auto names = list_directory(path, kMaxFiles);
  return names && std::ranges::any_of(
                      *names, [&path](const auto& name) { return is_directory(path + "/" + name + "/ports/1"); });
}

// "8 GPUs, 4 NICs"
std::string parts_of(const Machine& machine) {
  std::string out;
  const auto add = [&out](std::size_t n, std::string_view noun) {
    if (n > 0) out += (out.empty() ? "" : ", ") + text::count(n, noun);
  };
  add(machine.gpus.size(), "GPU");
  add(machine.nics.size(), "NIC");
  if (machine.gpus.empty() && machine.nics.empty()) add(machine.pci.size(), "PCI device");
  return out;
}

Result<Machine> read_tree(const std::string& path, Evidence& evidence) {
  auto machine = read_sysfs_tree(path);
  if (!machine) return machine;
  auto& read = evidence.others.emplace_back(TextRead{"sys/", "captured /sys", ReadState::read, parts_of(*machine)});
  if (machine->pci.empty()) {
    read.state = machine->rdma.empty() ? ReadState::failed : ReadState::read;
    read.gave += read.gave.empty() ? "" : "; ";
    read.gave += "bus/pci/devices is not in it or empty, so no GPU or NIC has a place";
  }
  return machine;
}

Status read_folder(const std::string& path, bool tree, Evidence& evidence) {
  const auto names = list_directory(path, kMaxFiles);
  if (!names) return names.status();
  if (names->empty()) return {ErrorCode::invalid_argument, path + ": the folder is empty"};
  constexpr std::string_view kOfTrees[] = {"sys", "proc", "etc", "var", "class", "bus", "devices"};
  std::size_t bytes = 0;
  for (const auto& name : *names) {
    const auto file = path + "/" + name;
    if (is_directory(file)) {
      const bool known = std::ranges::find(kOfTrees, name) != std::end(kOfTrees);
      if (!tree || (!known && is_directory(path + "/sys")))
        evidence.others.push_back({name + "/", "a folder", ReadState::not_used, "only files of one folder are read"});
      continue;
    }
    const auto content = read_file(file, kMaxFileBytes);
    if (!content || (bytes += content->size()) > kMaxAllBytes) {
      evidence.others.push_back(
          {name, "a file", ReadState::failed,
           content ? "it is left out: all files together are too large" : content.status().message()});
      continue;
    }
    for (auto& output : cut_outputs(*content, name)) evidence.outputs.push_back(std::move(output));
  }
  return {};
}

// Keeps the outputs of one host, which most are of, and those that name none; the others' are evidence of their own.
void part_hosts(const std::string& path, Evidence& evidence) {
  std::vector<std::pair<std::string, std::size_t>> hosts;
  std::set<std::string> left_out;
  for (const auto& output : evidence.outputs) {
    const auto host = host_of(output);
    if (host.empty() || output.kind == OutputKind::unknown) continue;
    const auto known = std::ranges::find_if(hosts, [&](const auto& one) { return one.first == host; });
    if (known != hosts.end()) {
      ++known->second;
    } else if (hosts.size() < kMaxHosts) {
      hosts.emplace_back(host, 1);
    } else {
      left_out.insert(host);
    }
  }
  if (!left_out.empty()) {
    evidence.others.push_back(
        {evidence.outputs.front().file, "hosts", ReadState::cut,
         fmt::format("there are more than {}: {} are left out", kMaxHosts, text::count(left_out.size(), "other"))});
    std::erase_if(evidence.outputs, [&](const Output& one) { return left_out.contains(host_of(one)); });
  }
  if (hosts.size() < 2) return;
  const auto most = std::ranges::max_element(hosts, [](const auto& a, const auto& b) { return a.second < b.second; });
  evidence.host = most->first;
  std::string names;
  std::vector<Output> kept;
  std::map<std::string, Evidence> others;
  for (const auto& [host, outputs] : hosts) {
    names += (names.empty() ? "" : ", ") + host;
    if (host != evidence.host) others[host].host = host;
  }
  evidence.others.push_back(
      {evidence.outputs.front().file, "hosts", ReadState::read, fmt::format("{} hosts: {}", hosts.size(), names)});
  for (auto& output : evidence.outputs) {
    const auto other = others.find(host_of(output));
    (other == others.end() ? kept : other->second.outputs).push_back(std::move(output));
  }
  evidence.outputs = std::move(kept);
  for (const auto& [host, outputs] : hosts) {
    const auto other = others.find(host);
    if (other == others.end()) continue;
    Machine base;
    base.name = host;
    auto& one = other->second;
    if (auto status = build_machine(path, std::move(base), one); !status)
      one.others.push_back({{}, host, ReadState::failed, status.message()});
    evidence.hosts.push_back(std::move(one));
  }
}

}  // namespace

Result<Evidence> evidence_of(std::string_view content, const std::string& path) {
  Evidence evidence;
  if (text::trim(content).empty()) return Status(ErrorCode::invalid_argument, path + ": the file is empty");
  evidence.outputs = cut_outputs(content, std::string(file_name(path)));
  Machine base;
  base.name = std::string(file_name(path));
  part_hosts(path, evidence);
  if (auto status = build_machine(path, std::move(base), evidence); !status) return status;
  return evidence;
}

Result<Evidence> read_evidence(const std::string& path) {
  if (!is_directory(path)) {
    const auto content = read_input(path, kMaxFileBytes);
    if (!content) return content.status();
    return evidence_of(*content, input_name(path));
  }
  Evidence evidence;
  Machine base;
  auto folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  base.name = std::string(file_name(folder));
  const bool tree = is_tree(folder);
  if (tree) {
    auto machine = read_tree(folder, evidence);
    if (!machine) return machine.status();
    base = std::move(machine).value();
    evidence.described = true;
  }
  if (auto status = read_folder(folder, tree, evidence); !status) return status;
  part_hosts(folder, evidence);
  if (auto status = build_machine(folder, std::move(base), evidence); !status) return status;
  return evidence;
}

std::vector<TextRead> texts_of(const Evidence& evidence) {
  auto out = evidence.others;
  for (const auto& one : evidence.outputs) {
    if (one.prose && one.kind == OutputKind::unknown) continue;  // words around fences
    TextRead read;
    read.where = one.file;
    if (!one.numbers.empty() && (one.numbers.front() > 1 || !one.command.empty()))
      read.where = fmt::format("{}:{}-{}", one.file, one.numbers.front(), one.numbers.back());
    read.state = one.state;
    read.gave = one.gave;
    if (!evidence.host.empty() && host_of(one) == evidence.host) read.where += " (" + evidence.host + ")";
    read.what = one.kind == OutputKind::unknown || one.kind == OutputKind::failure ? one.command
                                                                                   : std::string(to_string(one.kind));
    if (one.kind == OutputKind::unknown && one.state == ReadState::not_understood) {
      for (const auto line : text::lines(one.text)) {
        if (text::trim(line).empty()) continue;
        read.gave = fmt::format("begins \"{}\"", text::quote(text::trim(line), 60));
        break;
      }
    } else if (one.state == ReadState::not_understood && read.gave.empty()) {
      read.gave = "nothing in it is understood";
    }
    if (one.kind == OutputKind::nvlink && one.text.find("Link ") == std::string::npos) read.what = "nvidia-smi -L";
    if (!one.cut.empty() && one.state == ReadState::read) {
      read.state = ReadState::cut;
      read.gave += "; " + one.cut;
    }
    out.push_back(std::move(read));
  }
  return out;
}

Status not_described(const Evidence& evidence, const std::string& path) {
  std::string what;
  std::size_t shown = 0;
  for (const auto& one : evidence.outputs) {
    if (++shown > 4) break;
    if (one.kind == OutputKind::lspci_drawing) {
      return {ErrorCode::unsupported,
              path +
                  ": the drawing of `lspci -t` names neither NUMA nodes nor links: give `lspci -vvv` (as root), "
                  "which has the tree too"};
    }
    if (one.kind != OutputKind::unknown)
      what += fmt::format("{}{}{}", what.empty() ? "" : ", ", to_string(one.kind),
                          one.state == ReadState::failed ? " (" + one.gave + ")" : "");
  }
  if (what.empty()) {
    return {ErrorCode::unsupported,
            path +
                ": not a Fairway snapshot, hwloc XML, NCCL or RCCL topology XML, a captured tree, or the output of a "
                "known command (docs/topology.md lists them: lspci, nvidia-smi, ibstat, ibv_devinfo, ip, ethtool "
                "and others)"};
  }
  return {ErrorCode::unsupported, fmt::format("{}: holds {}, which says nothing of a machine's parts: give lspci -vvv, "
                                              "nvidia-smi topo -m or ibv_devinfo -v too",
                                              path, what)};
}

namespace {

constexpr std::size_t kMaxFabricBytes = 33U << 20;

Result<Machine> machine_of(Result<Evidence> evidence, const std::string& path) {
  if (!evidence) return evidence.status();
  if (!evidence->described) return not_described(*evidence, path);
  return std::move(evidence->machine);
}

}  // namespace

Result<Machine> load(const std::string& path) {
  return machine_of(read_evidence(path), path);
}

Result<Fabric> load_fabric(const std::string& path) {
  Fabric fabric;
  Result<Machine> machine = Status(ErrorCode::not_found, path);
  if (is_directory(path)) {
    machine = load(path);
  } else {
    const auto content = read_input(path, kMaxFabricBytes);
    if (!content) return content.status();
    if (kind_of_document(*content) == OutputKind::fabric_snapshot)
      return read_fabric_snapshot(*content, input_name(path));
    machine = machine_of(evidence_of(*content, input_name(path)), input_name(path));
  }
  if (!machine) return machine.status();
  fabric.name = machine->name;
  fabric.machines.push_back(std::move(machine).value());
  return fabric;
}

}  // namespace fairway::topology
