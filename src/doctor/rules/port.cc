#include <algorithm>
#include <map>

#include "doctor/rules/common.h"

// Ports of RDMA devices: state, rate, errors, and how traffic spreads over them.
namespace fairway::doctor {
namespace {

// NICs by type and board, where either is recorded.
std::map<std::string, std::vector<std::uint32_t>> alike(const Machine& machine) {
  std::map<std::string, std::vector<std::uint32_t>> out;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto rdma = machine.nics[i].rdma;
    if (!rdma || machine.rdma[rdma.index].software.value_or(false)) continue;
    const auto& device = machine.rdma[rdma.index];
    if (!device.hca_type && !device.board_id) continue;
    out[device.hca_type.value_or("") + "/" + device.board_id.value_or("")].push_back(i);
  }
  return out;
}

void port_down(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.rdma.empty()) return result.not_applicable();
  std::size_t up = 0;
  double usual = 0;
  std::vector<std::uint32_t> down;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto* port = port_of(machine, i);
    if (port == nullptr) continue;
    if (!port->state) {
      result.lacks(machine.nics[i].name + ": the state of its port is not recorded");
    } else if (*port->state == "ACTIVE") {
      ++up;
      usual = std::max(usual, topology::nic_capacity_gbps(machine, machine.nics[i]).value_or(0));
    } else {
      down.push_back(i);
    }
  }
  for (const auto nic : down) {
    const auto& port = *port_of(machine, nic);
    Finding finding;
    finding.title = fmt::format("{}: its port is {}", machine.nics[nic].name, *port.state);
    finding.devices = {nic_ref(nic)};
    // Many machines have an unused port. One that is down among many active ones of its kind is a fault.
    std::size_t like = 0;
    std::size_t like_up = 0;
    for (const auto& [key, nics] : alike(machine)) {
      if (std::find(nics.begin(), nics.end(), nic) == nics.end()) continue;
      like = nics.size();
      like_up = static_cast<std::size_t>(std::count_if(nics.begin(), nics.end(), [&](std::uint32_t one) {
        const auto* other = port_of(machine, one);
        return other != nullptr && other->state.value_or("") == "ACTIVE";
      }));
    }
    const bool expected_up = up == 0 || (like > 2 && like_up * 2 > like);
    const auto physical = port.physical_state.value_or("");
    finding.level = up == 0 && usual == 0 && machine.rdma.size() > 0 && expected_up
                        ? (machine.gpus.empty() && like < 2 ? Level::note : Level::broken)
                    : expected_up ? Level::warning
                                  : Level::note;
    if (finding.level == Level::warning && usual > 0) {
      finding.loss_gbps = usual;
      finding.now_gbps = 0;
      finding.mended_gbps = usual;
    }
    finding.cause = "port " + machine.nics[nic].name;
    finding.path = machine.nics[nic].name;
    finding.evidence.push_back(
        {fmt::format("state {}{}", *port.state, physical.empty() ? "" : ", physical state " + physical),
         source_of(port.state.source, "port 1")});
    finding.fix = is_ethernet(port)
                      ? std::vector<std::string>{fmt::format("ip link set {0} up; ethtool {0}",
                                                             port.interface.value_or("INTERFACE"))}
                      : std::vector<std::string>{"ibstat; iblinkinfo    # cable; in state INIT the subnet manager"};
    finding.advice = physical == "Polling"    ? "It gets no signal: check cable, transceiver and switch port."
                     : physical == "Disabled" ? "It is switched off."
                                              : "";
    result.add(std::move(finding));
  }
}

