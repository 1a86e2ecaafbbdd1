#include <algorithm>
#include <map>

#include "doctor/rules/common.h"
#include "render/words.h"

// NVLink and the state of GPUs.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

using LinkCounts = std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>;  // active, all, by GPU

// NVSwitches connect GPUs of one model alike: one with fewer links than most has lost the others.
void fewer_than_peers(const RuleInput& input, const LinkCounts& links, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.nv_switches.empty()) return;
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_count;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto found = links.find(gpu);
    by_count[found == links.end() ? 0 : found->second.second].push_back(gpu);
  }
  const auto usual = std::max_element(by_count.begin(), by_count.end(),
                                      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto& peers = usual->second;
  if (usual->first == 0 || peers.size() < 2 || peers.size() * 2 <= machine.gpus.size()) return;
  const auto rate = [&](std::uint32_t from, std::uint32_t to) {
    return expected_gbps(input, {{predict::EndpointKind::gpu, from, {}}, {predict::EndpointKind::gpu, to, {}}, {}, {}});
  };
  for (const auto& [count, gpus] : by_count) {
    if (count >= usual->first) continue;
    for (const auto gpu : gpus) {
      const auto& model = machine.gpus[gpu].model;
      const auto& theirs = machine.gpus[peers.front()].model;
      if (model && theirs && *model != *theirs) continue;
      // With MIG there is no peer access: that is peer-refused.
      if (text::lower(input.facts.text(gpu_fact(machine, gpu, "mig"))) == "enabled") continue;
      const auto name = name_of(machine, gpu_ref(gpu));
      Finding finding;
      finding.title = count == 0 ? fmt::format("{} has no NVLink; {} have {} each", name,
                                               render::count(peers.size(), "other GPU"), usual->first)
                                 : fmt::format("{} has {} NVLinks; {} have {} each", name, count,
                                               render::count(peers.size(), "other GPU"), usual->first);
      finding.devices = {gpu_ref(gpu)};
      finding.level = count == 0 ? Level::broken : Level::warning;
      finding.path = name + " - other GPUs";
      finding.cause = fmt::format("nvlink {}", gpu);
      Cost cost;
      const auto now = rate(gpu, peers.front());
      const auto mended = rate(peers[0], peers[1]);
      if (now && mended) cost.add(*now, *mended);
      cost.write_to(finding);
      std::vector<NodeRef> nodes;
      for (const auto peer : peers) nodes.push_back(gpu_ref(peer));
      finding.evidence = {
          {fmt::format("{}: {} links", name, count), "NVLinks and path classes"},
          {fmt::format("{}: {} links each", folded_names(machine, nodes), usual->first), "NVLinks and path classes"}};
      const auto ordinal = machine.gpus[gpu].ordinal;
      finding.fix = {fmt::format("nvidia-smi nvlink -s -i {0}; nvidia-smi -q -i {0} | grep -A2 'MIG Mode'", ordinal),
                     "systemctl restart nvidia-fabricmanager    # while no program uses the GPUs",
                     fmt::format("nvidia-smi -r -i {}    # while no program uses it; else replace it", ordinal)};
      finding.advice = "Until then its traffic to other GPUs takes PCIe.";
      result.add(std::move(finding));
    }
  }
}

