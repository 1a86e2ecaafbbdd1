#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "topology/machine.h"
#include "topology/output.h"

// Machines from files, and to files. Any content gives a machine or a Status that names the file, the line if there is
// one, and the reason. Nothing is invented: the notes list what a file lacks.
namespace fairway::topology {

// A file or folder as evidence about one machine: read once, cut into outputs, each read by its one reader.
struct Evidence {
  Machine machine;         // complete and valid; empty where nothing describes it
  bool described = false;  // whether anything said what the machine is made of
  // All outputs, in the order of files. Those that say nothing of the machine's parts are left at `not_understood`,
  // with their kind, for other readers.
  std::vector<Output> outputs;
  // Of the other hosts whose outputs are in the same texts; none of them has hosts of its own.
  std::vector<Evidence> hosts;
  std::string host;              // its name, where there are several
  std::vector<TextRead> others;  // what is no text: captured trees, folders, files that could not be read
};

// A file, a folder of files, or a captured tree, which may have files beside sys/ and proc/. Fails if the path cannot
// be read, or is a document (snapshot, XML) that is none.
Result<Evidence> read_evidence(const std::string& path);
Result<Evidence> evidence_of(std::string_view content, const std::string& path);

// Reads the outputs that describe parts of the machine, adds them to `machine`, and keeps it in the evidence. Fails
// where the only output is a document that cannot be read.
Status build_machine(const std::string& path, Machine machine, Evidence& evidence);

// Why there is no machine: what was given, and what became of it.
Status not_described(const Evidence& evidence, const std::string& path);
// For reports: `others`, then the outputs. An output whose reader is `not_understood` is named by its first words.
std::vector<TextRead> texts_of(const Evidence& evidence);

// A machine from whatever the path holds.
Result<Machine> load(const std::string& path);
// A fabric; a path that holds one machine gives a fabric of one.
Result<Fabric> load_fabric(const std::string& path);

// By kind, from memory; `name` stands for the file in messages.
Result<Machine> read_snapshot(std::string_view text, const std::string& name);
Result<Fabric> read_fabric_snapshot(std::string_view text, const std::string& name);
Result<Machine> read_hwloc_xml(std::string_view text, const std::string& name);
Result<Machine> read_nccl_xml(std::string_view text, const std::string& name);
// `first_line`: the text's first line in its file.
Result<Machine> read_topo_matrix(std::string_view text, const std::string& name, std::size_t first_line = 1);

// From a directory: a captured root with sys/, a sys/, or a class/infiniband.
Result<Machine> read_sysfs_tree(const std::string& directory);

// The snapshot's JSON (docs/schemas); version 1 is read too. `keep_identities` false scrubs first.
inline constexpr int kSnapshotVersion = 2;
struct SnapshotOptions {
  bool keep_identities =
      false;  // serials, GUIDs, MACs, addresses, host name: leave off for a file that others will see
};
Result<std::string> write_snapshot(const Machine& machine, const SnapshotOptions& options = {});
Result<std::string> write_snapshot(const Fabric& fabric, const SnapshotOptions& options = {});

struct Exported {
  std::string text;
  std::vector<Note> lost;  // NoteKind::lost: what this format cannot say of this machine
};

// For NCCL_TOPO_FILE. Fails with unsupported where the machine has no PCI tree.
Result<Exported> export_nccl_xml(const Machine& machine);

}  // namespace fairway::topology
