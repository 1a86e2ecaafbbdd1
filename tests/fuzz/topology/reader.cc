// Feeds one reader of machine files, named by FAIRWAY_FUZZ_READER, with any bytes: it must give a valid machine that
// every judgement can look at, or a status with words.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/assess.h"
#include "topology/commands/command_text.h"
#include "topology/load.h"
#include "topology/sysfs.h"

namespace {

using namespace fairway;
using namespace fairway::topology;

void use(const Machine& machine) {
  if (!validate(machine)) std::abort();
  (void)path_matrix(machine);
  (void)edges(machine);
  (void)lint(machine);
  (void)rail_verdicts(machine);
  (void)diff(machine, machine);
  (void)export_nccl_xml(machine);
  const auto text = write_snapshot(machine, {.keep_identities = true});
  if (!text) return;  // a build without JSON
  const auto again = read_snapshot(*text, "again");
  if (!again || !(*again == machine)) std::abort();
}

void use(const Result<Machine>& machine) {
  if (machine) return use(*machine);
  if (machine.status().message().empty()) std::abort();
}

[[maybe_unused]] void fuzz_snapshot(std::string_view text) {
  use(read_snapshot(text, "fuzz"));
}
[[maybe_unused]] void fuzz_hwloc_xml(std::string_view text) {
  use(read_hwloc_xml(text, "fuzz"));
}
[[maybe_unused]] void fuzz_nccl_xml(std::string_view text) {
  use(read_nccl_xml(text, "fuzz"));
}
[[maybe_unused]] void fuzz_topo_matrix(std::string_view text) {
  use(read_topo_matrix(text, "fuzz"));
}
[[maybe_unused]] void fuzz_commands(std::string_view text) {
  Machine machine;
  (void)cut_outputs(text, "fuzz");
  if (const auto evidence = evidence_of(text, "fuzz")) use(evidence->machine);
  read_lspci(text, "fuzz", machine);
  read_ibv_devinfo(text, "fuzz", machine);
  read_ibdev2netdev(text, "fuzz", machine);
  read_ip_link(text, "fuzz", machine);
  read_ip_brief(text, "fuzz", machine);
  read_gpu_query(text, "fuzz", machine);
  read_sysfs_links(text, "fuzz", machine);
  join_gpus_by_bus_order(machine);
  read_bonding(text, "bond0", Source::bonding, machine);
  complete(machine);
  use(machine);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FAIRWAY_FUZZ_READER(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