void nvlink_down(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  LinkCounts links;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    for (const auto& port : machine.gpus[gpu].nvlinks) {
      if (!port.active) continue;
      ++links[gpu].second;
      if (*port.active) ++links[gpu].first;
    }
  }
  if (links.empty()) {
    for (const auto& link : machine.links) {
      if (link.kind != topology::LinkKind::nvlink || link.a.kind != NodeKind::gpu || !link.count) continue;
      links[link.a.index].first += link.active.value_or(*link.count);
      links[link.a.index].second += *link.count;
      if (link.b.kind == NodeKind::gpu) {
        links[link.b.index].first += link.active.value_or(*link.count);
        links[link.b.index].second += *link.count;
      }
    }
  }
  if (links.empty()) return result.not_applicable();
  std::uint32_t most = 0;
  for (const auto& [gpu, count] : links) most = std::max(most, count.first);
  for (const auto& [gpu, count] : links) {
    // Between GPUs without switches how many links lead where differs by design; one that is there and down is a fault.
    const bool down = count.first < count.second;
    if (!down) continue;
    Finding finding;
    finding.title = fmt::format("GPU{}: {} of {} NVLinks are up", machine.gpus[gpu].ordinal, count.first, count.second);
    finding.devices = {gpu_ref(gpu)};
    finding.level = count.first == 0 && most > 0 ? Level::broken : Level::warning;
    double link_gbs = 0;
    for (const auto& link : machine.links) {
      if (link.kind == topology::LinkKind::nvlink && link.gbs_per_link)
        link_gbs = std::max(link_gbs, *link.gbs_per_link);
    }
    if (link_gbs > 0) {
      finding.now_gbps = link_gbs * 8 * count.first;
      finding.mended_gbps = link_gbs * 8 * count.second;
      finding.loss_gbps = *finding.mended_gbps - *finding.now_gbps;
    }
    finding.path = fmt::format("GPU{} - other GPUs", machine.gpus[gpu].ordinal);
    finding.cause = fmt::format("nvlink {}", gpu);
    finding.evidence.push_back({fmt::format("{} links, {} active", count.second, count.first), "NVLink states"});
    finding.fix = {
        fmt::format("nvidia-smi nvlink -s -i {0}; nvidia-smi nvlink -e -i {0}", machine.gpus[gpu].ordinal),
        fmt::format("nvidia-smi -r -i {}    # while no program uses it; else replace it", machine.gpus[gpu].ordinal)};
    result.add(std::move(finding));
  }
  fewer_than_peers(input, links, result);
}

void fabric_state(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  // Only GPUs behind NVSwitches need a fabric manager.
  const bool switched = !machine.nv_switches.empty();
  bool any = false;
  std::vector<NodeRef> waiting;
  Finding finding;
  for (const auto gpu : nvidia_gpus(machine)) {
    const auto key = gpu_fact(machine, gpu, "fabric_state");
    const auto* seen = input.facts.find(key);
    if (seen == nullptr) {
      if (switched) result.lacks(input.facts.why_not(key));
      continue;
    }
    any = true;
    const auto state = text::lower(seen->value);
    if (state == "completed" || state == "not supported" || state == "n/a") continue;
    waiting.push_back(gpu_ref(gpu));
    if (finding.evidence.size() < 3)
      finding.evidence.push_back(
          evidence_of(input.facts, key, fmt::format("GPU{}: fabric state {}", machine.gpus[gpu].ordinal, seen->value)));
  }
  if (!any && !switched) return result.not_applicable();
  if (waiting.empty()) return;
  finding.title = fmt::format("{}: not in the NVLink fabric", folded_names(machine, waiting));
  finding.level = Level::broken;
  finding.devices = waiting;
  finding.path = folded_names(machine, waiting);
  finding.fix = {"systemctl status nvidia-fabricmanager; systemctl restart nvidia-fabricmanager",
                 "# its version must be that of the driver"};
  result.add(std::move(finding));
}