void flapping(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto ports = rail_ports(machine);
  if (ports.empty()) return result.not_applicable();
  for (const auto& [nic, port] : ports) {
    const auto name = machine.nics[nic].name;
    const auto* before = port_before(input, name, port->number);
    if (port->counters.empty()) {
      result.lacks(name + ": its counters are not recorded");
      continue;
    }
    for (const auto* counter : {"link_downed", "symbol_error", "link_error_recovery", "local_link_integrity_errors"}) {
      const auto value = counter_of(*port, counter);
      if (!value || *value == 0) continue;
      const auto grown = growth(before, *port, counter);
      if (before != nullptr && grown && *grown == 0) continue;
      const bool saturated = *value == 255 && std::string_view(counter).starts_with("link_");
      Finding finding;
      finding.title =
          grown ? fmt::format("{}: {} grew by {} since the baseline", name, counter, *grown)
                : fmt::format("{}: {} is {}{}", name, counter, *value, saturated ? ", the most it can count" : "");
      finding.devices = {nic_ref(nic)};
      // One reading does not say when it happened: a replaced cable leaves its counts.
      finding.level = grown && *grown > 0 ? Level::warning : Level::note;
      finding.path = name;
      finding.cause = "errors " + name;
      finding.evidence.push_back(
          {fmt::format("{} = {}", counter, *value), fmt::format("counters of {} port {}", name, port->number)});
      finding.fix = {"fairway doctor --save now.json; sleep 600; fairway doctor --baseline now.json    # does it grow?",
                     fmt::format("mlxlink -d {} -m -c    # signal and transceiver", name)};
      finding.advice = "Check cable and transceiver; the switch port has the same counters.";
      result.add(std::move(finding));
    }
  }
}

void low_rate(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto& [key, nics] : alike(machine)) {
    if (nics.size() < 3) continue;
    any = true;
    std::map<double, std::size_t> rates;
    for (const auto nic : nics) {
      const auto* port = port_of(machine, nic);
      if (port != nullptr && port->rate_gbps && port->state.value_or("ACTIVE") == "ACTIVE") ++rates[*port->rate_gbps];
    }
    if (rates.empty()) continue;
    const auto usual =
        std::max_element(rates.begin(), rates.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto nic : nics) {
      const auto* port = port_of(machine, nic);
      if (port == nullptr || !port->rate_gbps || port->state.value_or("ACTIVE") != "ACTIVE") continue;
      if (*port->rate_gbps >= usual->first) continue;
      // A bonded device reports one leg's rate.
      if (machine.nics[nic].bond) continue;
      const auto target = usual->first;
      Finding finding;
      finding.title = fmt::format("{}: its port runs at {:g} Gb/s, others of its kind at {:g}", machine.nics[nic].name,
                                  *port->rate_gbps, target);
      finding.devices = {nic_ref(nic)};
      finding.cause = "port " + machine.nics[nic].name;
      const auto rdma = machine.nics[nic].rdma;
      const auto mend = [&](Machine& mended) { mended.rdma[rdma.index].ports.front().rate_gbps.value = target; };
      cost_of(input, flows_through(machine, nic_ref(nic)), mend).write_to(finding);
      if (!finding.loss_gbps) finding.loss_gbps = target - *port->rate_gbps;
      finding.level = level_on_path(machine, nic_ref(nic), Level::warning);
      finding.evidence.push_back(
          {fmt::format("{:g} Gb/s{}", *port->rate_gbps, port->speed_name ? " " + *port->speed_name : ""),
           source_of(port->rate_gbps.source, "port rate")});
      finding.fix = {fmt::format("mlxlink -d {} -m    # speed, FEC, cable", machine.nics[nic].name)};
      finding.advice = "Check FEC, cable and switch port.";
      result.add(std::move(finding));
    }
  }
  if (!any) result.not_applicable();
}

