// size: one family of rules, and what NVLink and its fabric share
#include <algorithm>
#include <map>

#include "doctor/nccl_settings.h"
#include "doctor/rules/common.h"
#include "render/phrases.h"

// NVLink between GPUs, and the fabric of NVSwitches.
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
  const auto usual = std::ranges::max_element(
      by_count, [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
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
      auto& finding = result.add();
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
      const auto ordinal = smi_id(machine, gpu);
      finding.fix = {fmt::format("nvidia-smi nvlink -s -i {0}; nvidia-smi -q -i {0} | grep -A2 'MIG Mode'", ordinal),
                     interrupting("systemctl restart nvidia-fabricmanager", Interrupts::gpus),
                     reset_of(machine, gpu, "else replace it")};
      finding.advice = "Until then its traffic to other GPUs takes PCIe.";
    }
  }
}

// Only two GPUs, and nothing else that a link could lead to: both must have as many.
void differ_as_pair(const RuleInput& input, const LinkCounts& links, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.gpus.size() != 2 || !machine.nv_switches.empty() || links.size() != 2) return;
  const auto first = links.begin()->second.second;
  const auto second = links.rbegin()->second.second;
  const auto& models = machine.gpus;
  if (first == second || !models[0].model || !models[1].model || *models[0].model != *models[1].model) return;
  const auto gpu = first < second ? links.begin()->first : links.rbegin()->first;
  const auto name = name_of(machine, gpu_ref(gpu));
  auto& finding = result.add();
  finding.title =
      fmt::format("{} has {} NVLinks; the other GPU has {}", name, std::min(first, second), std::max(first, second));
  // A paste may end before the last GPU's links do.
  if (gpu == links.rbegin()->first) finding.level = Level::note;
  finding.devices = {gpu_ref(gpu)};
  finding.path = "GPU - GPU";
  finding.cause = fmt::format("nvlink {}", gpu);
  finding.evidence = {{fmt::format("{} and {} links", first, second), "NVLink states"}};
  finding.fix = {fmt::format("nvidia-smi nvlink -s; nvidia-smi nvlink -e -i {}", smi_id(machine, gpu)),
                 reset_of(machine, gpu, "else reseat the bridge")};
}

// Links that are up and slower than the others of GPUs of the same model.
void slower_links(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  std::map<std::string, std::map<double, std::size_t>> rates;
  const auto rate_of = [](const Seen& seen) { return text::to_double(seen.value).value_or(0); };
  const auto model_of = [&machine](std::uint32_t gpu) { return machine.gpus[gpu].model.value_or(""); };
  const auto links_of = [&](std::uint32_t gpu) { return input.facts.below(gpu_fact(machine, gpu, "nvlink_gbs")); };
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    for (const auto& [link, seen] : links_of(gpu)) ++rates[model_of(gpu)][rate_of(*seen)];
  }
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    Finding finding;
    for (const auto& [link, seen] : links_of(gpu)) {
      const auto& alike = rates[model_of(gpu)];
      const auto usual =
          std::ranges::max_element(alike, [](const auto& a, const auto& b) { return a.second < b.second; })->first;
      if (rate_of(*seen) >= 0.9 * usual) continue;
      finding.evidence.push_back({fmt::format("link {}: {} GB/s, others {:g}", link, seen->value, usual), seen->where});
    }
    if (finding.evidence.empty()) continue;
    const auto name = name_of(machine, gpu_ref(gpu));
    finding.title = fmt::format("{}: {} slower than the others", name,
                                render::count(finding.evidence.size(), "NVLink is", "NVLinks are"));
    finding.devices = {gpu_ref(gpu)};
    finding.path = name + " - other GPUs";
    finding.cause = fmt::format("nvlink rate {}", gpu);
    finding.fix = {fmt::format("nvidia-smi nvlink -s -i {0}; nvidia-smi nvlink -e -i {0}", smi_id(machine, gpu)),
                   reset_of(machine, gpu, "else replace it")};
    result.add(std::move(finding));
  }
}

