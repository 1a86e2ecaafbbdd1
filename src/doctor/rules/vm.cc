#include <algorithm>

#include "doctor/rules/common.h"

// What a virtual machine hides or costs, and the order that PCIe keeps.
namespace fairway::doctor {
namespace {

constexpr double kClearlySlower = 0.6;  // GPU memory against host memory over one NIC

// Two runs that differ in relaxed ordering alone.
const Measurement* twin(const Look& look, const Measurement& row) {
  for (const auto& other : look.measured) {
    if (other.failed || !other.relaxed || !row.relaxed || *other.relaxed == *row.relaxed) continue;
    if (other.gpu_memory != row.gpu_memory || other.qps != row.qps || other.bytes != row.bytes) continue;
    if (other.operation == row.operation && other.device == row.device) return &other;
  }
  return nullptr;
}

Finding ordering_finding(const Look& look, std::optional<std::uint32_t> nic, double now, double then) {
  Finding finding;
  finding.title = fmt::format("GPU memory moves {:.0f} Gb/s{} where {:.0f} are there: relaxed ordering is not used",
                              now, nic ? " over " + look.machine().nics[*nic].name : "", then);
  if (nic) finding.devices = {nic_ref(*nic)};
  finding.loss_gbps = then - now;
  finding.now_gbps = now;
  finding.mended_gbps = then;
  finding.cause = "ordering";
  const auto device = nic ? look.machine().nics[*nic].name : std::string("DEVICE");
  finding.fix = {
      fmt::format("ib_write_bw -d {0} --use_cuda=0 SERVER    # and once more with --disable_pcie_relaxed: the A/B that "
                  "proves it",
                  device),
      "# in programs: IBV_ACCESS_RELAXED_ORDERING when memory for data is registered, never for flags and counters",
      "export NCCL_IB_PCI_RELAXED_ORDERING=1",
      "mlxconfig -d DEVICE set PCI_WR_ORDERING=1    # where programs cannot be changed; on the host, then reset the "
      "NIC"};
  return finding;
}

// By what was measured: a pair that differs in ordering alone, or GPU memory far below host memory over one NIC.
bool ordering_by_rows(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool compared = false;
  for (const auto& row : look.measured) {
    if (row.failed || !row.relaxed || *row.relaxed) continue;
    const auto* relaxed = twin(look, row);
    if (relaxed == nullptr) continue;
    compared = true;
    if (relaxed->gbps < 1.15 * row.gbps) continue;
    auto finding = ordering_finding(look, nic_of(machine, row), row.gbps, relaxed->gbps);
    finding.confidence = Confidence::confirmed;
    finding.evidence = {evidence_of(machine, row), evidence_of(machine, *relaxed)};
    say.add(std::move(finding));
    return true;
  }
  const Measurement* worst = nullptr;
  const Measurement* beside = nullptr;
  for (const auto& gpu_row : look.measured) {
    if (gpu_row.failed || !gpu_row.gpu_memory || gpu_row.relaxed.value_or(false)) continue;
    for (const auto& host_row : look.measured) {
      if (host_row.failed || host_row.gpu_memory || host_row.operation == Operation::copy) continue;
      if (host_row.device != gpu_row.device || host_row.device.empty()) continue;
      compared = true;
      if (gpu_row.gbps >= kClearlySlower * host_row.gbps) continue;
      const auto gpu = gpu_of(gpu_row);
      const auto nic = nic_of(machine, gpu_row);
      const auto path = gpu && nic ? topology::path_class(machine, gpu_ref(*gpu), nic_ref(*nic))
                                   : topology::Fact<topology::PathClass>{};
      // On bare metal a GPU across sockets is slow without it: far-nic says so.
      if (!topology::is_virtual(machine) && path && path->kind == PathKind::sys) continue;
      if (worst == nullptr || host_row.gbps - gpu_row.gbps > beside->gbps - worst->gbps) {
        worst = &gpu_row;
        beside = &host_row;
      }
    }
  }
  if (worst != nullptr) {
    auto finding = ordering_finding(look, nic_of(machine, *worst), worst->gbps, beside->gbps);
    finding.confidence = Confidence::measured;
    finding.evidence = {evidence_of(machine, *worst), evidence_of(machine, *beside)};
    if (topology::is_virtual(machine)) {
      finding.evidence.push_back({fmt::format("a virtual machine ({}), where strict ordering was measured at 84 Gb/s",
                                              machine.virtual_machine.value_or("unnamed")),
                                  source_of(machine.virtual_machine.source, "hypervisor")});
    }
    say.add(std::move(finding));
  }
  return compared;
}

void relaxed_ordering(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (rails(machine).empty() && look.measured.empty()) return say.absent();
  if (ordering_by_rows(look, say)) return;
  if (machine.gpus.empty()) return say.absent();
  for (const auto nic : rails(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci) continue;
    const auto key = pci_fact(machine, pci, "relaxed_ordering");
    const auto enabled = look.facts.number(key);
    if (!enabled) {
      say.lacks(look.facts.why_not(key));
      continue;
    }
    if (*enabled != 0) continue;
    const auto flows = flows_through(machine, nic_ref(nic));
    const auto cost =
        cost_of(look, flows, {}, {}, [](predict::Conditions& how) { how.ordering = predict::Ordering::strict; });
    auto finding = ordering_finding(look, nic, cost.now_gbps.value_or(0), cost.mended_gbps.value_or(0));
    finding.title = fmt::format("{} may not use relaxed ordering: the bit is clear", machine.nics[nic].name);
    finding.level = level_on_path(machine, nic_ref(nic), Level::warning);
    finding.loss_gbps.reset();
    put(finding, cost);
    finding.evidence.push_back(evidence_of(look.facts, key, "DevCtl: RlxdOrd-"));
    finding.fix.insert(finding.fix.begin(),
                       fmt::format("setpci -s {} CAP_EXP+8.w=0010:0010", machine.pci[pci.index].bus_id.to_string()));
    say.add(std::move(finding));
  }
}

void address_translation(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (!topology::is_virtual(machine) || machine.gpus.empty()) return say.absent();
  bool any = false;
  for (const auto nic : rails(machine)) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci || machine.pci[pci.index].vendor_id.value_or(0) != topology::kVendorMellanox) continue;
    any = true;
    const auto key = pci_fact(machine, pci, "ats");
    const auto enabled = look.facts.number(key);
    if (!enabled) {
      say.lacks(look.facts.why_not(key));
      continue;
    }
    if (*enabled != 0) continue;
    Finding finding;
    finding.title =
        fmt::format("{}: address translation services are off in a virtual machine", machine.nics[nic].name);
    finding.devices = {nic_ref(nic)};
    finding.evidence.push_back(evidence_of(look.facts, key, "ATSCtl: Enable-"));
    put(finding, cost_of_share(look, flows_through(machine, nic_ref(nic)), 1 - 27.0 / 48));  // nccl#949
    finding.fix = {"mlxconfig -d DEVICE set ATS_ENABLED=1    # on the host, then boot it",
                   "# on the host: ACS direct translation (DT) on the ports above the devices that it passes through"};
    say.add(std::move(finding));
  }
  if (!any) say.absent();
}

