#include <algorithm>

#include "doctor/rules/common.h"

// GPUs: those that do not answer, or not rightly, and the state of the others.
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
  auto& finding = result.add();
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
      auto& finding = result.add();
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
    auto& finding = result.add();
    finding.title = fmt::format("{}: {:.0f} replays on its PCIe link", name_of(machine, gpu_ref(gpu)), *now);
    finding.level = *now < kMany ? Level::note : Level::warning;
    finding.devices = {gpu_ref(gpu)};
    finding.path = name_of(machine, gpu_ref(gpu));
    finding.evidence.push_back(evidence_of(input.facts, key, fmt::format("{:.0f} replays since reset", *now)));
    finding.fix = {"nvidia-smi -q -d PCIE    # do they grow?"};
    finding.advice = "Reseat the card; check its contacts, the riser and the slot.";
  }
  if (any) return;
  if (nvidia_gpus(machine).empty()) return result.not_applicable();
  result.lacks("the replays of GPUs' links (nvidia-smi -q)");
}

constexpr Rule kLostRules[] = {
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
  return kLostRules;
}

// ---- the state of those that answer ----

namespace {

void peer_refused(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.gpus.size() < 2) return result.not_applicable();
  std::vector<NodeRef> mig;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    if (text::lower(input.facts.text(gpu_fact(machine, gpu, "mig"))) == "enabled") mig.push_back(gpu_ref(gpu));
  }
  Finding finding;
  finding.cause = "peer access";
  std::vector<NodeRef> geforce;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    if (topology::has_no_peer_access(machine.gpus[gpu])) geforce.push_back(gpu_ref(gpu));
  }
  if (machine.peers.empty() && geforce.size() > 1) {
    auto& none = result.add();
    none.title = fmt::format("{}: GPUs of this model have no peer access", folded_names(machine, geforce));
    none.level = Level::note;  // the machine is built that way
    none.devices = geforce;
    none.path = "GPU - GPU";
    none.evidence.push_back({*machine.gpus[geforce.front().index].model,
                             source_of(machine.gpus[geforce.front().index].model.source, "model")});
    none.fix = {"nvidia-smi topo -p2p w    # the driver's own word"};
    none.advice = "Copies between them go through host memory, at about half the rate of one PCIe link.";
    return;
  }
  if (machine.peers.empty() && mig.empty())
    return result.lacks("whether the driver allows access between GPUs is not recorded");
  std::size_t refused = 0;
  std::size_t unplaced = 0;
  Finding untold;  // how they are joined is not known
  for (const auto& peer : machine.peers) {
    if (!peer.write.known() || *peer.write) continue;
    const auto path = topology::path_class(machine, gpu_ref(peer.from.index), gpu_ref(peer.to.index));
    // Across sockets drivers refuse it by design.
    const bool unknown = !path || path->kind == PathKind::unknown;
    if (!unknown && path->kind == PathKind::sys && !topology::is_virtual(machine)) continue;
    if (unknown && !machine.host_bridges.empty() && !topology::is_virtual(machine)) continue;
    const bool here = !unknown || topology::is_virtual(machine);
    ++(here ? refused : unplaced);
    auto& into = here ? finding : untold;
    into.devices.push_back(gpu_ref(peer.from.index));
    if (into.evidence.size() < 4) {
      into.evidence.push_back({fmt::format("{} to {}: {}", name_of(machine, gpu_ref(peer.from.index)),
                                           name_of(machine, gpu_ref(peer.to.index)), peer.refusal.value_or("refused")),
                               source_of(peer.write.source, "peer access")});
    }
  }
  if (refused > 0) {
    finding.title = fmt::format("The driver refuses peer access between GPUs ({} pairs)", refused);
    finding.fix = {"nvidia-smi topo -p2p w", "# check MIG, IOMMU translation, ACS and the driver's NVreg_ settings"};
    finding.path = "GPU - GPU";
    finding.advice = "Copies between them go through host memory.";
    result.add(finding);
  }
  if (unplaced > 0 && refused == 0) {
    untold.title = fmt::format(
        "The driver refuses peer access between GPUs ({} pairs), and how they are joined is not "
        "known",
        unplaced);
    untold.level = Level::note;
    untold.cause = "peer access";
    untold.path = "GPU - GPU";
    untold.fix = {
        "nvidia-smi topo -m    # across sockets (SYS) it is refused by design; rocm-smi --showtopo for AMD's"};
    untold.advice = "Copies between them go through host memory.";
    result.add(std::move(untold));
  }
  if (!mig.empty()) {
    auto& split = result.add();
    split.title = fmt::format("{}: MIG is on, so there is no peer access between GPUs", folded_names(machine, mig));
    split.devices = mig;
    split.cause = "peer access";
    split.level = Level::warning;
    split.path = "GPU - GPU";
    for (const auto& gpu : mig)
      split.evidence.push_back(evidence_of(input.facts, gpu_fact(machine, gpu.index, "mig"), "MIG enabled"));
    split.fix = {interrupting("nvidia-smi -mig 0", Interrupts::gpus)};
  }
}