// GPUs on a board that joins them by NVLink; cards join by bridges, which they may lack.
bool is_of_a_board(const std::string& model) {
  const auto has = [&model](std::string_view word) { return model.find(word) != std::string::npos; };
  if (has("PCIe") || has("NVL") || has("GH200")) return false;
  for (const auto* word : {"SXM", "HBM3", "H20", "H800", "B200", "B300"}) {
    if (has(word)) return true;
  }
  return false;
}

// "all links are inActive", in place of a GPU's links.
bool all_inactive(const RuleInput& input, bool others, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto key = gpu_fact(machine, gpu, "nvlinks_inactive");
    if (input.facts.find(key) == nullptr) continue;
    any = true;
    const auto name = name_of(machine, gpu_ref(gpu));
    auto& finding = result.add();
    finding.title = fmt::format("{}: none of its NVLinks is active", name);
    // Cards without bridges have none, and a guest that was given one GPU has no use for them.
    const bool joined = machine.gpus.size() > 1 && is_of_a_board(machine.gpus[gpu].model.value_or(""));
    finding.level = others ? Level::broken : joined ? Level::warning : Level::note;
    finding.devices = {gpu_ref(gpu)};
    finding.path = name + " - other GPUs";
    finding.cause = fmt::format("nvlink {}", gpu);
    finding.evidence.push_back(evidence_of(input.facts, key));
    finding.fix = {
        fmt::format("nvidia-smi nvlink -e -i {}; systemctl status nvidia-fabricmanager", smi_id(machine, gpu)),
        reset_of(machine, gpu, "else replace it")};
  }
  return any;
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
  const bool told = all_inactive(input, !links.empty(), result);
  if (links.empty()) return told ? void() : result.not_applicable();
  slower_links(input, result);
  std::uint32_t most = 0;
  for (const auto& [gpu, count] : links) most = std::max(most, count.first);
  for (const auto& [gpu, count] : links) {
    // Between GPUs without switches how many links lead where differs by design; one that is there and down is a fault.
    const bool down = count.first < count.second;
    if (!down) continue;
    auto& finding = result.add();
    finding.title =
        fmt::format("{}: {} of {} NVLinks are up", name_of(machine, gpu_ref(gpu)), count.first, count.second);
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
    finding.path = name_of(machine, gpu_ref(gpu)) + " - other GPUs";
    finding.cause = fmt::format("nvlink {}", gpu);
    finding.evidence.push_back({fmt::format("{} links, {} active", count.second, count.first), "NVLink states"});
    finding.fix = {fmt::format("nvidia-smi nvlink -s -i {0}; nvidia-smi nvlink -e -i {0}", smi_id(machine, gpu)),
                   reset_of(machine, gpu, "else replace it")};
  }
  fewer_than_peers(input, links, result);
  if (std::ranges::any_of(machine.gpus, [](const auto& gpu) { return !gpu.nvlinks.empty(); }))
    differ_as_pair(input, links, result);
}

// Settings of a job with which NCCL does not use the NVLinks that are there.
void p2p_disabled(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.gpus.size() < 2) return result.not_applicable();
  if (input.facts.below("env").empty())
    return result.lacks("the job's environment: no NCCL_ or UCX_ variable is recorded (run the doctor inside the job)");
  const auto* p2p = input.facts.find("env.NCCL_P2P_DISABLE");
  const auto* shm = input.facts.find("env.NCCL_SHM_DISABLE");
  if (p2p == nullptr || nccl_number(p2p->value) == 0) return;
  const bool linked = topology::has_gpu_links(machine);
  const bool shared = shm == nullptr || nccl_number(shm->value) == 0;
  auto& finding = result.add();
  finding.title = fmt::format("NCCL_P2P_DISABLE={}: NCCL does not use {}{}", p2p->value,
                              linked ? "the GPUs' NVLinks" : "peer access between GPUs",
                              shared ? "" : ", nor shared memory: all goes by the network");
  finding.level = linked || !shared ? Level::warning : Level::note;
  finding.path = "GPU - GPU";
  finding.evidence = {{"NCCL_P2P_DISABLE=" + p2p->value, p2p->where}};
  if (!shared) finding.evidence.push_back({"NCCL_SHM_DISABLE=" + shm->value, shm->where});
  finding.fix = {shared ? "unset NCCL_P2P_DISABLE" : "unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE"};
  finding.advice = "Often left over from a search for a hang; its copies take a far slower way.";
}

