#include "doctor/rules/common.h"

// Files about the machine: topology overrides, and baselines.
namespace fairway::doctor {
namespace {

void topology_file(const RuleInput& input, RuleResult& result) {
  const auto* file = input.facts.find("topology_file.path");
  if (file == nullptr) {
    return result.lacks("no NCCL_TOPO_FILE in the environment (run the doctor inside the job)");
  }
  const auto said = input.facts.below("topology_file.says");
  if (said.empty()) return;
  Finding finding;
  finding.title = fmt::format("The topology file {} contradicts the machine ({} time{})", file->value, said.size(),
                              said.size() == 1 ? "" : "s");
  finding.level = Level::warning;
  finding.path = "every job with this file";
  for (const auto& [number, seen] : said) {
    if (finding.evidence.size() < 8) finding.evidence.push_back({seen->value, seen->where});
  }
  finding.fix = {"unset NCCL_TOPO_FILE", "fairway topo export nccl -o topo.xml    # writes one that agrees",
                 fmt::format("fairway topo lint {} --against this", file->value)};
  finding.advice = "With swapped masks NCCL pins threads to the wrong socket; with unknown bus ids it fails to start.";
  result.add(std::move(finding));
}

void changed(const RuleInput& input, RuleResult& result) {
  if (input.before_machine == nullptr) return result.lacks("no baseline (--baseline with a file that --save wrote)");
  std::size_t notes = 0;
  for (const auto& difference : topology::diff(*input.before_machine, input.machine())) {
    // Differences without a cost: 20 are enough.
    if (difference.cost <= 0 && ++notes > 20) continue;
    Finding finding;
    finding.title =
        difference.field == "presence"
            ? fmt::format("{} is {} since the baseline", difference.subject, difference.b_is_better ? "new" : "missing")
            : fmt::format("{}: {} was {} and is {}", difference.subject, difference.field, difference.a, difference.b);
    const bool worse = difference.cost > 0 && !difference.b_is_better;
    finding.level = worse ? Level::warning : Level::note;
    finding.path = difference.subject;
    finding.evidence = {{"then: " + difference.a, "the baseline"}, {"now: " + difference.b, "this machine"}};
    for (std::uint32_t i = 0; i < input.machine().nics.size(); ++i) {
      if ("NIC " + input.machine().nics[i].name == difference.subject) finding.devices = {nic_ref(i)};
    }
    for (std::uint32_t i = 0; i < input.machine().gpus.size(); ++i) {
      if (fmt::format("GPU{}", input.machine().gpus[i].ordinal) == difference.subject) finding.devices = {gpu_ref(i)};
    }
    if (worse && !finding.devices.empty()) {
      cost_of_share(input, flows_through(input.machine(), finding.devices.front()), difference.cost).write_to(finding);
    }
    finding.fix = {"# ask what was done to this machine since the baseline: firmware, cables, slots, BIOS"};
    result.add(std::move(finding));
  }
  if (input.before == nullptr) return;
  for (const auto& [name, seen] : input.before->all()) {
    // Counters and loads always change.
    if (name.starts_with("net.") || name.starts_with("kernel.xid") || name.starts_with("env.") ||
        name.ends_with(".load") || name.ends_with(".irq_cpus") || name.ends_with(".throttle") ||
        name.starts_with("kernel.log"))
      continue;
    const auto* now = input.facts.find(name);
    if (now == nullptr || now->value == seen.value) continue;
    Finding finding;
    finding.title = fmt::format("{} was {} and is {}", name, topology::text::quote(seen.value, 80),
                                topology::text::quote(now->value, 80));
    finding.level = Level::note;
    finding.evidence = {{"then: " + topology::text::quote(seen.value, 200), seen.where},
                        {"now: " + topology::text::quote(now->value, 200), now->where}};
    finding.advice = "If it was changed on purpose, save a new baseline.";
    result.add(std::move(finding));
  }
}

constexpr Rule kRules[] = {
    {"topology-file", Family::files, "A topology file contradicts the machine",
     "16 ranks aborted; a published file has the NUMA masks of two nodes swapped.",
     "The file that NCCL_TOPO_FILE names: bus ids that do not exist, NUMA masks that differ or are swapped, more NUMA "
     "nodes than NCCL takes.",
     "Correct or drop the file.", "aws-ofi-nccl, pull request 1226; a published ndv5 file", topology_file},
    {"changed", Family::files, "The machine differs from its baseline",
     "x8 in place of x16 went unnoticed between two hosts.",
     "Everything that a baseline recorded, except counters: widths, speeds, firmware, addresses, settings.",
     "Undo the change, or save a new baseline.", "nccl#2397", changed},
};

}  // namespace

std::span<const Rule> file_rules() {
  return kRules;
}

}  // namespace fairway::doctor