void persistence(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto gpus = nvidia_gpus(machine);
  if (gpus.empty()) return result.not_applicable();
  std::vector<NodeRef> off;
  for (const auto gpu : gpus) {
    const auto key = gpu_fact(machine, gpu, "persistence");
    const auto state = text::lower(input.facts.text(key));
    if (state.empty()) result.lacks(input.facts.why_not(key));
    if (state == "disabled") off.push_back(gpu_ref(gpu));
  }
  if (off.empty()) return;
  auto& finding = result.add();
  finding.title = fmt::format("Persistence mode of {} is off", folded_names(machine, off));
  finding.level = Level::note;
  finding.devices = off;
  finding.evidence.push_back(
      evidence_of(input.facts, gpu_fact(machine, off.front().index, "persistence"), "persistence mode disabled"));
  finding.fix = {"systemctl enable --now nvidia-persistenced"};
  finding.advice = "Without it the first use of an idle GPU takes seconds.";
}

// Its temperature where that is known together with the one at which it slows down; no words: it is below.
std::optional<Evidence> heat_of(const RuleInput& input, std::uint32_t gpu) {
  const auto& machine = input.machine();
  const auto number = [&](std::string_view what) { return input.facts.number(gpu_fact(machine, gpu, what)); };
  const auto now = number("celsius");
  const auto slows = number("slowdown_celsius");
  const auto margin = number("limit_margin");
  const auto least = number("slowdown_margin");
  const auto seen_at = [&](std::string_view what, std::string words) {
    return Evidence{std::move(words), input.facts.find(gpu_fact(machine, gpu, what))->where};
  };
  if (now && slows)
    return seen_at("celsius", *now < *slows ? "" : fmt::format("{:g} C, it slows down at {:g}", *now, *slows));
  if (margin && least) {
    return seen_at("limit_margin", *margin > *least
                                       ? ""
                                       : fmt::format("{:g} C below its limit, it slows down at {:g}", *margin, *least));
  }
  return {};
}

void throttled(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto gpus = nvidia_gpus(machine);
  if (gpus.empty()) return result.not_applicable();
  for (const auto gpu : gpus) {
    const auto key = gpu_fact(machine, gpu, "throttle");
    const auto* seen = input.facts.find(key);
    const auto hot = heat_of(input, gpu);
    if (seen == nullptr && !hot) {
      result.lacks(input.facts.why_not(key));
      continue;
    }
    // Idle clocks, application clocks and power caps are normal; these reasons mean heat or hardware.
    std::string why;
    for (const auto* reason : {"hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"}) {
      if (seen != nullptr && seen->value.find(reason) != std::string::npos)
        why += (why.empty() ? "" : ", ") + std::string(reason);
    }
    if (why.empty() && (!hot || hot->text.empty())) continue;
    auto& finding = result.add();
    finding.title = why.empty() ? fmt::format("{} is too hot: {}", name_of(machine, gpu_ref(gpu)), hot->text)
                                : fmt::format("{} is throttled: {}", name_of(machine, gpu_ref(gpu)), why);
    finding.devices = {gpu_ref(gpu)};
    finding.path = paths_text(machine, flows_through(machine, gpu_ref(gpu)));
    if (!why.empty()) finding.evidence.push_back(evidence_of(input.facts, key));
    if (hot && !hot->text.empty()) finding.evidence.push_back(*hot);
    finding.fix = {fmt::format("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {}", smi_id(machine, gpu))};
    finding.advice = "Check cooling and power of this server.";
  }
}

