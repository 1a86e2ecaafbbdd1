#include "topology/load.h"

#include <algorithm>

#include <fmt/format.h>

#include "topology/command_text.h"
#include "topology/file.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr std::size_t kMaxFileBytes = 33U << 20;

FileKind kind_of_directory(const std::string& path) {
  if (is_directory(path + "/sys") || is_directory(path + "/class/infiniband") || is_directory(path + "/class/net") ||
      is_directory(path + "/bus/pci/devices")) {
    return FileKind::sysfs_tree;
  }
  if (const auto names = list_directory(path, 4096)) {
    for (const auto& name : *names) {
      if (is_directory(path + "/" + name + "/ports/1")) return FileKind::sysfs_tree;
    }
  }
  return FileKind::command_folder;
}

FileKind kind_of_text(std::string_view content) {
  const auto head = text::trim(content.substr(0, 64 * 1024));
  if (head.starts_with('{')) {
    const auto start = head.substr(0, 4096);  // version 1 was named with a space
    return start.find("\"fairway-fabric\"") != start.npos || start.find("\"fairway fabric\"") != start.npos
               ? FileKind::fabric_snapshot
               : FileKind::snapshot;
  }
  if (head.starts_with('<')) {
    if (head.find("<system") != head.npos) return FileKind::nccl_xml;
    if (head.find("<topology") != head.npos) return FileKind::hwloc_xml;
    return FileKind::unknown;
  }
  const auto kind = recognise_command(content);
  return kind == CommandKind::topo_matrix ? FileKind::topo_matrix
         : kind == CommandKind::lspci     ? FileKind::lspci
                                          : FileKind::unknown;
}

Status not_understood(const std::string& path, std::string_view content) {
  if (content.empty()) return {ErrorCode::invalid_argument, path + ": the file is empty"};
  if (is_lspci_drawing(content)) {
    return {ErrorCode::unsupported,
            path +
                ": the drawing of `lspci -t` names neither NUMA nodes nor links: give `lspci -vvv` (as root), which "
                "has the tree too"};
  }
  if (recognise_command(content) != CommandKind::unknown) {
    return {ErrorCode::unsupported,
            path +
                ": the output of one command, which says too little alone: save it in a folder with others (lspci "
                "-vvv, ibv_devinfo -v, nvidia-smi topo -m) and name the folder"};
  }
  return {ErrorCode::unsupported,
          path +
              ": not a Fairway snapshot, hwloc XML, NCCL or RCCL topology XML, or the output of nvidia-smi topo -m "
              "or lspci"};
}

Result<Machine> read_lspci_file(std::string_view content, const std::string& path) {
  Machine machine;
  machine.name = std::string(file_name(path));
  read_lspci(content, machine.name, machine);
  if (std::none_of(machine.pci.begin(), machine.pci.end(),
                   [](const PciDevice& one) { return one.class_code.known(); })) {
    return Status(ErrorCode::unsupported,
                  path + ": names no class of any device, as `lspci -n` does not: give `lspci -vvv` (as root)");
  }
  complete(machine);
  if (machine.host_bridges.empty()) {
    add_note(machine, NoteKind::unknown, "",
             "this list names no bridges' buses, so nothing has a place: `lspci -vvv` (as root) has them");
  }
  if (auto status = validate(machine); !status) return status.with_context(path);
  return machine;
}

struct Content {
  FileKind kind = FileKind::unknown;
  std::string text;  // empty for a directory
};

Result<Content> open(const std::string& path) {
  if (is_directory(path)) return Content{kind_of_directory(path), {}};
  auto text = read_file(path, kMaxFileBytes);
  if (!text) return text.status();
  const auto kind = kind_of_text(*text);
  return Content{kind, std::move(text).value()};
}

}  // namespace

Result<FileKind> recognise(const std::string& path) {
  const auto content = open(path);
  if (!content) return content.status();
  return content->kind;
}

Result<Machine> load(const std::string& path) {
  const auto content = open(path);
  if (!content) return content.status();
  switch (content->kind) {
    case FileKind::snapshot: return read_snapshot(content->text, path);
    case FileKind::hwloc_xml: return read_hwloc_xml(content->text, path);
    case FileKind::nccl_xml: return read_nccl_xml(content->text, path);
    case FileKind::topo_matrix: return read_topo_matrix(content->text, path);
    case FileKind::lspci: return read_lspci_file(content->text, path);
    case FileKind::sysfs_tree: return read_sysfs_tree(path);
    case FileKind::command_folder: return read_command_folder(path);
    case FileKind::fabric_snapshot: {
      auto fabric = read_fabric_snapshot(content->text, path);
      if (!fabric) return fabric.status();
      if (fabric->machines.size() == 1) return fabric->machines.front();
      return Status(ErrorCode::invalid_argument,
                    fmt::format("{}: has {} machines, and this needs one", path, fabric->machines.size()));
    }
    case FileKind::unknown: break;
  }
  return not_understood(path, content->text);
}

Result<Fabric> load_fabric(const std::string& path) {
  const auto content = open(path);
  if (!content) return content.status();
  if (content->kind == FileKind::fabric_snapshot) return read_fabric_snapshot(content->text, path);
  auto machine = load(path);
  if (!machine) return machine.status();
  Fabric fabric;
  fabric.name = machine->name;
  fabric.machines.push_back(std::move(machine).value());
  return fabric;
}

}  // namespace fairway::topology
