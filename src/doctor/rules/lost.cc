#include "doctor/rules/common.h"

// GPUs that do not answer, or not rightly.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

// The GPU or NIC that "GPU1" or a bus id names.
NodeRef node_named(const Machine& machine, const std::string& name) {
  const auto bus = topology::BusId::parse(name);
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto pci = machine.gpus[gpu].pci;
    if (bus && pci && machine.pci[pci.index].bus_id == *bus) return gpu_ref(gpu);
    if (name == topology::gpu_name(machine, machine.gpus[gpu])) return gpu_ref(gpu);
  }
  for (std::uint32_t nic = 0; bus && nic < machine.nics.size(); ++nic) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (pci && machine.pci[pci.index].bus_id == *bus) return nic_ref(nic);
  }
  return {};
}

// What the driver itself says it needs.
bool asks_for_recovery(const RuleInput& input, std::uint32_t gpu, RuleResult& result) {
  const auto& machine = input.machine();
  const auto reset = gpu_fact(machine, gpu, "reset_required");
  const auto drain = gpu_fact(machine, gpu, "drain_recommended");
  const auto action = gpu_fact(machine, gpu, "recovery_action");
  const auto asked = text::lower(input.facts.text(action));
  const bool must = text::lower(input.facts.text(reset)) == "yes";
  const bool acts = !asked.empty() && asked != "none" && asked != "n/a";
  const bool should = text::lower(input.facts.text(drain)) == "yes";
  if (!must && !acts && !should) return false;
  const auto name = name_of(machine, gpu_ref(gpu));
  Finding finding;
  finding.devices = {gpu_ref(gpu)};
  finding.level = must || asked.find("reboot") != std::string::npos || asked.find("gpu reset") != std::string::npos
                      ? Level::broken
                      : Level::warning;
  finding.title = must ? fmt::format("{} needs a reset before it can be used", name)
                       : fmt::format("{}: its driver asks for: {}", name, acts ? asked : "drain and reset");
  finding.path = name;
  finding.cause = fmt::format("gpu {}", gpu);
  if (must) finding.evidence.push_back(evidence_of(input.facts, reset, "reset required"));
  if (acts) finding.evidence.push_back(evidence_of(input.facts, action, "GPU recovery action: " + asked));
  if (should) finding.evidence.push_back(evidence_of(input.facts, drain, "drain and reset recommended"));
  finding.fix = {asked.find("reboot") != std::string::npos
                     ? interrupting("reboot", Interrupts::gpus, "and all others of this host")
                     : reset_of(machine, gpu)};
  finding.advice = "Drain the node first.";
  result.add(std::move(finding));
  return true;
}

void lost(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  struct Kind {
    const char* fact;
    Level level;
    const char* title;
  };
  static constexpr Kind kKinds[] = {{"lost", Level::broken, " does not answer: it is lost"},
                                    {"unusable", Level::broken, ": its driver could not start it"},
                                    {"unread", Level::warning, ": its driver cannot read all of its state"}};
  for (const auto& kind : kKinds) {
    for (const auto& [name, seen] : input.facts.below(kind.fact)) {
      any = true;
      const auto node = node_named(machine, name);
      const bool gpu = node.kind == NodeKind::gpu;
      Finding finding;
      if (node.kind != NodeKind::none) finding.devices = {node};
      const auto called = node.kind == NodeKind::none ? name : name_of(machine, node);
      finding.level = kind.level;
      finding.title = called + kind.title;
      finding.path = called;
      finding.cause = gpu ? fmt::format("gpu {}", node.index) : "lost " + called;
      finding.evidence.push_back({seen->value, seen->where});
      finding.fix = {"dmesg | grep -E 'NVRM|Xid|AER'    # why: XID 79, power, the slot",
                     gpu ? reset_of(machine, node.index, "a lost GPU needs more")
                         : interrupting("nvidia-smi -r", Interrupts::gpus, "a lost GPU needs more"),
                     interrupting("reboot", Interrupts::gpus, "and all others of this host")};
      finding.advice =
          "Drain the node first. If it is lost again, power the server off and on, then reseat or replace it.";
      result.add(std::move(finding));
    }
  }
  for (const auto gpu : nvidia_gpus(machine)) any = asks_for_recovery(input, gpu, result) || any;
  if (any) return;
  if (machine.gpus.empty()) return result.not_applicable();
  const auto told = [&](std::uint32_t gpu) {
    return !input.facts.below(fmt::format("gpu.{}", machine.gpus[gpu].ordinal)).empty();
  };
  for (const auto gpu : nvidia_gpus(machine)) {
    if (!told(gpu)) return result.lacks(input.facts.why_not(fmt::format("gpu.{}", machine.gpus[gpu].ordinal)));
  }
}

// The driver's count of packets that GPU or slot had to send again.
void replays(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto key = gpu_fact(machine, gpu, "pcie_replays");
    const auto now = input.facts.number(key);
    if (!now) continue;
    any = true;
    constexpr double kSome = 1000;
    constexpr double kMany = 100000;
    if (*now < kSome) continue;
    Finding finding;
    finding.title = fmt::format("{}: {:.0f} replays on its PCIe link", name_of(machine, gpu_ref(gpu)), *now);
    finding.level = *now < kMany ? Level::note : Level::warning;
    finding.devices = {gpu_ref(gpu)};
    finding.path = name_of(machine, gpu_ref(gpu));
    finding.evidence.push_back(evidence_of(input.facts, key, fmt::format("{:.0f} replays since reset", *now)));
    finding.fix = {"nvidia-smi -q -d PCIE    # do they grow?"};
    finding.advice = "Reseat the card; check its contacts, the riser and the slot.";
    result.add(std::move(finding));
  }
  if (any) return;
  if (nvidia_gpus(machine).empty()) return result.not_applicable();
  result.lacks("the replays of GPUs' links (nvidia-smi -q)");
}

constexpr Rule kRules[] = {
    {"gpu-lost", Family::gpu, "A GPU is lost, or cannot be read", "Jobs on it fail or hang, and those with them.",
     "What tools print where they cannot read: ERR!, [Unknown Error], GPU is lost; a sentence in place of a table; "
     "lspci's (rev ff); a reset that the driver asks for; its lines in the kernel's log without an XID, such as "
     "RmInitAdapter failed. A warning where few values alone are missing.",
     "Drain the node; reset the GPU or reboot, which ends jobs.", "NVIDIA's XID catalogue, XID 79", lost},
    {"pcie-replays", Family::pcie, "A GPU's PCIe link sends packets again", "Retries; a link that is about to fail.",
     "nvidia-smi -q, Replays Since Reset: a note from 1,000 on, a warning from 100,000.",
     "Reseat the card; check riser and slot.", "no figure", replays},
};

}  // namespace

std::span<const Rule> lost_rules() {
  return kRules;
}

}  // namespace fairway::doctor
