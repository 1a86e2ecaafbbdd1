#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "fairway/status.h"

#include "topology/fabric.h"
#include "topology/machine.h"

// Machines from files. Any content gives a machine or a Status that names the file, the line if there is one, and the
// reason. Nothing is invented: the notes list what a file lacks.
namespace fairway::topology {

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

}  // namespace fairway::topology
