#include "topology/load.h"

#include "topology/evidence.h"
#include "topology/file.h"

namespace fairway::topology {

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
