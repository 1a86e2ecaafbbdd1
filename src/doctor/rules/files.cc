#include "doctor/rules/common.h"

// Files that speak for the machine: topology overrides, and what it was before.
namespace fairway::doctor {
namespace {

void topology_file(const Look& look, Saying& say) {
  const auto* file = look.facts.find("topology_file.path");
  if (file == nullptr) {
    return say.lacks("no topology file is named (NCCL_TOPO_FILE of the job), or its environment is not known");
  }
  const auto said = look.facts.below("topology_file.says");
  if (said.empty()) return;
  Finding finding;
  finding.title = fmt::format("The topology file {} contradicts the machine ({} time{})", file->value, said.size(),
                              said.size() == 1 ? "" : "s");
  finding.level = Level::warning;
  finding.path = "every job with this file";
  for (const auto& [number, seen] : said) {
    if (finding.evidence.size() < 8) finding.evidence.push_back({seen->value, seen->where});
  }
  finding.fix = {"unset NCCL_TOPO_FILE", "fairway topo export nccl -o topo.xml    # one that agrees",
                 fmt::format("fairway topo lint {} --against this", file->value)};
  finding.advice = "Swapped masks pin threads to the wrong socket; unknown bus ids end in a failure to start.";
  say.add(std::move(finding));
}

void changed(const Look& look, Saying& say) {
  if (look.before_machine == nullptr) return say.lacks("no baseline: --baseline FILE, written by --save");
  std::size_t notes = 0;
  for (const auto& difference : topology::diff(*look.before_machine, look.machine())) {
    // Readings that other rules judge, and names of states.
    if (difference.cost <= 0 && ++notes > 20) continue;
    Finding finding;
    finding.title =
        fmt::format("{}: {} was {} and is {}", difference.subject, difference.field, difference.a, difference.b);
    finding.level = difference.cost > 0 ? Level::warning : Level::note;
    finding.path = difference.subject;
    finding.evidence = {{difference.text, "the baseline against now"}};
    for (std::uint32_t i = 0; i < look.machine().nics.size(); ++i) {
      if ("NIC " + look.machine().nics[i].name == difference.subject) finding.devices = {nic_ref(i)};
    }
    for (std::uint32_t i = 0; i < look.machine().gpus.size(); ++i) {
      if (fmt::format("GPU{}", look.machine().gpus[i].ordinal) == difference.subject) finding.devices = {gpu_ref(i)};
    }
    if (difference.cost > 0 && !finding.devices.empty()) {
      put(finding, cost_of_share(look, flows_through(look.machine(), finding.devices.front()), difference.cost));
    }
    finding.fix = {"# what was done to this machine since the baseline: firmware, cables, slots, BIOS"};
    say.add(std::move(finding));
  }
  if (look.before == nullptr) return;
  for (const auto& [name, seen] : look.before->all()) {
    // Counts and loads move by themselves.
    if (name.starts_with("net.") || name.starts_with("kernel.xid") || name.starts_with("env.") ||
        name.ends_with(".load") || name.ends_with(".irq_cpus") || name.ends_with(".throttle") ||
        name.starts_with("kernel.log"))
      continue;
    const auto* now = look.facts.find(name);
    if (now == nullptr || now->value == seen.value) continue;
    Finding finding;
    finding.title = fmt::format("{} was {} and is {}", name, topology::text::quote(seen.value, 80),
                                topology::text::quote(now->value, 80));
    finding.level = Level::note;
    finding.evidence = {{"then: " + topology::text::quote(seen.value, 200), seen.where},
                        {"now: " + topology::text::quote(now->value, 200), now->where}};
    finding.advice = "If it was changed on purpose, save a new baseline.";
    say.add(std::move(finding));
  }
}

constexpr Rule kRules[] = {
    {"topology-file", Family::files, "A topology file contradicts the machine",
     "16 ranks aborted; a published file has the masks of two nodes swapped.",
     "The file that NCCL_TOPO_FILE names: bus ids that do not exist, NUMA masks that differ or are swapped, more nodes "
     "than "
     "NCCL takes.",
     "Correct or drop the file.", "aws-ofi-nccl, pull request 1226; a published ndv5 file", topology_file},
    {"changed", Family::files, "The machine differs from its baseline",
     "x8 in place of x16 went unnoticed between two hosts.",
     "Everything that a baseline recorded, but for counts: widths, speeds, firmware, addresses, settings.",
     "Undo the change, or save a new baseline.", "nccl#2397", changed},
};

}  // namespace

std::span<const Rule> file_rules() {
  return kRules;
}

}  // namespace fairway::doctor
