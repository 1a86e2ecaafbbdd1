#include <algorithm>

#include "doctor/rules/common.h"

// CPUs and host memory.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

void far_interrupts(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.numa_nodes.size() < 2) return result.not_applicable();
  const auto functions = rail_functions(machine);
  if (functions.empty()) return result.not_applicable();
  for (const auto& [nic, pci] : functions) {
    const auto key = pci_fact(machine, pci, "irq_cpus");
    const auto* seen = input.facts.find(key);
    const auto numa = topology::numa_of(machine, nic_ref(nic));
    const auto node = numa ? topology::find_numa(machine, *numa) : topology::Ref<topology::NumaNode>{};
    if (seen == nullptr || !node || !machine.numa_nodes[node.index].cpus) {
      result.lacks(seen == nullptr ? input.facts.why_not(key)
                                   : machine.nics[nic].name + ": its NUMA node is not recorded");
      continue;
    }
    const auto cpus = topology::CpuSet::parse_list(seen->value);
    if (!cpus || cpus->empty() || machine.numa_nodes[node.index].cpus->intersects(*cpus)) continue;
    auto finding = nic_finding(
        machine, nic, fmt::format("{}: all its interrupts go to CPUs of another NUMA node", machine.nics[nic].name));
    finding.evidence = {{"interrupts go to CPUs " + seen->value, seen->where},
                        {"the NIC's NUMA node has CPUs " + machine.numa_nodes[node.index].cpus->to_list(),
                         source_of(machine.numa_nodes[node.index].cpus.source, fmt::format("NUMA node {}", *numa))}};
    finding.fix = {fmt::format("set_irq_affinity_cpulist.sh {} {}", machine.numa_nodes[node.index].cpus->to_list(),
                               port_of(machine, nic) != nullptr ? port_of(machine, nic)->interface.value_or("INTERFACE")
                                                                : "INTERFACE"),
                   "systemctl stop irqbalance    # or it moves them back"};
    finding.advice = "Pin threads that poll near the NIC too.";
    result.add(std::move(finding));
  }
}

void governor(const RuleInput& input, RuleResult& result) {
  if (rails(input.machine()).empty()) return result.not_applicable();
  const auto* seen = input.facts.find("cpu.governor");
  if (seen == nullptr) return result.lacks("the frequency governor: " + input.facts.why_not("cpu.governor"));
  if (seen->value == "performance") return;
  auto& finding = result.add();
  finding.title = fmt::format("The CPUs' frequency governor is {}", seen->value);
  finding.level = Level::note;
  finding.evidence.push_back(evidence_of(input.facts, "cpu.governor"));
  if (input.facts.find("cpu.deepest_idle_us") != nullptr)
    finding.evidence.push_back(
        evidence_of(input.facts, "cpu.deepest_idle_us",
                    "the deepest idle state wakes up in " + input.facts.text("cpu.deepest_idle_us") + " us"));
  finding.fix = {"cpupower frequency-set -g performance",
                 "cpupower idle-set -D 2    # no idle state that takes more than 2 us to wake up"};
  finding.advice = "It raises the tail latency of small messages, not the rate of large ones.";
}

void numa_balancing(const RuleInput& input, RuleResult& result) {
  if (rails(input.machine()).empty() || input.machine().numa_nodes.size() < 2) return result.not_applicable();
  const auto on = input.facts.number("kernel.numa_balancing");
  if (!on) return result.lacks("kernel.numa_balancing: " + input.facts.why_not("kernel.numa_balancing"));
  if (*on == 0) return;
  auto& finding = result.add();
  finding.title = "Automatic NUMA balancing is on";
  finding.level = Level::note;
  finding.evidence.push_back(evidence_of(input.facts, "kernel.numa_balancing", "numa_balancing is on"));
  finding.fix = {"sysctl -w kernel.numa_balancing=0"};
  finding.advice = "It unmaps pages to see who touches them, which costs jitter; vendors advise to turn it off.";
}

void split_socket(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.numa_nodes.size() <= machine.packages.size() || machine.packages.empty()) return result.not_applicable();
  if (machine.gpus.empty() || rails(machine).empty()) return result.not_applicable();
  std::vector<NodeRef> mislabelled;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    for (const auto nic : rails(machine)) {
      const auto path = topology::path_class(machine, gpu_ref(gpu), nic_ref(nic));
      if (!path || path->kind != PathKind::sys) continue;
      const auto a = topology::numa_of(machine, gpu_ref(gpu));
      const auto b = topology::numa_of(machine, nic_ref(nic));
      const auto node_a = a ? topology::find_numa(machine, *a) : topology::Ref<topology::NumaNode>{};
      const auto node_b = b ? topology::find_numa(machine, *b) : topology::Ref<topology::NumaNode>{};
      if (!node_a || !node_b || !machine.numa_nodes[node_a.index].package) continue;
      if (machine.numa_nodes[node_a.index].package != machine.numa_nodes[node_b.index].package) continue;
      mislabelled.push_back(gpu_ref(gpu));
      break;
    }
  }
  if (mislabelled.empty()) return;
  auto& finding = result.add();
  finding.title = fmt::format("{}: class SYS to NICs of the same socket, as the socket has several NUMA nodes",
                              folded_names(machine, mislabelled));
  finding.devices = mislabelled;
  finding.level = Level::note;
  finding.evidence.push_back(
      {fmt::format("{} NUMA nodes in {} sockets", machine.numa_nodes.size(), machine.packages.size()),
       "sockets and nodes"});
  finding.advice =
      "SNC or NPS splits the socket. Such a path costs more than NODE and less than SYS; Fairway counts it as NODE.";
}