void mixed_firmware(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto& [key, nics] : alike(machine)) {
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

void idle_nics(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto nics = rails(machine);
  if (nics.size() < 2) return result.not_applicable();
  std::vector<std::pair<std::uint32_t, std::uint64_t>> sent;
  for (const auto nic : nics) {
    const auto* port = port_of(machine, nic);
    const auto words = port == nullptr
                           ? std::nullopt
                           : growth(port_before(input, machine.nics[nic].name, port->number), *port, "port_xmit_data");
    if (words) sent.emplace_back(nic, *words * 4);  // the counter's unit is four bytes
  }
  if (sent.size() < 2) return result.lacks("how much each NIC sent since a baseline (--baseline)");
  const auto most = std::max_element(sent.begin(), sent.end(), [](const auto& a, const auto& b) {
                      return a.second < b.second;
                    })->second;
  if (most < 1000000000U) return;  // nothing ran
  std::vector<NodeRef> idle;
  for (const auto& [nic, bytes] : sent) {
    if (bytes * 3 < most) idle.push_back(nic_ref(nic));
  }
  if (idle.empty()) return;
  Finding finding;
  finding.title =
      fmt::format("{} of {} NICs carry almost no traffic ({})", idle.size(), sent.size(), folded_names(machine, idle));
  finding.devices = idle;
  finding.confidence = Confidence::measured;
  for (const auto& [nic, bytes] : sent) {
    if (finding.evidence.size() < 8)
      finding.evidence.push_back({fmt::format("{}: {:.1f} GB sent since the baseline", machine.nics[nic].name,
                                              static_cast<double>(bytes) / 1e9),
                                  "port_xmit_data"});
  }
  Cost cost;
  for (const auto& node : idle) {
    if (const auto capacity = topology::nic_capacity_gbps(machine, machine.nics[node.index])) cost.add(0, *capacity);
  }
  finding.path = folded_names(machine, idle);
  cost.write_to(finding);
  finding.fix = {fmt::format("export NCCL_IB_HCA=={}    # all rails", joined_names(machine, nics)),
                 "fairway topo nics --gpu 0    # the near ones of a rank's GPU, best first"};
  result.add(std::move(finding));
}

void slow_rail(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto nics = rails(machine);
  if (nics.empty()) return result.not_applicable();
  bool any = false;
  for (const auto nic : nics) {
    // A software device is as fast as the CPU.
    if (machine.rdma[machine.nics[nic].rdma.index].software.value_or(false)) continue;
    const Measurement* best = nullptr;
    for (const auto& row : input.measured) {
      if (row.failed || row.operation == Operation::copy || nic_of(machine, row) != nic) continue;
      if (row.bytes != 0 && row.bytes < 65536) continue;
      if (best == nullptr || row.gbps > best->gbps) best = &row;
    }
    const auto rate = topology::nic_one_flow_gbps(machine, machine.nics[nic]);
    if (best == nullptr || !rate) continue;
    any = true;
    if (best->gbps >= 0.25 * *rate) continue;
    Finding finding;
    finding.title =
        fmt::format("{}: {:.1f} of {:g} Gb/s, though the link is up", machine.nics[nic].name, best->gbps, *rate);
    finding.devices = {nic_ref(nic)};
    set_measured(finding, best->gbps, 0.97 * *rate);
    finding.level = Level::broken;
    finding.path = machine.nics[nic].name;
    finding.cause = "rail " + machine.nics[nic].name;
    finding.evidence.push_back(evidence_of(machine, *best));
    finding.fix = {"# power off the host and on again: a NIC stays throttled over a warm reboot"};
    finding.advice = "If that does not help, check its temperature and power (mget_temp, mlxlink) and its PCIe link.";
    result.add(std::move(finding));
  }
  if (!any) result.lacks("no measured row of a rail (--measured)");
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

void discards(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto ports = rail_ports(machine);
  if (ports.empty()) return result.not_applicable();
  for (const auto& [nic, port] : ports) {
    const auto interface = port->interface.value_or("");
    const auto prefix = fmt::format("net.{}.stat", interface);
    const auto statistics = input.facts.below(prefix);
    if (statistics.empty()) {
      result.lacks(fmt::format("{}: ethtool statistics: {}", machine.nics[nic].name, input.facts.why_not(prefix)));
      continue;
    }
    for (const auto* counter : {"rx_discards_phy", "rx_out_of_buffer", "tx_pause_storm_error_events"}) {
      const auto key = prefix + "." + counter;
      const auto now = input.facts.number(key);
      const auto then = input.before == nullptr ? std::nullopt : input.before->number(key);
      const bool both = now && then && *now >= *then;
      const double dropped = both ? *now - *then : now.value_or(0);
      if (dropped <= 0) continue;
      Finding finding;
      finding.title = fmt::format("{}: {} {} {:.0f}{}", machine.nics[nic].name, counter, both ? "grew by" : "is",
                                  dropped, both ? " since the baseline" : "");
      finding.devices = {nic_ref(nic)};
      // One reading does not say when it happened.
      finding.level = both ? Level::warning : Level::note;
      finding.path = machine.nics[nic].name;
      finding.cause = "discards " + machine.nics[nic].name;
      finding.evidence.push_back(evidence_of(input.facts, key, fmt::format("{} = {:.0f}", counter, now.value_or(0))));
      finding.fix = {
          fmt::format("ethtool -S {} | grep -E 'discard|out_of_buffer|pause'    # which priority", interface),
          fmt::format("mlnx_qos -i {}    # PFC and buffers; the same class on the switch", interface)};
      finding.advice = "The NIC had no free buffer: PFC is off for this priority, or a peer ignores it.";
      result.add(std::move(finding));
    }
  }
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
                   fmt::format("devlink dev reload pci/{}", bus)};
    result.add(std::move(finding));
  }
  if (!any) result.not_applicable();
}

