#include <algorithm>

#include "doctor/rules/common.h"

// What a virtual machine hides or costs, and PCIe ordering.
namespace fairway::doctor {
namespace {

constexpr double kClearlySlower = 0.6;  // GPU memory against host memory over one NIC

// Two runs that differ in relaxed ordering alone.
const Measurement* twin(const RuleInput& input, const Measurement& row) {
  for (const auto& other : input.measured) {
    if (other.failed || !other.relaxed || !row.relaxed || *other.relaxed == *row.relaxed) continue;
    if (other.gpu_memory != row.gpu_memory || other.qps != row.qps || other.bytes != row.bytes) continue;
    if (other.both_ways != row.both_ways) continue;
    if (other.operation == row.operation && other.device == row.device) return &other;
  }
  return nullptr;
}

Finding ordering_finding(const RuleInput& input, std::optional<std::uint32_t> nic, double now, double then) {
  Finding finding;
  finding.title = fmt::format("GPU memory reaches {:.0f} of {:.0f} Gb/s{}: relaxed ordering is not used", now, then,
                              nic ? " over " + input.machine().nics[*nic].name : "");
  if (nic) finding.devices = {nic_ref(*nic)};
  finding.loss_gbps = then - now;
  finding.now_gbps = now;
  finding.mended_gbps = then;
  finding.cause = "ordering";
  const auto device = nic ? input.machine().nics[*nic].name : std::string("DEVICE");
  const auto pci = nic ? topology::pci_of(input.machine(), nic_ref(*nic)) : topology::Ref<topology::PciDevice>{};
  const auto bus = pci ? input.machine().pci[pci.index].bus_id.to_string() : device;
  finding.fix = {
      fmt::format("ib_write_bw -d {0} --use_cuda=0 SERVER    # then with --disable_pcie_relaxed: the A/B that "
                  "proves it",
                  device),
      "# in programs: register data memory with IBV_ACCESS_RELAXED_ORDERING, never memory of flags or counters",
      "export NCCL_IB_PCI_RELAXED_ORDERING=1",
      interrupting(fmt::format("mlxconfig -d {0} set PCI_WR_ORDERING=1 && mlxfwreset -d {0} reset", bus),
                   Interrupts::port, "if programs cannot be changed; on the host")};
  return finding;
}

// By measured rows: a pair that differs in ordering alone, or GPU memory far below host memory over one NIC. Whether
// there were rows to compare.
bool ordering_by_rows(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool compared = false;
  for (const auto& row : input.measured) {
    if (row.failed || !row.relaxed || *row.relaxed) continue;
    const auto* relaxed = twin(input, row);
    if (relaxed == nullptr) continue;
    compared = true;
    if (relaxed->gbps < 1.15 * row.gbps) continue;
    auto& finding = result.add(ordering_finding(input, nic_of(machine, row), row.gbps, relaxed->gbps));
    finding.confidence = Confidence::confirmed;
    finding.evidence = {evidence_of(machine, row), evidence_of(machine, *relaxed)};
    return true;
  }
  const Measurement* worst = nullptr;
  const Measurement* beside = nullptr;
  for (const auto& gpu_row : input.measured) {
    if (gpu_row.failed || !gpu_row.gpu_memory || gpu_row.relaxed.value_or(false) || gpu_row.device.empty()) continue;
    for (const auto& host_row : input.measured) {
      if (host_row.failed || host_row.gpu_memory || host_row.operation == Operation::copy) continue;
      if (host_row.device != gpu_row.device || host_row.both_ways != gpu_row.both_ways) continue;
      compared = true;
      if (gpu_row.gbps >= kClearlySlower * host_row.gbps) continue;
      const auto gpu = gpu_of(gpu_row);
      const auto nic = nic_of(machine, gpu_row);
      const auto path = gpu && nic ? topology::path_class(machine, gpu_ref(*gpu), nic_ref(*nic))
                                   : topology::Fact<topology::PathClass>{};
      // On bare metal a GPU across sockets is slow anyway: that is far-nic's finding.
      if (!topology::is_virtual(machine) && path && path->kind == PathKind::sys) continue;
      if (worst == nullptr || host_row.gbps - gpu_row.gbps > beside->gbps - worst->gbps) {
        worst = &gpu_row;
        beside = &host_row;
      }
    }
  }
  if (worst != nullptr) {
    auto& finding = result.add(ordering_finding(input, nic_of(machine, *worst), worst->gbps, beside->gbps));
    finding.confidence = Confidence::measured;
    finding.evidence = {evidence_of(machine, *worst), evidence_of(machine, *beside)};
    if (topology::is_virtual(machine)) {
      finding.evidence.push_back({fmt::format("a virtual machine ({}), where strict ordering was measured at 84 Gb/s",
                                              machine.virtual_machine.value_or("unnamed")),
                                  source_of(machine.virtual_machine.source, "hypervisor")});
    }
  }
  return compared;
}

void relaxed_ordering(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (rails(machine).empty() && input.measured.empty()) return result.not_applicable();
  if (ordering_by_rows(input, result)) return;
  if (machine.gpus.empty()) return result.not_applicable();
  const auto functions = rail_functions(machine);
  if (functions.empty()) return result.lacks("the PCI functions of the rails are not recorded");
  for (const auto& [nic, pci] : functions) {
    if (is_virtual_function(input, pci)) continue;
    const auto key = pci_fact(machine, pci, "relaxed_ordering");
    const auto enabled = number_of(input, key, result);
    if (!enabled || *enabled != 0) continue;
    const auto flows = flows_through(machine, nic_ref(nic));
    const auto cost =
        cost_of(input, flows, {}, {}, [](predict::Conditions& how) { how.ordering = predict::Ordering::strict; });
    auto& finding = result.add(ordering_finding(input, nic, 0, 0));
    finding.title =
        fmt::format("{}: relaxed ordering is disabled in its PCIe control register", machine.nics[nic].name);
    finding.level = level_on_path(machine, nic_ref(nic), Level::warning);
    cost.write_to(finding);
    finding.evidence.push_back(evidence_of(input.facts, key, "DevCtl: RlxdOrd-"));
    finding.fix.insert(finding.fix.begin(),
                       fmt::format("setpci -s {} CAP_EXP+8.w=0010:0010", machine.pci[pci.index].bus_id.to_string()));
  }
}

void address_translation(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (!topology::is_virtual(machine) || machine.gpus.empty()) return result.not_applicable();
  const auto functions = rail_functions(machine, topology::kVendorMellanox);
  if (functions.empty()) return result.not_applicable();
  for (const auto& [nic, pci] : functions) {
    const auto key = pci_fact(machine, pci, "ats");
    const auto enabled = number_of(input, key, result);
    if (!enabled || *enabled != 0) continue;
    auto finding = nic_finding(
        machine, nic, fmt::format("{}: ATS (address translation) is off in a virtual machine", machine.nics[nic].name));
    finding.evidence.push_back(evidence_of(input.facts, key, "ATSCtl: Enable-"));
    cost_of_share(input, flows_through(machine, nic_ref(nic)), 1 - 27.0 / 48).write_to(finding);  // nccl#949
    finding.fix = {
        fmt::format("mlxconfig -d {} set ATS_ENABLED=1    # on the host, by its bus id there; then reboot it",
                    machine.pci[pci.index].bus_id.to_string()),
        "# on the host: set ACS direct translation (DT) on the ports above the passed-through devices"};
    result.add(std::move(finding));
  }
}

void numa_hidden(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.gpus.empty() || rails(machine).empty()) return result.not_applicable();
  std::vector<NodeRef> nowhere;
  std::size_t placed = 0;
  for (const auto& device : placed_devices(machine)) {
    const bool known = topology::numa_of(machine, device.node).known();
    if (!known) nowhere.push_back(device.node);
    placed += known ? 1 : 0;
  }
  const bool guest = topology::is_virtual(machine);
  // On bare metal, or where nobody says what it is: some devices have a node and others have none.
  const bool partly = placed > 0 && machine.numa_nodes.size() > 1;
  if (!guest && !partly) return result.not_applicable();
  // Where one GPU and one NIC share one node there is nothing to choose.
  if (nowhere.empty() || machine.gpus.size() < 2) return;
  auto& finding = result.add();
  finding.title = guest
                      ? fmt::format("The virtual machine hides the NUMA node of {}", folded_names(machine, nowhere))
                      : fmt::format("{}: no NUMA node, so programs see no path to it", folded_names(machine, nowhere));
  if (guest && rails(machine).size() < 2) finding.level = Level::note;  // one NIC: nothing to choose between
  finding.devices = nowhere;
  finding.path = paths_text(machine, flows_through(machine, nowhere.front()));
  finding.evidence.push_back({"numa_node is -1", "PCI devices"});
  finding.fix = {
      "# on the hypervisor: virtual NUMA nodes with pinned vCPUs, and a pxb-pcie root for the devices of each node",
      "fairway topo export nccl -o topo.xml; export NCCL_TOPO_FILE=$PWD/topo.xml    # if you know the layout"};
  finding.advice =
      "Programs choose NICs by chance: in one report 475.8 GB/s became 27.5, and 52.8 with a topology file.";
}

void no_peer_hint(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (!topology::is_virtual(machine) || machine.gpus.size() < 2) return result.not_applicable();
  if (machine.peers.empty()) return result.lacks("whether the driver allows access between GPUs is not recorded");
  std::vector<NodeRef> refused;
  for (const auto& peer : machine.peers) {
    const auto path = topology::path_class(machine, gpu_ref(peer.from.index), gpu_ref(peer.to.index));
    if (path && (path->kind == PathKind::nvlink || path->kind == PathKind::xgmi)) continue;
    if (peer.write.known() && !*peer.write && std::ranges::find(refused, gpu_ref(peer.from.index)) == refused.end())
      refused.push_back(gpu_ref(peer.from.index));
  }
  if (refused.empty()) return;
  auto& finding = result.add();
  finding.title = fmt::format("The driver refuses peer access between GPUs in this virtual machine ({})",
                              folded_names(machine, refused));
  finding.devices = refused;
  finding.path = fmt::format("between {}", folded_names(machine, refused));
  finding.cause = "peer access";
  finding.evidence.push_back(
      {fmt::format("peer access refused: {}", machine.peers.front().refusal.value_or("no reason given")),
       source_of(machine.peers.front().write.source, "peer access")});
  finding.fix = {"# on the hypervisor: one P2P clique for GPUs that can reach each other (x-nv-gpudirect-clique=N)"};
  finding.advice = "Without it copies go through host memory; with it a latency of 12 us became 1.4 us.";
}

constexpr Rule kRules[] = {
    {"relaxed-ordering", Family::vm, "Relaxed ordering is not used for GPU memory",
     "84 in place of 400 Gb/s in a virtual machine; 16 in place of 40 GB/s; 150 in place of 200 Gb/s.",
     "Runs with and without it differ by more than a factor of 1.15; GPU memory is below 0.6 of host memory over one "
     "NIC; the device's bit is clear (DevCtl bit 4).",
     "Register data memory with the flag, never memory of flags or counters.",
     "a virtual machine with 400 Gb/s NICs; ucx#10955, ucx#8062, torchcomms#3015", relaxed_ordering},
    {"ats-off", Family::vm, "ATS of a NIC is off in a virtual machine", "27 in place of 48 GB/s; 260 in place of 350.",
     "The Enable bit of a rail's ATS capability is clear.",
     "ATS_ENABLED=1, then reboot the host; ACS direct translation on its ports.", "nccl#949, nccl-tests#256",
     address_translation},
    {"numa-hidden", Family::vm, "The virtual machine hides NUMA nodes",
     "27.5 in place of 475.8 GB/s; 52.8 with virtual NUMA and a topology file.",
     "A GPU or a rail has no NUMA node: in a virtual machine with several GPUs (a note with one rail), or where others "
     "have "
     "one.",
     "pxb-pcie roots and virtual NUMA; pinned virtual CPUs; a topology file.", "nccl-tests#256", numa_hidden},
    {"no-peer-hint", Family::vm, "The driver refuses peer access between GPUs of a virtual machine",
     "Copies go through host memory: 12 in place of 1.4 us.",
     "The driver refuses peer access between GPUs that have no NVLink.", "Set a P2P clique on the hypervisor.",
     "cloud-hypervisor, pull request 6235", no_peer_hint},
};

}  // namespace

std::span<const Rule> vm_rules() {
  return kRules;
}

}  // namespace fairway::doctor
