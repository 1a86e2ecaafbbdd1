#include <algorithm>
#include <map>

#include "doctor/rules/common.h"
#include "render/phrases.h"

// Links and the NICs at their ends. The rates of links, and what tools say of them: mlxlink of one, iblinkinfo and
// ibnetdiscover of a whole fabric.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

// An interface that runs slower than it can. Often that is all that the switch has; not where other rails run faster.
void below_its_modes(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  double fastest = 0;
  for (const auto& rail : rail_ports(machine)) fastest = std::max(fastest, rail.port->rate_gbps.value_or(0));
  for (const auto& interface : machine.interfaces) {
    const auto key = fmt::format("net.{}.supported_gbps", interface.name);
    const auto able = input.facts.number(key);
    if (!able || !interface.speed_gbps || *interface.speed_gbps >= *able || !interface.carrier.value_or(true)) continue;
    const auto nic = nic_of_wire(machine, interface.name);
    auto& finding = result.add();
    finding.title = fmt::format("{}: it runs at {:g} of {:g} Gb/s", interface.name, *interface.speed_gbps, *able);
    // A partner that advertises more than the link runs at is no switch that has no more.
    const auto partner_key = fmt::format("net.{}.partner_gbps", interface.name);
    const auto partner = input.facts.number(partner_key);
    const bool both = partner && *partner > *interface.speed_gbps;
    finding.level = both || (nic && *interface.speed_gbps < fastest) ? Level::warning : Level::note;
    if (nic) finding.devices = {nic_ref(*nic)};
    finding.path = nic ? machine.nics[*nic].name : interface.name;
    finding.cause = "port " + finding.path;
    finding.evidence = {
        {fmt::format("{:g} Gb/s", *interface.speed_gbps), source_of(interface.speed_gbps.source, "speed")},
        evidence_of(input.facts, key, fmt::format("a supported link mode has {:g} Gb/s", *able))};
    if (partner)
      finding.evidence.push_back(
          evidence_of(input.facts, partner_key, fmt::format("the other end advertises {:g} Gb/s", *partner)));
    const auto negotiates = fmt::format("net.{}.autoneg", interface.name);
    if (input.facts.text(negotiates) == "off")
      finding.evidence.push_back(evidence_of(input.facts, negotiates, "autonegotiation is off"));
    finding.fix = {fmt::format("ethtool {}    # what the link partner advertises", interface.name)};
    finding.advice = "Check the switch port's speed, the cable and the transceiver.";
  }
}

// Half duplex: one end was set by hand, and the other guesses.
void half_duplex(const RuleInput& input, RuleResult& result) {
  for (const auto& [name, seen] : input.facts.below("net")) {
    if (!name.ends_with(".duplex") || seen->value != "half") continue;
    const auto interface = name.substr(0, name.rfind('.'));
    const auto nic = nic_of_wire(input.machine(), interface);
    auto& finding = result.add();
    finding.title = fmt::format("{}: its link is half duplex", interface);
    if (nic) finding.devices = {nic_ref(*nic)};
    finding.level = nic ? Level::warning : Level::note;
    finding.path = nic ? input.machine().nics[*nic].name : interface;
    finding.cause = "duplex " + finding.path;
    finding.evidence.push_back({"Duplex: Half", seen->where});
    finding.fix = {interrupting(fmt::format("ethtool -s {} autoneg on", interface), Interrupts::port)};
    finding.advice = "One end negotiates and the other does not: set both alike.";
  }
}

