#include <algorithm>
#include <set>

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
  auto& finding = result.add();
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
}

// Names of what both machines should share: NICs with RDMA by name and by place, models of GPUs.
std::set<std::string> nic_names(const Machine& machine) {
  std::set<std::string> out;
  for (const auto& nic : machine.nics) {
    if (!nic.rdma) continue;
    out.insert(nic.name);
    for (const auto function : nic.functions) out.insert(machine.pci[function.index].bus_id.to_string());
  }
  return out;
}
std::set<std::string> gpu_models(const Machine& machine) {
  std::set<std::string> out;
  for (const auto& gpu : machine.gpus) {
    if (gpu.model) out.insert(*gpu.model);
  }
  return out;
}
bool share_nothing(const std::set<std::string>& a, const std::set<std::string>& b) {
  if (a.empty() || b.empty()) return false;
  return std::ranges::none_of(a, [&](const std::string& one) { return b.contains(one); });
}
std::string listed(const std::set<std::string>& names) {
  std::string out;
  std::size_t count = 0;
  for (const auto& name : names) {
    if (++count > 4) return out + " ...";
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

// Why the baseline was not taken on this machine: what it has and what is here. Empty if it may have been.
std::pair<std::string, std::string> taken_elsewhere(const Machine& then, const Machine& now) {
  if (then.product && now.product && *then.product != *now.product) return {*then.product, *now.product};
  if (!then.packages.empty() && !now.packages.empty()) {
    const auto& a = then.packages.front().model;
    const auto& b = now.packages.front().model;
    if (a && b && *a != *b) return {*a, *b};
  }
  if (share_nothing(gpu_models(then), gpu_models(now))) return {listed(gpu_models(then)), listed(gpu_models(now))};
  if (share_nothing(nic_names(then), nic_names(now))) return {listed(nic_names(then)), listed(nic_names(now))};
  return {};
}

// The device that a difference is about: "GPU3", "NIC mlx5_0", or the NIC's RDMA device.
NodeRef device_of(const Machine& machine, const std::string& subject) {
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) {
    if (topology::gpu_name(machine, machine.gpus[i]) == subject) return gpu_ref(i);
  }
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    if ("NIC " + machine.nics[i].name == subject || machine.nics[i].name == subject) return nic_ref(i);
  }
  return {};
}

// GPUs or NICs that the baseline has and this machine has not: one finding for each kind.
void missing(const RuleInput& input, const std::vector<NodeRef>& devices, RuleResult& result) {
  if (devices.empty()) return;
  const auto& then = *input.before_machine;
  const bool gpus = devices.front().kind == NodeKind::gpu;
  Finding finding;
  finding.title =
      fmt::format("{} {} missing since the baseline", folded_names(then, devices), devices.size() == 1 ? "is" : "are");
  // All that went over them, by the machine as it was.
  const predict::Model model(then, input.model.planner().constants());
  std::vector<predict::Flow> flows;
  for (const auto& device : devices) {
    for (auto& flow : flows_through(then, device)) {
      const auto same = [&](const predict::Flow& other) { return other.from == flow.from && other.to == flow.to; };
      if (std::ranges::none_of(flows, same)) flows.push_back(flow);
    }
  }
  finding.level = flows.empty() ? Level::note : Level::warning;
  cost_of_share({model, *input.before, {}, nullptr, nullptr}, flows, 1.0).write_to(finding);
  if (finding.path.empty()) finding.path = folded_names(then, devices);
  finding.evidence = {{"then: there", "the baseline"}, {"now: missing", "this machine"}};
  finding.fix = gpus ? std::vector<std::string>{"lspci -nn | grep -E '3D|Display|VGA'    # still on the bus?",
                                                "dmesg | grep -E 'NVRM|Xid|amdgpu'    # what its driver says"}
                     : std::vector<std::string>{"lspci -nn | grep -E 'Ethernet|Infiniband'    # still on the bus?",
                                                "dmesg | grep -E 'mlx5|ice|bnxt|efa'    # what its driver says"};
  finding.advice = "If it is not on the bus: power the server off and on, then reseat the card.";
  result.add(std::move(finding));
}

// The cause that a difference has in common with a rule about the machine itself. That rule's finding is kept.
std::string cause_of(const Machine& machine, const topology::Difference& difference, NodeRef device) {
  const auto& field = difference.field;
  if (device.kind == NodeKind::none) return {};
  const auto name = device.kind == NodeKind::nic ? machine.nics[device.index].name : std::string();
  if (field == "PCIe width" || field == "PCIe speed" || field == "slowest PCIe link to the CPU") {
    auto link = topology::pci_of(machine, device);
    if (!field.starts_with("PCIe")) {  // the slowest may be above the device
      double least = 1e300;
      std::size_t depth = 0;
      for (auto at = link; at && depth++ <= topology::kMaxPciDepth; at = machine.pci[at.index].parent) {
        const auto gbs = topology::current_gbs(machine.pci[at.index].link);
        if (!gbs || *gbs >= least) continue;
        least = *gbs;
        link = at;
      }
    }
    return link ? "link " + machine.pci[link.index].bus_id.to_string() : std::string();
  }
  if (field == "GPU links that are up") return fmt::format("nvlink {}", device.index);
  if (name.empty()) return {};
  if (field == "port state" || field == "network rate") return "port " + name;
  if (field == "MTU") return "mtu " + name;
  return {};
}