void numa_hidden(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (!topology::is_virtual(machine) || machine.gpus.empty() || rails(machine).empty()) return say.absent();
  std::vector<NodeRef> nowhere;
  for (const auto& device : placed_devices(machine)) {
    if (!topology::numa_of(machine, device.node)) nowhere.push_back(device.node);
  }
  // Where one GPU and one NIC share one node there is nothing to choose.
  if (nowhere.empty() || machine.gpus.size() < 2 || rails(machine).size() < 2) return;
  Finding finding;
  finding.title = fmt::format("The virtual machine hides the NUMA node of {}", folded_names(machine, nowhere));
  finding.devices = nowhere;
  finding.path = paths_text(machine, flows_through(machine, nowhere.front()));
  finding.evidence.push_back({"numa_node is -1", "PCI devices"});
  finding.fix = {
      "# on the hypervisor: a pxb-pcie root for each node with its devices, virtual NUMA nodes, pinned virtual CPUs",
      "fairway topo export nccl -o topo.xml; export NCCL_TOPO_FILE=$PWD/topo.xml    # where the layout is known"};
  finding.advice =
      "Programs then choose NICs by chance: 475.8 GB/s became 27.5 where it was reported, 52.8 after a file.";
  say.add(std::move(finding));
}

void no_peer_hint(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (!topology::is_virtual(machine) || machine.gpus.size() < 2) return say.absent();
  if (machine.peers.empty()) return say.lacks("the driver's answer on access between GPUs is not recorded");
  std::vector<NodeRef> refused;
  for (const auto& peer : machine.peers) {
    const auto path = topology::path_class(machine, gpu_ref(peer.from.index), gpu_ref(peer.to.index));
    if (path && (path->kind == PathKind::nvlink || path->kind == PathKind::xgmi)) continue;
    if (peer.write.known() && !*peer.write &&
        std::find(refused.begin(), refused.end(), gpu_ref(peer.from.index)) == refused.end())
      refused.push_back(gpu_ref(peer.from.index));
  }
  if (refused.empty()) return;
  Finding finding;
  finding.title = fmt::format("The driver refuses access between GPUs in this virtual machine ({})",
                              folded_names(machine, refused));
  finding.devices = refused;
  finding.path = fmt::format("between {}", folded_names(machine, refused));
  finding.cause = "peer access";
  finding.evidence.push_back(
      {fmt::format("peer access refused: {}", machine.peers.front().refusal.value_or("no reason given")),
       source_of(machine.peers.front().write.source, "peer access")});
  finding.fix = {
      "# on the hypervisor: give GPUs that may reach each other the same P2P clique (x-nv-gpudirect-clique=N)"};
  finding.advice = "Without it copies go through host memory; a latency of 12 us became 1.4 us with it.";
  say.add(std::move(finding));
}