void peer_refused(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.gpus.size() < 2) return result.not_applicable();
  std::vector<NodeRef> mig;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    if (text::lower(input.facts.text(gpu_fact(machine, gpu, "mig"))) == "enabled") mig.push_back(gpu_ref(gpu));
  }
  Finding finding;
  finding.cause = "peer access";
  if (machine.peers.empty() && mig.empty())
    return result.lacks("whether the driver allows access between GPUs is not recorded");
  std::size_t refused = 0;
  for (const auto& peer : machine.peers) {
    if (!peer.write.known() || *peer.write) continue;
    const auto path = topology::path_class(machine, gpu_ref(peer.from.index), gpu_ref(peer.to.index));
    // Across sockets drivers refuse it by design.
    const bool far = !path || path->kind == PathKind::sys || path->kind == PathKind::unknown;
    if (far && !topology::is_virtual(machine)) continue;
    ++refused;
    finding.devices.push_back(gpu_ref(peer.from.index));
    if (finding.evidence.size() < 4) {
      finding.evidence.push_back(
          {fmt::format("{} to {}: {}", name_of(machine, gpu_ref(peer.from.index)),
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
  if (!mig.empty()) {
    Finding split;
    split.title = fmt::format("{}: MIG is on, so there is no peer access between GPUs", folded_names(machine, mig));
    split.devices = mig;
    split.cause = "peer access";
    split.level = Level::warning;
    split.path = "GPU - GPU";
    for (const auto& gpu : mig)
      split.evidence.push_back(evidence_of(input.facts, gpu_fact(machine, gpu.index, "mig"), "MIG enabled"));
    split.fix = {"nvidia-smi -mig 0    # while no program uses them"};
    result.add(std::move(split));
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
  Finding finding;
  finding.title = fmt::format("Persistence mode of {} is off", folded_names(machine, off));
  finding.level = Level::note;
  finding.devices = off;
  finding.evidence.push_back(
      evidence_of(input.facts, gpu_fact(machine, off.front().index, "persistence"), "persistence mode disabled"));
  finding.fix = {"systemctl enable --now nvidia-persistenced"};
  finding.advice = "Without it the first use of an idle GPU takes seconds.";
  result.add(std::move(finding));
}

void throttled(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto gpus = nvidia_gpus(machine);
  if (gpus.empty()) return result.not_applicable();
  for (const auto gpu : gpus) {
    const auto key = gpu_fact(machine, gpu, "throttle");
    const auto* seen = input.facts.find(key);
    if (seen == nullptr) {
      result.lacks(input.facts.why_not(key));
      continue;
    }
    // Idle clocks, application clocks and power caps are normal; these reasons mean heat or hardware.
    std::string why;
    for (const auto* reason : {"hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"}) {
      if (seen->value.find(reason) != std::string::npos) why += (why.empty() ? "" : ", ") + std::string(reason);
    }
    if (why.empty()) continue;
    Finding finding;
    finding.title = fmt::format("GPU{} is throttled: {}", machine.gpus[gpu].ordinal, why);
    finding.devices = {gpu_ref(gpu)};
    finding.path = paths_text(machine, flows_through(machine, gpu_ref(gpu)));
    finding.evidence.push_back(evidence_of(input.facts, key));
    finding.fix = {fmt::format("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {}", machine.gpus[gpu].ordinal)};
    finding.advice = "Check cooling and power of this server.";
    result.add(std::move(finding));
  }
}

void broken_memory(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto gpus = nvidia_gpus(machine);
  if (gpus.empty()) return result.not_applicable();
  for (const auto gpu : gpus) {
    const auto remap = gpu_fact(machine, gpu, "remap_failure");
    const auto pending = gpu_fact(machine, gpu, "remap_pending");
    const auto errors = gpu_fact(machine, gpu, "ecc_uncorrected");
    if (input.facts.find(remap) == nullptr && input.facts.find(errors) == nullptr) {
      result.lacks(input.facts.why_not(remap));
      continue;
    }
    const bool failed = text::lower(input.facts.text(remap)) == "yes";
    const bool waits = text::lower(input.facts.text(pending)) == "yes";
    const auto uncorrected = input.facts.number(errors).value_or(0);
    if (!failed && !waits && uncorrected == 0) continue;
    Finding finding;
    finding.devices = {gpu_ref(gpu)};
    finding.level = failed ? Level::broken : Level::warning;
    finding.path = fmt::format("GPU{}", machine.gpus[gpu].ordinal);
    finding.title =
        failed  ? fmt::format("GPU{}: remapping of a bad memory row failed", machine.gpus[gpu].ordinal)
        : waits ? fmt::format("GPU{}: remapping of a bad memory row waits for a reset", machine.gpus[gpu].ordinal)
                : fmt::format("GPU{}: {:.0f} uncorrected memory errors", machine.gpus[gpu].ordinal, uncorrected);
    finding.cause = fmt::format("gpu {}", gpu);
    finding.evidence.push_back(evidence_of(input.facts, failed ? remap : waits ? pending : errors));
    finding.fix = {failed
                       ? "# replace the GPU"
                       : fmt::format("nvidia-smi -r -i {}    # while no program uses it", machine.gpus[gpu].ordinal)};
    result.add(std::move(finding));
  }
}

// The XIDs that mean hardware or a link, from NVIDIA's list.
std::string_view xid_meaning(unsigned code) {
  switch (code) {
    case 48: return "an uncorrectable memory error";
    case 63: return "a memory row was remapped";
    case 64: return "a memory row could not be remapped";
    case 74: return "an NVLink error";
    case 79: return "the GPU fell off the bus";
    case 92: return "many corrected memory errors";
    case 94: return "a contained memory error";
    case 95: return "an uncontained memory error";
    case 119: return "the GPU's firmware did not answer";
    case 145:
    case 149: return "an NVLink error";
    default: return {};
  }
}

void xid(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto lines = input.facts.below("kernel.xid");
  if (nvidia_gpus(machine).empty() && lines.empty()) return result.not_applicable();
  if (lines.empty() && input.facts.find("kernel.log") == nullptr)
    return result.lacks("the kernel's log: " + input.facts.why_not("kernel.log"));
  for (const auto& [name, seen] : lines) {
    // name: "0000:1b:00.0.79"; value: the log's line
    const auto dot = name.rfind('.');
    const auto code = text::to_u32(std::string_view(name).substr(dot + 1));
    const auto meaning = code ? xid_meaning(*code) : std::string_view{};
    if (meaning.empty()) continue;
    Finding finding;
    const auto bus = topology::BusId::parse(name.substr(0, dot));
    std::string who = name.substr(0, dot);
    for (std::uint32_t gpu = 0; bus && gpu < machine.gpus.size(); ++gpu) {
      const auto pci = machine.gpus[gpu].pci;
      if (pci && machine.pci[pci.index].bus_id.same_slot(*bus)) {
        finding.devices = {gpu_ref(gpu)};
        who = name_of(machine, gpu_ref(gpu));
        finding.cause = fmt::format("gpu {}", gpu);
      }
    }
    finding.level = *code == 79 || *code == 64 || *code == 95 ? Level::broken
                    : *code == 63 || *code == 92              ? Level::note
                                                              : Level::warning;
    finding.title = fmt::format("{}: XID {}, {}", who, *code, meaning);
    finding.path = who;
    finding.evidence.push_back({text::quote(seen->value, 160), seen->where});
    finding.fix = {*code == 79 ? "# power-cycle the server; if it happens again, change slot, riser or GPU"
                               : "nvidia-smi -q; dcgmi diag -r 3"};
    result.add(std::move(finding));
  }
}

constexpr Rule kRules[] = {
    {"nvlink-down", Family::gpu, "NVLinks of a GPU are down",
     "GPU to GPU uses fewer links, or PCIe; diagnostics may still pass.",
     "Links that are there but not active; behind NVSwitches also a GPU with fewer links than most of its model.",
     "Reset the GPU, else replace it.", "DCGM#198, vllm#16336", nvlink_down},
    {"fabric-not-ready", Family::gpu, "A GPU is not part of the NVLink fabric", "NVLink cannot be used and jobs fail.",
     "The fabric state that the driver reports is not completed.", "Run the fabric manager, in the driver's version.",
     "est.", fabric_state},
    {"peer-refused", Family::gpu, "The driver refuses peer access between GPUs", "Copies go through host memory.",
     "The driver's answer for pairs that are not across sockets; MIG mode.", "Remove the cause: MIG, IOMMU, ACS.",
     "no figure", peer_refused},
    {"gpu-memory", Family::gpu, "A GPU's memory has errors", "Random slowness and failures.",
     "Rows that could not be remapped, pending remaps, uncorrected errors.", "Reset the GPU, else replace it.",
     "no figure", broken_memory},
    {"xid", Family::gpu, "The driver logged an error of a GPU", "From a lost job to a lost GPU.",
     "XID lines of the kernel's log whose codes mean hardware or links.", "Depends on the code.",
     "NVIDIA's XID catalogue", xid},
    {"gpu-throttled", Family::gpu, "A GPU is throttled by heat or power limits", "Random slowness.",
     "The driver's reasons for lower clocks: hardware slowdown, thermal, power brake.", "Check cooling and power.",
     "no figure", throttled},
    {"persistence-off", Family::gpu, "Persistence mode is off", "The first use of an idle GPU takes seconds.",
     "The driver's persistence mode.", "nvidia-persistenced.", "est.", persistence},
};

}  // namespace

std::span<const Rule> gpu_rules() {
  return kRules;
}

}  // namespace fairway::doctor
