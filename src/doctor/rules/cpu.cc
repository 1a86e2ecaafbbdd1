#include <algorithm>

#include "doctor/rules/common.h"

// Processors and host memory.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

void far_interrupts(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (machine.numa_nodes.size() < 2) return say.absent();
  bool any = false;
  for (const auto nic : rails(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci) continue;
    any = true;
    const auto key = pci_fact(machine, pci, "irq_cpus");
    const auto* seen = look.facts.find(key);
    const auto numa = topology::numa_of(machine, nic_ref(nic));
    const auto node = numa ? topology::find_numa(machine, *numa) : topology::Ref<topology::NumaNode>{};
    if (seen == nullptr || !node || !machine.numa_nodes[node.index].cpus) {
      say.lacks(seen == nullptr ? look.facts.why_not(key) : machine.nics[nic].name + ": its NUMA node is not known");
      continue;
    }
    const auto cpus = topology::CpuSet::parse_list(seen->value);
    if (!cpus || cpus->empty() || machine.numa_nodes[node.index].cpus->intersects(*cpus)) continue;
    Finding finding;
    finding.title = fmt::format("{}: all its interrupts go to CPUs of another NUMA node", machine.nics[nic].name);
    finding.devices = {nic_ref(nic)};
    finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
    finding.evidence = {{"interrupts go to CPUs " + seen->value, seen->where},
                        {"near it are CPUs " + machine.numa_nodes[node.index].cpus->to_list(),
                         source_of(machine.numa_nodes[node.index].cpus.source, fmt::format("NUMA node {}", *numa))}};
    finding.fix = {fmt::format("set_irq_affinity_cpulist.sh {} {}", machine.numa_nodes[node.index].cpus->to_list(),
                               port_of(machine, nic) != nullptr ? port_of(machine, nic)->interface.value_or("INTERFACE")
                                                                : "INTERFACE"),
                   "systemctl stop irqbalance    # it would move them again"};
    finding.advice = "The same holds for threads that poll: pin them near the NIC.";
    say.add(std::move(finding));
  }
  if (!any) say.absent();
}

void governor(const Look& look, Saying& say) {
  if (rails(look.machine()).empty()) return say.absent();
  const auto* seen = look.facts.find("cpu.governor");
  if (seen == nullptr) return say.lacks("the frequency governor: " + look.facts.why_not("cpu.governor"));
  if (seen->value == "performance") return;
  Finding finding;
  finding.title = fmt::format("The CPUs' frequency governor is {}", seen->value);
  finding.level = Level::note;
  finding.evidence.push_back(evidence_of(look.facts, "cpu.governor"));
  if (look.facts.find("cpu.deepest_idle_us") != nullptr)
    finding.evidence.push_back(
        evidence_of(look.facts, "cpu.deepest_idle_us",
                    "deepest idle state wakes in " + look.facts.text("cpu.deepest_idle_us") + " us"));
  finding.fix = {"cpupower frequency-set -g performance",
                 "cpupower idle-set -D 2    # no state that wakes in more than 2 us"};
  finding.advice = "It lengthens the slowest of small messages; rates of large ones stay.";
  say.add(std::move(finding));
}

void numa_balancing(const Look& look, Saying& say) {
  if (rails(look.machine()).empty() || look.machine().numa_nodes.size() < 2) return say.absent();
  const auto on = look.facts.number("kernel.numa_balancing");
  if (!on) return say.lacks("kernel.numa_balancing: " + look.facts.why_not("kernel.numa_balancing"));
  if (*on == 0) return;
  Finding finding;
  finding.title = "The kernel moves pages between NUMA nodes by itself";
  finding.level = Level::note;
  finding.evidence.push_back(evidence_of(look.facts, "kernel.numa_balancing", "numa_balancing is on"));
  finding.fix = {"sysctl -w kernel.numa_balancing=0"};
  finding.advice = "Jitter where threads touch pages that it probes; vendors advise to switch it off.";
  say.add(std::move(finding));
}