void broken_memory(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  auto gpus = nvidia_gpus(machine);
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const bool told = input.facts.find(gpu_fact(machine, gpu, "ecc_uncorrected")) != nullptr;
    if (told && std::ranges::find(gpus, gpu) == gpus.end()) gpus.push_back(gpu);
  }
  if (gpus.empty()) return result.not_applicable();
  for (const auto gpu : gpus) {
    const auto remap = gpu_fact(machine, gpu, "remap_failure");
    const auto pending = gpu_fact(machine, gpu, "remap_pending");
    const auto errors = gpu_fact(machine, gpu, "ecc_uncorrected");
    const auto page = gpu_fact(machine, gpu, "page_pending");  // of GPUs older than the remapping of rows
    const auto sram = gpu_fact(machine, gpu, "sram_threshold");
    const auto is_so = [&](const std::string& fact) { return text::lower(input.facts.text(fact)) == "yes"; };
    const bool exceeded = is_so(sram);
    const bool failed = is_so(remap);
    const bool waits = is_so(pending) || is_so(page);
    const auto knows = [&](const std::string& fact) { return input.facts.find(fact) != nullptr; };
    if (!knows(remap) && !knows(errors) && !knows(pending) && !exceeded && !waits) {
      result.lacks(input.facts.why_not(remap));
      continue;
    }
    const auto uncorrected = input.facts.number(errors).value_or(0);
    if (!failed && !waits && !exceeded && uncorrected == 0) continue;
    auto& finding = result.add();
    finding.devices = {gpu_ref(gpu)};
    finding.level = failed ? Level::broken : Level::warning;
    const auto name = name_of(machine, gpu_ref(gpu));
    finding.path = name;
    finding.title = failed     ? name + ": remapping of a bad memory row failed"
                    : exceeded ? name + ": more errors of its SRAM than its maker allows"
                    : waits    ? name + ": the retirement of bad memory waits for a reset"
                               : fmt::format("{}: {:.0f} uncorrected memory errors", name, uncorrected);
    finding.cause = fmt::format("gpu {}", gpu);
    if (failed) finding.evidence.push_back(evidence_of(input.facts, remap, "remapping failure occurred"));
    if (exceeded) finding.evidence.push_back(evidence_of(input.facts, sram, "SRAM threshold exceeded"));
    if (waits)
      finding.evidence.push_back(evidence_of(input.facts, is_so(pending) ? pending : page, "pending: a reset is due"));
    if (uncorrected > 0)
      finding.evidence.push_back(
          evidence_of(input.facts, errors, fmt::format("{:.0f} uncorrected errors", uncorrected)));
    const bool nvidia = machine.gpus[gpu].vendor.value_or("NVIDIA") == "NVIDIA";
    finding.fix = {failed || exceeded ? "# replace the GPU"
                   : nvidia           ? reset_of(machine, gpu)
                                      : "# reset it with its maker's tool"};
  }
}

constexpr Rule kRules[] = {
    {"peer-refused", Family::gpu, "The driver refuses peer access between GPUs", "Copies go through host memory.",
     "The driver's answer for pairs that are not across sockets (a note where that is not known); MIG mode; GeForce "
     "cards newer than the RTX 3090, "
     "which "
     "have none (a note).",
     "Remove the cause: MIG, IOMMU, ACS.", "no figure", peer_refused},
    {"gpu-memory", Family::gpu, "A GPU's memory has errors", "Random slowness and failures.",
     "Rows that could not be remapped, pending remaps and pages, uncorrected errors, SRAM's above their threshold.",
     "Reset the GPU, else replace it.", "no figure", broken_memory},
    {"gpu-throttled", Family::gpu, "A GPU is throttled by heat or power limits", "Random slowness.",
     "The driver's reasons for lower clocks: hardware slowdown, thermal, power brake; a temperature at which it slows "
     "down.",
     "Check cooling and power.", "no figure", throttled},
    {"persistence-off", Family::gpu, "Persistence mode is off", "The first use of an idle GPU takes seconds.",
     "The driver's persistence mode.", "nvidia-persistenced.", "est.", persistence},
};

}  // namespace

std::span<const Rule> gpu_rules() {
  return kRules;
}

}  // namespace fairway::doctor