// Whether there are two rails to compare. Rails of several rates where no rule names the slow ones: a job that uses all
// goes at the slowest's rate.
bool mixed_rates(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  std::map<double, std::vector<std::string>> rates;
  std::vector<NodeRef> slow;
  std::vector<Evidence> evidence;
  const auto add = [&](double gbps, const std::string& name, topology::Source source) {
    rates[gbps].push_back(name);
    if (evidence.size() < 16) evidence.push_back({fmt::format("{}: {:g} Gb/s", name, gbps), source_of(source, "rate")});
  };
  for (const auto& [nic, port] : rail_ports(machine)) {
    const auto& one = machine.nics[nic];
    // A bonded device reports one leg's rate; where its bond is not recorded, its name says so.
    if (one.bond || one.name.find("bond") != std::string::npos || machine.rdma[one.rdma.index].software.value_or(false))
      continue;
    if (port->state.value_or("ACTIVE") != "ACTIVE") continue;
    if (port->rate_gbps) {
      add(*port->rate_gbps, one.name, port->rate_gbps.source);
    } else if (const auto wire = topology::find_interface(machine, port->interface.value_or(""))) {
      const auto& speed = machine.interfaces[wire.index].speed_gbps;
      if (speed) add(*speed, one.name, speed.source);
    }
  }
  // Without RDMA devices the fast interfaces are what may be rails.
  constexpr double kFast = 40;
  for (const auto& interface : machine.interfaces) {
    if (!machine.rdma.empty() || !interface.speed_gbps || *interface.speed_gbps < kFast || interface.master) continue;
    if (interface.kind != topology::InterfaceKind::bond)
      add(*interface.speed_gbps, interface.name, interface.speed_gbps.source);
  }
  if (rates.size() < 2) return !rates.empty() && rates.begin()->second.size() > 1;
  std::string text;
  for (const auto& [gbps, names] : rates) {
    text += fmt::format("{}{} at {:g}", text.empty() ? "" : ", ",
                        names.size() > 3 ? fmt::format("{} and {} others", names.front(), names.size() - 1)
                                         : fmt::format("{}", fmt::join(names, " and ")),
                        gbps);
  }
  auto& finding = result.add();
  finding.title = fmt::format("Rails of {} rates: {} Gb/s", rates.size(), text);
  finding.level = Level::note;
  finding.path = fmt::format("{}", fmt::join(rates.begin()->second, ", "));
  finding.cause = "mixed rates";
  finding.evidence = std::move(evidence);
  finding.fix = {"mlxlink -d DEVICE -m    # of the slower ones: speed, FEC, cable"};
  finding.advice =
      "Slower by design, or by a cable, a transceiver or a switch port: a ring over all goes at the slowest.";
  return true;
}