void memory_bound(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (rails(machine).size() < 2) return result.not_applicable();
  bool any = false;
  for (const auto& row : input.measured) {
    if (row.failed || row.gpu_memory || row.device != "all" || row.operation == Operation::copy) continue;
    any = true;
    double sum = 0;
    for (const auto nic : rails(machine)) sum += topology::nic_capacity_gbps(machine, machine.nics[nic]).value_or(0);
    if (sum == 0) result.lacks("the rates of the NICs' ports are not recorded");
    if (sum == 0 || row.gbps >= 0.6 * sum) continue;
    auto& finding = result.add();
    finding.title = fmt::format("All NICs together move {:.0f} of {:.0f} Gb/s of host memory", row.gbps, sum);
    set_measured(finding, row.gbps, sum);
    finding.path = "host memory - all NICs";
    finding.evidence.push_back(evidence_of(machine, row));
    finding.fix = {"numactl --cpunodebind=0 --membind=0 PROGRAM    # once for each node, with its own NICs"};
    finding.advice =
        "Memory channels or the link between sockets are the limit: keep each buffer in its NIC's NUMA node.";
  }
  if (!any)
    result.lacks("no measured row of all NICs together from host memory (--measured with a CSV row of nic all)");
}

void no_memory(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.numa_nodes.size() < 2) return result.not_applicable();
  bool known = false;
  for (const auto& node : machine.numa_nodes) {
    known = known || node.memory_bytes.known();
    if (!node.memory_bytes || *node.memory_bytes > 0 || !node.cpus || node.cpus->empty()) continue;
    std::vector<NodeRef> near;
    for (const auto& device : placed_devices(machine)) {
      if (topology::numa_of(machine, device.node).value_or(~0U) == node.os_index) near.push_back(device.node);
    }
    auto& finding = result.add();
    finding.title = fmt::format("NUMA node {} has CPUs and no memory", node.os_index);
    finding.level = near.empty() ? Level::note : Level::warning;
    finding.devices = near;
    finding.path =
        near.empty() ? std::string("host memory of that node") : folded_names(machine, near) + " - host memory";
    finding.evidence.push_back(
        {"memory 0", source_of(node.memory_bytes.source, fmt::format("NUMA node {}", node.os_index))});
    finding.fix = {"dmidecode -t memory | grep -E 'Locator|Size'    # which slots are empty"};
    finding.advice = "All host memory of its devices is across sockets: fill that socket's memory slots.";
  }
  if (!known) result.lacks("how much memory the NUMA nodes have (numactl -H)");
}

constexpr Rule kRules[] = {
    {"far-interrupts", Family::cpu, "A NIC's interrupts go to the other NUMA node",
     "Latency and jitter. In one program pinning threads near the NIC raised 355 to 1238 Gb/s.",
     "The effective affinity of a rail's interrupts has no CPU of its NUMA node.", "Pin them near the NIC.",
     "libfabric-efa-demo, steps 11 and 12", far_interrupts},
    {"governor", Family::cpu, "CPUs are in a power-saving mode", "Higher tail latency; no figure found.",
     "scaling_governor is not performance.", "The governor performance, and no deep idle states.",
     "no figure; ngc_multinode_perf's boot line", governor},
    {"numa-balancing", Family::cpu, "Automatic NUMA balancing is on", "Jitter; no figure found.",
     "kernel.numa_balancing on a machine of several nodes with rails.", "kernel.numa_balancing=0.",
     "no figure; vendor's advice", numa_balancing},
    {"numa-without-memory", Family::cpu, "A NUMA node has CPUs and no memory",
     "All host memory of its GPUs and NICs is across sockets.",
     "A node with CPUs and 0 bytes: a warning if a GPU or rail is near it, else a note.", "Fill the socket's slots.",
     "est.", no_memory},
    {"split-socket", Family::cpu, "A socket of several NUMA nodes makes near NICs look far",
     "Only the class is wrong: the path costs more than NODE and less than SYS.",
     "A path of class SYS between two NUMA nodes of one socket.", "Choose NICs by socket and distance.", "est.",
     split_socket},
    {"memory-bound", Family::cpu, "Host memory or the link between sockets limits all NICs together",
     "63.6 GB/s of host memory where GPUs reach 388.9.",
     "A measured row of all rails from host memory below 0.6 of their sum.",
     "Memory and threads of the NIC's own NUMA node.", "Mooncake's p5 figures; torchcomms#2808", memory_bound},
};

}  // namespace

std::span<const Rule> cpu_rules() {
  return kRules;
}

}  // namespace fairway::doctor