void split_socket(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (machine.numa_nodes.size() <= machine.packages.size() || machine.packages.empty()) return say.absent();
  if (machine.gpus.empty() || rails(machine).empty()) return say.absent();
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
  Finding finding;
  finding.title = fmt::format("{}: SYS to NICs of the same socket, which is split into NUMA nodes",
                              folded_names(machine, mislabelled));
  finding.devices = mislabelled;
  finding.level = Level::note;
  finding.evidence.push_back(
      {fmt::format("{} NUMA nodes in {} sockets", machine.numa_nodes.size(), machine.packages.size()),
       "sockets and nodes"});
  finding.advice = "SNC or NPS splits a socket: such a path costs between NODE and SYS. Fairway counts it as NODE.";
  say.add(std::move(finding));
}

void memory_bound(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (rails(machine).size() < 2) return say.absent();
  bool any = false;
  for (const auto& row : look.measured) {
    if (row.failed || row.gpu_memory || row.device != "all" || row.operation == Operation::copy) continue;
    any = true;
    double sum = 0;
    for (const auto nic : rails(machine)) sum += topology::nic_capacity_gbps(machine, machine.nics[nic]).value_or(0);
    if (sum == 0 || row.gbps >= 0.6 * sum) continue;
    Finding finding;
    finding.title = fmt::format("All NICs together move {:.0f} of {:.0f} Gb/s of host memory", row.gbps, sum);
    finding.confidence = Confidence::measured;
    finding.level = Level::warning;
    finding.now_gbps = row.gbps;
    finding.mended_gbps = sum;
    finding.loss_gbps = sum - row.gbps;
    finding.path = "host memory - all NICs";
    finding.evidence.push_back(evidence_of(machine, row));
    finding.fix = {"numactl --cpunodebind=0 --membind=0 PROGRAM    # and for each node its own NICs"};
    finding.advice = "Memory channels or the link between sockets bound it: keep each buffer in the node of its NIC.";
    say.add(std::move(finding));
  }
  if (!any) say.lacks("no measured row of all NICs together from host memory (in a CSV: nic all)");
}

constexpr Rule kRules[] = {
    {"far-interrupts", Family::cpu, "A NIC's interrupts go to the other NUMA node",
     "Latency and jitter. Pinning threads near the NIC alone took 355 to 1238 Gb/s in one program.",
     "No CPU of the effective affinity of a rail's interrupts is of its NUMA node.", "Pin them near the NIC.",
     "libfabric-efa-demo, steps 11 and 12", far_interrupts},
    {"governor", Family::cpu, "CPUs are in a power-saving mode", "Longer tails of latency; no figure found.",
     "scaling_governor is not performance.", "performance, and no deep idle states.",
     "no figure; ngc_multinode_perf's boot line", governor},
    {"numa-balancing", Family::cpu, "Automatic NUMA balancing is on", "Jitter; no figure found.",
     "kernel.numa_balancing on a machine of several nodes with rails.", "kernel.numa_balancing=0.",
     "no figure; vendor's advice", numa_balancing},
    {"split-socket", Family::cpu, "A split socket makes near NICs look far",
     "A label; the cost lies between NODE and SYS.", "A path of class SYS whose two NUMA nodes are of one socket.",
     "Choose by socket and distance.", "est.", split_socket},
    {"memory-bound", Family::cpu, "Host memory or the sockets' link bounds all NICs together",
     "63.6 GB/s of host memory where GPUs reach 388.9.",
     "A measured row of all rails from host memory below 0.6 of their sum.",
     "Memory and threads of the NIC's own node.", "Mooncake's p5 figures; torchcomms#2808", memory_bound},
};

}  // namespace

std::span<const Rule> cpu_rules() {
  return kRules;
}

}  // namespace fairway::doctor