// What systemctl says of the fabric manager, and CUDA's error 802, with which it waits for it. True: they tell.
bool fabric_manager(const RuleInput& input, bool switched, RuleResult& result) {
  const auto* state = input.facts.find("fabric_manager.state");
  const auto* waits = input.facts.find("fabric_manager.cuda_waits");
  if (state == nullptr && waits == nullptr) return false;
  const bool runs = state != nullptr && state->value.starts_with("active");
  if (runs && waits == nullptr) return true;
  auto& finding = result.add();
  finding.title = state == nullptr || runs ? "CUDA waits for the NVLink fabric (error 802)"
                                           : "The fabric manager does not run: " + state->value;
  // Without NVSwitches it has nothing to do.
  finding.level = waits != nullptr || switched         ? Level::broken
                  : state->value.starts_with("failed") ? Level::warning
                                                       : Level::note;
  finding.path = "all GPUs";
  if (state != nullptr) finding.evidence.push_back({"systemctl: " + state->value, state->where});
  if (waits != nullptr) finding.evidence.push_back({waits->value, waits->where});
  finding.fix = {"systemctl status nvidia-fabricmanager    # its version must be that of the driver",
                 interrupting("systemctl enable --now nvidia-fabricmanager", Interrupts::gpus)};
  finding.advice = "Behind NVSwitches no GPU can be used before it has joined them.";
  return true;
}

void fabric_state(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  // Only GPUs behind NVSwitches need a fabric manager.
  const bool switched = !machine.nv_switches.empty();
  bool any = fabric_manager(input, switched, result);
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
      finding.evidence.push_back(evidence_of(
          input.facts, key, fmt::format("{}: fabric state {}", name_of(machine, gpu_ref(gpu)), seen->value)));
  }
  if (!any && !switched) return result.not_applicable();
  if (waiting.empty()) return;
  finding.title = fmt::format("{}: not in the NVLink fabric", folded_names(machine, waiting));
  finding.level = Level::broken;
  finding.devices = waiting;
  finding.path = folded_names(machine, waiting);
  finding.fix = {"systemctl status nvidia-fabricmanager    # its version must be that of the driver",
                 interrupting("systemctl restart nvidia-fabricmanager", Interrupts::gpus)};
  result.add(std::move(finding));
}

// What nvidia-smi's Fabric section says beside its state, where it is not as it should be: "bandwidth degraded", "route
// unhealthy true". All of its flags are faults.
std::vector<Evidence> unhealthy_fabric(const RuleInput& input, std::uint32_t gpu) {
  static constexpr std::string_view kBad[] = {"failure", "degraded", "unhealthy", "limited capacity", "true"};
  std::vector<Evidence> out;
  for (const auto& [name, seen] : input.facts.below(gpu_fact(input.machine(), gpu, "fabric"))) {
    const auto value = text::lower(seen->value);
    const bool configured_wrong = name == "incorrect_configuration" && value != "none" && value != "n/a";
    // "Success" is the only good one of NVML's words for how a GPU's registration ended.
    const bool refused =
        name == "status" && !value.empty() && value != "success" && value != "n/a" && value != "not supported";
    if (configured_wrong || refused || std::ranges::find(kBad, value) != std::end(kBad))
      out.push_back({fmt::format("fabric {}: {}", name, seen->value), seen->where});
  }
  return out;
}

void fabric_health(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto gpu : nvidia_gpus(machine)) {
    any = any || !input.facts.below(gpu_fact(machine, gpu, "fabric")).empty();
    auto evidence = unhealthy_fabric(input, gpu);
    if (evidence.empty()) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: the NVLink fabric is not healthy", name_of(machine, gpu_ref(gpu)));
    finding.devices = {gpu_ref(gpu)};
    finding.path = name_of(machine, gpu_ref(gpu)) + " - other GPUs";
    finding.cause = fmt::format("nvlink {}", gpu);
    finding.evidence = std::move(evidence);
    finding.fix = {"nvidia-smi -q | grep -A12 Fabric; nvidia-smi nvlink -s",
                   "systemctl status nvidia-fabricmanager    # its log names the port or the switch"};
    finding.advice = "Drain the node: links of this GPU or of its switch are lost or are being routed around.";
  }
  if (any) return;
  if (machine.nv_switches.empty()) return result.not_applicable();
  result.lacks("the health of the NVLink fabric (nvidia-smi -q, driver 570 and newer)");
}