void low_rate(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = std::ranges::any_of(machine.interfaces, [&](const auto& interface) {
    return input.facts.find(fmt::format("net.{}.supported_gbps", interface.name)) != nullptr;
  });
  below_its_modes(input, result);
  half_duplex(input, result);
  for (const auto& rail : rail_ports(machine)) {
    if (!is_ethernet(*rail.port) || machine.rdma[machine.nics[rail.nic].rdma.index].software.value_or(false)) continue;
    const auto key = fmt::format("net.{}.supported_gbps", wires_of(machine, rail.nic).front());
    if (input.facts.find(key) == nullptr)
      result.lacks(fmt::format("{}: what its link could run at (ethtool): {}", machine.nics[rail.nic].name,
                               input.facts.why_not(key)));
  }
  for (const auto& [key, nics] : alike_nics(machine)) {
    if (nics.size() < 3) continue;
    std::map<double, std::size_t> rates;
    for (const auto nic : nics) {
      const auto* port = port_of(machine, nic);
      if (port != nullptr && port->rate_gbps && port->state.value_or("ACTIVE") == "ACTIVE") ++rates[*port->rate_gbps];
    }
    if (rates.empty()) continue;
    any = true;
    const auto usual =
        std::ranges::max_element(rates, [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto nic : nics) {
      const auto* port = port_of(machine, nic);
      if (port == nullptr || !port->rate_gbps || port->state.value_or("ACTIVE") != "ACTIVE") continue;
      if (*port->rate_gbps >= usual->first) continue;
      // A bonded device reports one leg's rate.
      if (machine.nics[nic].bond) continue;
      const auto target = usual->first;
      auto& finding = result.add();
      finding.title = fmt::format("{}: its port runs at {:g} Gb/s, others of its kind at {:g}", machine.nics[nic].name,
                                  *port->rate_gbps, target);
      finding.devices = {nic_ref(nic)};
      finding.cause = "port " + machine.nics[nic].name;
      const auto rdma = machine.nics[nic].rdma;
      const auto mend = [&](Machine& mended) {
        for (auto& one : mended.rdma[rdma.index].ports) {
          if (one.number == port->number) one.rate_gbps.value = target;
        }
      };
      cost_of(input, flows_through(machine, nic_ref(nic)), mend).write_to(finding);
      if (!finding.loss_gbps) finding.loss_gbps = target - *port->rate_gbps;
      finding.level = level_on_path(machine, nic_ref(nic), Level::warning);
      finding.evidence.push_back(
          {fmt::format("{:g} Gb/s{}", *port->rate_gbps, port->speed_name ? " " + *port->speed_name : ""),
           source_of(port->rate_gbps.source, "port rate")});
      finding.fix = {fmt::format("mlxlink -d {} -m    # speed, FEC, cable", machine.nics[nic].name)};
      finding.advice = "Check FEC, cable and switch port.";
    }
  }
  if (result.findings.empty()) any = mixed_rates(input, result) || any;
  if (!any) result.not_applicable();
}

// mlxlink's own diagnosis of a link, and the errors that FEC did not mend.
void link_diagnosis(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto lines = input.facts.below("mlxlink");
  if (lines.empty()) return result.not_applicable();
  std::map<std::string_view, std::uint32_t> by_name;
  for (const auto nic : rails(machine)) by_name[machine.nics[nic].name] = nic;
  for (const auto& [name, seen] : lines) {
    const auto dot = name.rfind('.');
    const auto device = name.substr(0, dot);
    const auto what = name.substr(dot + 1);
    const auto value = text::to_unsigned(seen->value).value_or(0);
    const bool diagnosis = what == "opcode";
    const bool outside = what == "outside";
    const bool counts = what == "link_down" || what == "link_recovery";
    // A link goes down once or twice when the host and the switch start.
    if (!outside && value < (counts ? 3U : 1U)) continue;
    if (!outside && !diagnosis && !counts && what != "effective_errors" && what != "symbol_errors") continue;
    auto& finding = result.add();
    if (const auto rail = by_name.find(device); rail != by_name.end()) finding.devices = {nic_ref(rail->second)};
    const auto* says = input.facts.find(fmt::format("mlxlink.{}.recommendation", device));
    finding.title = diagnosis ? fmt::format("{}: mlxlink says: {}", device,
                                            says == nullptr ? fmt::format("opcode {}", value) : says->value)
                    : outside ? fmt::format("{}: {}, which its module does not allow", device, seen->value)
                    : counts  ? fmt::format("{}: its link {} {} times", device,
                                           what == "link_down" ? "went down" : "recovered from errors", value)
                              : fmt::format("{}: {} is {}", device, what, value);
    // Without a link there is no light to receive.
    const auto* state = input.facts.find(fmt::format("mlxlink.{}.state", device));
    const bool up = state == nullptr || text::lower(state->value) == "active";
    const bool warns = (outside && up) || (counts && value >= 10) || (diagnosis && !finding.devices.empty());
    finding.level = warns ? Level::warning : Level::note;
    finding.path = device;
    finding.cause = (diagnosis ? "port " : outside ? "module " : counts ? "flaps " : "errors ") + device;
    finding.evidence.push_back({fmt::format("{} {}", what, seen->value), seen->where});
    finding.fix = {fmt::format("mlxlink -d {} -m -c    # signal and transceiver", device)};
    finding.advice = "Check cable and transceiver; the switch port has the same counters.";
  }
}

void fabric_links(const RuleInput& input, RuleResult& result) {
  const auto slow = input.facts.below("fabric.slow");
  const auto waiting = input.facts.below("fabric.waiting");
  if (slow.empty() && waiting.empty()) {
    if (input.facts.below("fabric").empty()) result.not_applicable();
    return;
  }
  const auto add = [&result](const auto& lines, std::string title, const char* advice) {
    if (lines.empty()) return;
    auto& finding = result.add();
    finding.title = std::move(title);
    finding.path = "links of the fabric";
    for (const auto& [number, seen] : lines) {
      if (finding.evidence.size() < 6) finding.evidence.push_back({text::quote(seen->value, 160), seen->where});
    }
    finding.fix = {"iblinkinfo | grep -E 'Could be|Init|Armed'"};
    finding.advice = advice;
  };
  add(slow,
      fmt::format("{} below what both ends support",
                  render::count(slow.size(), "link of the fabric runs", "links of the fabric run")),
      "Reseat or replace the cable; a port may be limited on purpose.");
  add(waiting,
      fmt::format("{} for the subnet manager",
                  render::count(waiting.size(), "port of the fabric waits", "ports of the fabric wait")),
      "Is a subnet manager running, and does it reach these ports?");
}

constexpr Rule kRules[] = {
    {"port-rate", Family::port, "A port runs slower than others, or than it can", "In proportion to the rate.",
     "The rate of a port against that of most others, with three or more devices of one type and board; the rate of an "
     "interface against its fastest link mode (ethtool), a warning where the other end advertises more or other rails "
     "run faster, else a note; half duplex; rails of several rates, a note.",
     "Check FEC, cable and switch port.", "est.", low_rate},
    {"link-diagnosis", Family::port, "mlxlink calls a link faulty", "From retries to no link at all.",
     "mlxlink's status opcode is not 0; a temperature or a power outside the range that it prints beside it; a link "
     "that "
     "went down or recovered 10 times (3: a note); errors that FEC did not mend (a note).",
     "Cable, transceiver, switch port.", "NVIDIA's MFT manual, mlxlink", link_diagnosis},
    {"fabric-links", Family::port, "Links of the InfiniBand fabric are slow or not active",
     "Every path over them, in proportion.",
     "iblinkinfo's \"Could be\", and ports whose link is up and not active; links of one lane in ibnetdiscover.",
     "Cable; subnet manager.", "the manual of iblinkinfo", fabric_links},
};

}  // namespace

