#include <algorithm>
#include <map>

#include "doctor/rules/common.h"

// NICs and their drivers: what they drop, how they are set, and their firmware.
namespace fairway::doctor {
namespace {

void mixed_firmware(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto& [key, nics] : alike_nics(machine)) {
    std::map<std::string, std::vector<NodeRef>> versions;
    for (const auto nic : nics) {
      const auto& firmware = machine.rdma[machine.nics[nic].rdma.index].firmware;
      if (firmware) versions[*firmware].push_back(nic_ref(nic));
    }
    any = any || !versions.empty();
    if (versions.size() < 2) continue;
    Finding finding;
    finding.title = fmt::format("NICs of the same board run {} versions of firmware", versions.size());
    finding.level = Level::note;
    for (const auto& [version, nodes] : versions) {
      finding.evidence.push_back({fmt::format("{}: {}", version, folded_names(machine, nodes)), "fw_ver"});
      finding.devices.insert(finding.devices.end(), nodes.begin(), nodes.end());
    }
    finding.fix = {"mlxfwmanager --query"};
    finding.advice = "Install one version everywhere before you look for other causes.";
    result.add(std::move(finding));
  }
  if (!any) result.not_applicable();
}

void virtual_functions(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto functions = rail_functions(machine);
  if (functions.empty()) return result.not_applicable();
  for (const auto& [nic, pci] : functions) {
    const auto key = pci_fact(machine, pci, "sriov_numvfs");
    const auto count = number_of(input, key, result);
    if (!count || *count == 0) continue;
    Finding finding;
    finding.title = fmt::format("{}: {:.0f} virtual functions are enabled", machine.nics[nic].name, *count);
    finding.devices = {nic_ref(nic)};
    finding.level = Level::note;
    finding.evidence.push_back(evidence_of(input.facts, key, fmt::format("sriov_numvfs {:.0f}", *count)));
    finding.fix = {fmt::format("echo 0 > /sys/bus/pci/devices/{}/sriov_numvfs    # if nothing uses them",
                               machine.pci[pci.index].bus_id.to_string())};
    result.add(std::move(finding));
  }
}

void discards_of(const RuleInput& input, const std::string& interface, RuleResult& result) {
  constexpr const char* kCounters[] = {"rx_discards_phy", "rx_out_of_buffer", "tx_pause_storm_error_events"};
  add_counted(
      input, interface, kCounters, "discards",
      [&](Finding& finding, std::optional<std::uint32_t> nic) {
        finding.fix = {
            fmt::format("ethtool -S {} | grep -E 'discard|out_of_buffer|pause'    # which priority", interface)};
        if (nic)
          finding.fix.push_back(show_pfc(input.machine(), *nic, interface) + "    # PFC; the same class on the switch");
        finding.advice = "The NIC had no free buffer: PFC is off for this priority, or a peer ignores it.";
      },
      result);
}

void discards(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto ports = rail_ports(machine);
  const auto interfaces = interfaces_with_statistics(input.facts);
  if (ports.empty() && interfaces.empty()) return result.not_applicable();
  for (const auto& rail : ports) {
    for (const auto& wire : wires_of(machine, rail.nic)) {
      if (std::find(interfaces.begin(), interfaces.end(), wire) != interfaces.end()) continue;
      result.lacks(fmt::format("{}: ethtool statistics: {}", machine.nics[rail.nic].name,
                               input.facts.why_not(fmt::format("net.{}.stat", wire))));
    }
  }
  for (const auto& interface : interfaces) discards_of(input, interface, result);
}

void roce_off(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
    const auto pci = topology::pci_of(machine, nic_ref(nic));
    if (!pci || machine.pci[pci.index].vendor_id.value_or(0) != topology::kVendorMellanox) continue;
    any = true;
    const auto key = fmt::format("devlink.{}.enable_roce", machine.pci[pci.index].bus_id.to_string());
    const auto* seen = input.facts.find(key);
    if (seen == nullptr) {
      result.lacks(fmt::format("{}: devlink parameters: {}", machine.nics[nic].name, input.facts.why_not(key)));
      continue;
    }
    if (seen->value != "false") continue;
    Finding finding;
    finding.title = fmt::format("{}: RoCE is switched off", machine.nics[nic].name);
    finding.devices = {nic_ref(nic)};
    // On a NIC that no path uses it may be on purpose.
    finding.level = level_on_path(machine, nic_ref(nic), Level::warning);
    finding.evidence.push_back(evidence_of(input.facts, key, "enable_roce false"));
    const auto bus = machine.pci[pci.index].bus_id.to_string();
    finding.fix = {fmt::format("devlink dev param set pci/{} name enable_roce value true cmode driverinit", bus),
                   interrupting(fmt::format("devlink dev reload pci/{}", bus), Interrupts::port)};
    result.add(std::move(finding));
  }
  if (!any) result.not_applicable();
}

constexpr Rule kRules[] = {
    {"nic-discards", Family::nic, "A NIC drops packets because it has no free buffer", "Retransmissions and timeouts.",
     "ethtool's rx_discards_phy, rx_out_of_buffer and tx_pause_storm_error_events: a warning if they grew since the "
     "baseline, else a note.",
     "Turn on PFC for the traffic's priority, on hosts and switches.", "nccl#378", discards},
    {"roce-off", Family::nic, "RoCE is switched off in a NIC", "No RDMA over this NIC.",
     "The devlink parameter enable_roce.", "devlink dev param set, then a reload.",
     "the kernel's devlink documentation", roce_off},
    {"mixed-firmware", Family::nic, "NICs of the same board run different firmware",
     "Unexplained differences; no figure found.", "fw_ver of devices of one type and board.", "Install one version.",
     "no figure", mixed_firmware},
    {"virtual-functions", Family::nic, "Virtual functions are left on a NIC",
     "They share its queues and caches; no figure found.", "sriov_numvfs of a rail above 0.",
     "Remove those that nothing uses.", "no figure", virtual_functions},
};

}  // namespace

std::span<const Rule> nic_rules() {
  return kRules;
}

}  // namespace fairway::doctor