void link_errors(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto gpu : nvidia_gpus(machine)) {
    Finding finding;
    bool grown = false;
    bool many = false;
    for (const auto& [name, seen] : input.facts.below(gpu_fact(machine, gpu, "nvlink_errors"))) {
      any = true;
      const auto now = text::to_unsigned(seen->value).value_or(0);
      const auto* then =
          input.before == nullptr ? nullptr : input.before->find(gpu_fact(machine, gpu, "nvlink_errors." + name));
      const auto was = then == nullptr ? 0 : text::to_unsigned(then->value).value_or(0);
      if (now == 0 || (then != nullptr && now <= was)) continue;
      grown = grown || then != nullptr;
      many = many || now >= 100;  // more than training leaves
      if (finding.evidence.size() < 6) finding.evidence.push_back({fmt::format("link {}: {}", name, now), seen->where});
    }
    if (finding.evidence.empty()) continue;
    finding.level = grown || many ? Level::warning : Level::note;
    finding.title = fmt::format("{}: NVLink errors", name_of(machine, gpu_ref(gpu)));
    finding.devices = {gpu_ref(gpu)};
    finding.path = name_of(machine, gpu_ref(gpu)) + " - other GPUs";
    finding.cause = fmt::format("nvlink errors {}", gpu);
    finding.fix = {fmt::format("nvidia-smi nvlink -e -i {}    # do they grow?", smi_id(machine, gpu)),
                   reset_of(machine, gpu, "if they do")};
    finding.advice = "Each recovery stops the link for a moment; errors that grow mean a bad contact or board.";
    result.add(std::move(finding));
  }
  if (any) return;
  if (!topology::has_gpu_links(machine)) return result.not_applicable();
  result.lacks("the errors of NVLinks (nvidia-smi nvlink -e)");
}

constexpr Rule kRules[] = {
    {"nvlink-down", Family::nvlink, "NVLinks of a GPU are down",
     "GPU to GPU uses fewer links, or PCIe; diagnostics may still pass.",
     "Links that are there but not active, or slower than the others; no active link at all (of cards, which bridges "
     "join, a note); of two GPUs that have unlike counts; behind NVSwitches also a GPU with fewer links than most of "
     "its "
     "model.",
     "Reset the GPU, else replace it.", "DCGM#198, vllm#16336", nvlink_down},
    {"p2p-disabled", Family::nvlink, "A job's setting turns off what joins its GPUs",
     "Copies between GPUs go through host memory, or by the network.",
     "NCCL_P2P_DISABLE, with NCCL_SHM_DISABLE or GPUs that NVLink joins; else a note.", "Unset it.",
     "NCCL's documentation", p2p_disabled},
    {"fabric-not-ready", Family::nvlink, "A GPU is not part of the NVLink fabric",
     "NVLink cannot be used and jobs fail.",
     "The fabric state that the driver reports is not completed; CUDA fails with error 802; systemctl says that the "
     "fabric manager does not run (a note where nothing tells of NVSwitches).",
     "Run the fabric manager, in the driver's version.", "est.", fabric_state},
    {"fabric-unhealthy", Family::nvlink, "The NVLink fabric of a GPU is not healthy",
     "Links are lost or routed around: less bandwidth, or jobs that fail.",
     "What nvidia-smi -q says of the fabric beside its state: status, bandwidth, routes, configuration.",
     "Drain the node; the fabric manager's log names the port.", "nccl#2186, nccl#1769", fabric_health},
    {"nvlink-errors", Family::nvlink, "NVLinks of a GPU have errors", "Each recovery stops a link for a moment.",
     "nvidia-smi nvlink -e: a warning if a count grew since the baseline or is 100 or more, else a note.",
     "Reset the GPU; a bad contact or board if they grow.", "no figure", link_errors},
};

}  // namespace

std::span<const Rule> nvlink_rules() {
  return kRules;
}

}  // namespace fairway::doctor