std::span<const Rule> wire_rules() {
  return kRules;
}

// ---- NICs and their drivers: what they drop, how they are set, and their firmware ----

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
    auto& finding = result.add();
    finding.title = fmt::format("NICs of the same board run {} versions of firmware", versions.size());
    finding.level = Level::note;
    for (const auto& [version, nodes] : versions) {
      finding.evidence.push_back({fmt::format("{}: {}", version, folded_names(machine, nodes)), "fw_ver"});
      finding.devices.insert(finding.devices.end(), nodes.begin(), nodes.end());
    }
    finding.fix = {"mlxfwmanager --query"};
    finding.advice = "Install one version everywhere before you look for other causes.";
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
    auto& finding = result.add();
    finding.title = fmt::format("{}: {:.0f} virtual functions are enabled", machine.nics[nic].name, *count);
    finding.devices = {nic_ref(nic)};
    finding.level = Level::note;
    finding.evidence.push_back(evidence_of(input.facts, key, fmt::format("sriov_numvfs {:.0f}", *count)));
    finding.fix = {fmt::format("echo 0 > /sys/bus/pci/devices/{}/sriov_numvfs    # if nothing uses them",
                               machine.pci[pci.index].bus_id.to_string())};
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
      if (std::ranges::find(interfaces, wire) != interfaces.end()) continue;
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
    auto& finding = result.add();
    finding.title = fmt::format("{}: RoCE is switched off", machine.nics[nic].name);
    finding.devices = {nic_ref(nic)};
    // On a NIC that no path uses it may be on purpose.
    finding.level = level_on_path(machine, nic_ref(nic), Level::warning);
    finding.evidence.push_back(evidence_of(input.facts, key, "enable_roce false"));
    const auto bus = machine.pci[pci.index].bus_id.to_string();
    finding.fix = {fmt::format("devlink dev param set pci/{} name enable_roce value true cmode driverinit", bus),
                   interrupting(fmt::format("devlink dev reload pci/{}", bus), Interrupts::port)};
  }
  if (!any) result.not_applicable();
}

constexpr Rule kNicRules[] = {
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
  return kNicRules;
}

}  // namespace fairway::doctor