void changed(const RuleInput& input, RuleResult& result) {
  if (input.before_machine == nullptr || input.before == nullptr)
    return result.lacks("no baseline (--baseline with a file that --save wrote)");
  const auto& machine = input.machine();
  if (const auto [there, here] = taken_elsewhere(*input.before_machine, machine); !there.empty()) {
    auto& finding = result.add();
    finding.title = fmt::format("The baseline is of another machine: {} there, {} here",
                                topology::text::quote(there, 80), topology::text::quote(here, 80));
    finding.evidence = {{"then: " + there, "the baseline"}, {"now: " + here, "this machine"}};
    finding.fix = {"fairway doctor --save good.json    # on this machine, while all is well"};
    finding.advice = "Nothing was compared. To compare two machines: fairway topo diff, fairway doctor fleet.";
    return;
  }
  std::vector<NodeRef> gone_gpus;
  std::vector<NodeRef> gone_nics;
  std::size_t notes = 0;
  for (const auto& difference : topology::diff(*input.before_machine, machine)) {
    const bool worse = difference.cost > 0 && !difference.b_is_better;
    const bool presence = difference.field == "presence";
    if (presence && worse) {
      const auto device = device_of(*input.before_machine, difference.subject);
      if (device.kind != NodeKind::none) {
        (device.kind == NodeKind::gpu ? gone_gpus : gone_nics).push_back(device);
        continue;
      }
    }
    // Differences without a cost: 20 are enough.
    if (difference.cost <= 0 && ++notes > 20) continue;
    const auto device = device_of(machine, difference.subject);
    auto& finding = result.add();
    finding.title = presence ? fmt::format("{} is {} since the baseline", difference.subject, worse ? "missing" : "new")
                             : fmt::format("{}: {} was {} and is {}", difference.subject, difference.field,
                                           difference.a, difference.b);
    finding.level = worse ? Level::warning : Level::note;
    finding.path = difference.subject;
    finding.evidence = {{fmt::format("then: {} {}", difference.field, difference.a), "the baseline"},
                        {fmt::format("now: {} {}", difference.field, difference.b), "this machine"}};
    const bool known = device.kind != NodeKind::none;
    if (known) finding.devices = {device};
    // An idle GPU lowers its link speed.
    const bool idle = device.kind == NodeKind::gpu && difference.field == "PCIe speed" &&
                      input.facts.text(gpu_fact(machine, device.index, "load")) != "yes";
    if (worse && known && (idle || !on_a_path(machine, device))) finding.level = Level::note;
    finding.cause = cause_of(machine, difference, device);
    // What the baseline's machine reached on these paths. Flows name devices by their places, so both must have the
    // same.
    const auto& then = *input.before_machine;
    if (finding.level == Level::warning && known && then.gpus.size() == machine.gpus.size() &&
        then.nics.size() == machine.nics.size() && then.numa_nodes.size() == machine.numa_nodes.size())
      cost_of(input, flows_through(machine, device), [&](Machine& mended) { mended = then; }).write_to(finding);
    finding.advice = "Ask what was done to this machine since the baseline: firmware, cables, slots, BIOS.";
  }
  missing(input, gone_gpus, result);
  // Those that carried traffic, and the others.
  const auto others = std::stable_partition(gone_nics.begin(), gone_nics.end(),
                                            [&](const NodeRef& nic) { return on_a_path(*input.before_machine, nic); });
  missing(input, {gone_nics.begin(), others}, result);
  missing(input, {others, gone_nics.end()}, result);
  for (const auto& [name, seen] : input.before->all()) {
    // Counters and loads always change.
    if (name.starts_with("net.") || name.starts_with("kernel.xid") || name.starts_with("env.") ||
        name.ends_with(".load") || name.ends_with(".irq_cpus") || name.ends_with(".throttle") ||
        name.starts_with("kernel.log"))
      continue;
    const auto* now = input.facts.find(name);
    if (now == nullptr || now->value == seen.value) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{} was {} and is {}", name, topology::text::quote(seen.value, 80),
                                topology::text::quote(now->value, 80));
    finding.level = Level::note;
    finding.evidence = {{"then: " + topology::text::quote(seen.value, 200), seen.where},
                        {"now: " + topology::text::quote(now->value, 200), now->where}};
    finding.advice = "If it was changed on purpose, save a new baseline.";
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
