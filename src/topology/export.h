#pragma once

#include <string>
#include <vector>

#include "fairway/status.h"

#include "topology/machine.h"

namespace fairway::topology {

struct Exported {
  std::string text;
  std::vector<Note> lost;  // NoteKind::lost: what this format cannot say of this machine
};

// For NCCL_TOPO_FILE. Fails with unsupported where the machine has no PCI tree.
Result<Exported> export_nccl_xml(const Machine& machine);

}  // namespace fairway::topology