constexpr Rule kRules[] = {
    {"port-down", Family::port, "A port of an RDMA device is not active", "All of its rate.",
     "The state of each port: a warning if most devices of its kind are active, broken if no port is.",
     "Check cable, transceiver, switch, subnet manager.", "est.", port_down},
    {"rail-slow", Family::port, "A NIC is far below its port's rate though the link is up", "13 of 97 Gb/s.",
     "The best measured row of a rail is below a quarter of the rate of one flow.", "Power off the host and on again.",
     "dgx-spark-playbooks, pull request 108", slow_rail},
    {"port-rate", Family::port, "A port runs slower than others of its kind", "In proportion to the rate.",
     "The rate of a port against that of most others, with three or more devices of one type and board.",
     "Check FEC, cable and switch port.", "est.", low_rate},
    {"port-errors", Family::port, "A link flaps or has symbol errors", "Stalls and retransmissions.",
     "link_downed, symbol_error and similar counters: a warning if they grew since the baseline, else a note. Some "
     "counters stop at 255.",
     "Check cable and transceiver.", "a recorded H100 server", flapping},
    {"nic-discards", Family::port, "A NIC drops packets because it has no free buffer", "Retransmissions and timeouts.",
     "ethtool's rx_discards_phy, rx_out_of_buffer and tx_pause_storm_error_events: a warning if they grew since the "
     "baseline, else a note.",
     "Turn on PFC for the traffic's priority, on hosts and switches.", "nccl#378", discards},
    {"roce-off", Family::port, "RoCE is switched off in a NIC", "No RDMA over this NIC.",
     "The devlink parameter enable_roce.", "devlink dev param set, then a reload.",
     "the kernel's devlink documentation", roce_off},
    {"idle-nics", Family::port, "Traffic uses only some of the NICs", "4 of 8 NICs idle.",
     "A NIC sent less than a third of what the busiest one sent since the baseline.", "Give each rank its near NIC.",
     "ucx#11680", idle_nics},
    {"mixed-firmware", Family::port, "NICs of the same board run different firmware",
     "Unexplained differences; no figure found.", "fw_ver of devices of one type and board.", "Install one version.",
     "no figure", mixed_firmware},
    {"virtual-functions", Family::port, "Virtual functions are left on a NIC",
     "They share its queues and caches; no figure found.", "sriov_numvfs of a rail above 0.",
     "Remove those that nothing uses.", "no figure", virtual_functions},
};

}  // namespace

std::span<const Rule> port_rules() {
  return kRules;
}

}  // namespace fairway::doctor