constexpr Rule kRules[] = {
    {"relaxed-ordering", Family::vm, "Relaxed ordering is not used for GPU memory",
     "84 in place of 400 Gb/s in a virtual machine; 16 in place of 40 GB/s; 150 in place of 200 Gb/s.",
     "Runs with and without it that differ by more than 1.15; GPU memory below 0.6 of host memory over one NIC; the "
     "device's bit (DevCtl bit 4) clear.",
     "The registration flag for data memory, never for flags or counters.",
     "a virtual machine with 400 Gb/s NICs; ucx#10955, ucx#8062, torchcomms#3015", relaxed_ordering},
    {"ats-off", Family::vm, "ATS of a NIC is off in a virtual machine", "27 in place of 48 GB/s; 260 in place of 350.",
     "The Enable bit of a rail's ATS capability.",
     "ATS_ENABLED=1 and a reboot of the host; direct translation on its ports.", "nccl#949, nccl-tests#256",
     address_translation},
    {"numa-hidden", Family::vm, "The virtual machine hides NUMA nodes",
     "475.8 became 27.5 GB/s; 52.8 with virtual NUMA and a topology file.",
     "A GPU or rail without a NUMA node in a virtual machine of several of both.",
     "pxb-pcie roots and virtual NUMA; pinned virtual CPUs; a topology file.", "nccl-tests#256", numa_hidden},
    {"no-peer-hint", Family::vm, "GPUs in a virtual machine may not reach each other",
     "12 in place of 1.4 us; copies by host memory.", "The driver refuses peer access between GPUs without NVLink.",
     "A P2P clique on the hypervisor.", "cloud-hypervisor, pull request 6235", no_peer_hint},
};

}  // namespace

std::span<const Rule> vm_rules() {
  return kRules;
}

}  // namespace fairway::doctor
