#include <algorithm>
#include <map>

#include "doctor/rules/common.h"
#include "topology/port_errors.h"

// Ports of RDMA devices: state, rate, errors, and how traffic spreads over them.
namespace fairway::doctor {
namespace {

bool is_active(const Machine& machine, std::uint32_t nic) {
  const auto* port = port_of(machine, nic);
  return port != nullptr && port->state.value_or("") == "ACTIVE";
}

// Whether another port of the same card is active: its other ports may be spare.
bool is_spare_of_card(const Machine& machine, std::uint32_t nic) {
  const auto own = topology::pci_of(machine, nic_ref(nic));
  if (!own) return false;
  for (std::uint32_t other = 0; other < machine.nics.size(); ++other) {
    const auto pci = topology::pci_of(machine, nic_ref(other));
    if (other == nic || !pci || !is_active(machine, other)) continue;
    if (machine.pci[pci.index].bus_id.same_slot(machine.pci[own.index].bus_id)) return true;
  }
  return false;
}

// Many machines have an unused port. One that is down is missed if most of its kind are active, if its only like is, or
// if it is the nearest NIC of a GPU; the spare port of a card never is.
bool is_missed(const Machine& machine, const topology::PathMatrix& classes, std::uint32_t nic) {
  if (is_spare_of_card(machine, nic)) return false;
  for (const auto& [key, nics] : alike_nics(machine)) {
    if (std::ranges::find(nics, nic) == nics.end()) continue;
    const auto active =
        static_cast<std::size_t>(std::ranges::count_if(nics, [&](auto one) { return is_active(machine, one); }));
    if (nics.size() > 1 && active * 2 >= nics.size() && active > 0) return true;
  }
  const auto own = std::ranges::find(classes.ends, nic_ref(nic));
  if (own == classes.ends.end()) return false;
  const auto column = static_cast<std::size_t>(own - classes.ends.begin());
  for (std::size_t row = 0; row < classes.ends.size(); ++row) {
    const auto kind = classes.at(row, column).kind;
    if (classes.ends[row].kind != NodeKind::gpu || kind >= PathKind::sys) continue;
    bool replaced = false;
    for (std::size_t other = 0; other < classes.ends.size() && !replaced; ++other) {
      const auto end = classes.ends[other];
      replaced = end.kind == NodeKind::nic && other != column && classes.at(row, other).kind <= kind &&
                 is_active(machine, end.index);
    }
    if (!replaced) return true;
  }
  return false;
}

// "ens1f1np1": by its name the interface of a card's second port.
bool is_second_port(const std::string& interface) {
  for (auto at = interface.rfind('f'); at != std::string::npos && at > 0; at = interface.rfind('f', at - 1)) {
    const auto digit = [&](std::size_t i) {
      return i < interface.size() && interface[i] >= '0' && interface[i] <= '9';
    };
    if (digit(at - 1) && digit(at + 1)) return interface[at + 1] != '0';
  }
  return false;
}

void port_down(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (machine.rdma.empty()) return result.not_applicable();
  std::size_t up = 0;
  double usual = 0;
  std::vector<std::uint32_t> down;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto* port = port_of(machine, i);
    if (port == nullptr) {
      if (machine.nics[i].rdma) result.lacks(machine.nics[i].name + ": its ports are not recorded");
      continue;
    }
    if (!port->state) {
      result.lacks(machine.nics[i].name + ": the state of its port is not recorded");
    } else if (*port->state == "ACTIVE") {
      ++up;
      usual = std::max(usual, topology::nic_capacity_gbps(machine, machine.nics[i]).value_or(0));
    } else {
      down.push_back(i);
    }
  }
  const auto classes = down.empty() ? topology::PathMatrix{} : topology::path_matrix(machine);
  for (const auto nic : down) {
    const auto& port = *port_of(machine, nic);
    auto& finding = result.add();
    finding.title = fmt::format("{}: its port is {}", machine.nics[nic].name, *port.state);
    finding.devices = {nic_ref(nic)};
    std::size_t like = 0;
    for (const auto& [key, nics] : alike_nics(machine)) {
      if (std::ranges::find(nics, nic) != nics.end()) like = nics.size();
    }
    // Where RDMA devices are all that is known, those of InfiniBand are taken as alike, and those that the kernel lists
    // with its state of the port (an interface's own state says less).
    const bool listed = port.state.source == topology::Source::netlink && !is_second_port(port.interface.value_or(""));
    const bool alone =
        machine.pci.empty() && machine.gpus.empty() && (listed || (!is_ethernet(port) && !port.interface));
    const bool expected_up = up == 0 || is_missed(machine, classes, nic) || (alone && up >= down.size());
    const auto physical = port.physical_state.value_or("");
    // One unused NIC of a machine without GPUs may be meant so; not where the text is about nothing else.
    const bool spare = machine.gpus.empty() && !machine.pci.empty() && like < 2;
    finding.level = up == 0 && usual == 0 && machine.rdma.size() > 0 && expected_up
                        ? (spare ? Level::note : Level::broken)
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
         source_of(port.state.source, fmt::format("port {}", port.number))});
    finding.fix = is_ethernet(port)
                      ? std::vector<std::string>{fmt::format("ip link set {0} up; ethtool {0}",
                                                             port.interface.value_or("INTERFACE"))}
                      : std::vector<std::string>{"ibstat; iblinkinfo    # cable; in state INIT the subnet manager"};
    finding.advice = physical == "Polling"    ? "It gets no signal: check cable, transceiver and switch port."
                     : physical == "Disabled" ? "It is switched off."
                                              : "";
  }
}

// What a link loses or damages, and what its ends then do; the congestion of Ethernet is a rule of its own.
constexpr std::string_view kLinkErrors[] = {"link_downed",           "symbol_error",
                                            "link_error_recovery",   "local_link_integrity_errors",
                                            "port_rcv_errors",       "excessive_buffer_overrun_errors",
                                            "local_ack_timeout_err", "out_of_sequence",
                                            "packet_seq_err",        "implied_nak_seq_err",
                                            "rx_icrc_encapsulated",  "rnr_nak_retry_err",
                                            "out_of_buffer",         "retry_exceeded_err",
                                            "max_retry_exceeded",    "to_retransmits",
                                            "seq_err_naks_rcvd",     "oos_drop_count",
                                            "req_cqe_error",         "resp_cqe_error"};

topology::Source source_of_counter(const topology::RdmaPort& port, std::string_view name) {
  for (const auto* list : {&port.counters, &port.hw_counters}) {
    for (const auto& counter : *list) {
      if (counter.name == name) return counter.source;
    }
  }
  return topology::Source::none;
}

bool has_any(const topology::RdmaPort& port, std::span<const std::string_view> counters) {
  return std::ranges::any_of(counters, [&](std::string_view counter) { return counter_of(port, counter).has_value(); });
}

void flapping(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  for (const auto& [nic, port] : rail_ports(machine)) {
    const auto name = machine.nics[nic].name;
    const auto* before = port_before(input, name, port->number);
    if (!has_any(*port, kLinkErrors)) result.lacks(name + ": its counters of errors are not recorded");
    for (const std::string_view counter : kLinkErrors) {
      // InfiniBand loses no packets by congestion: there a timeout is a link's, a peer's or a route's.
      if (counter == "local_ack_timeout_err" && is_ethernet(*port)) continue;
      const auto value = counter_of(*port, counter);
      if (!value || *value == 0) continue;
      const auto grown = growth(before, *port, counter);
      if (before != nullptr && grown && *grown == 0) continue;
      // Every port of healthy servers has some from when its link came up.
      if (!grown && (counter == "port_rcv_errors" || counter == "excessive_buffer_overrun_errors")) continue;
      const bool saturated = *value == 255 && counter.starts_with("link_");
      auto& finding = result.add();
      finding.title =
          grown ? fmt::format("{}: {} grew by {} since the baseline", name, counter, *grown)
                : fmt::format("{}: {} is {}{}", name, counter, *value, saturated ? ", the most it can count" : "");
      finding.devices = {nic_ref(nic)};
      // One reading does not say when it happened: a replaced cable leaves its counts.
      finding.level = grown && *grown > 0 ? Level::warning : Level::note;
      finding.path = name;
      finding.cause = "errors " + name;
      const auto meaning = topology::meaning_of_counter(counter);
      finding.evidence.push_back({fmt::format("{} = {}{}{}", counter, *value, meaning.empty() ? "" : ": ", meaning),
                                  source_of(source_of_counter(*port, counter), fmt::format("port {}", port->number))});
      finding.fix = {"fairway doctor --save now.json; sleep 600; fairway doctor --baseline now.json    # does it grow?",
                     fmt::format("mlxlink -d {} -m -c    # signal and transceiver", name)};
      finding.advice = "Check cable and transceiver; the switch port has the same counters.";
    }
  }
}

// The same of what a network interface's driver counts.
void wire_errors(const RuleInput& input, RuleResult& result) {
  constexpr const char* kCounters[] = {"link_down_events_phy", "rx_symbol_err_phy", "rx_crc_errors_phy", "rx_errors",
                                       "tx_errors"};
  for (const auto& interface : interfaces_with_statistics(input.facts))
    add_counted(
        input, interface, kCounters, "errors",
        [&](Finding& finding, std::optional<std::uint32_t>) {
          finding.fix = {fmt::format("ethtool -m {}    # the transceiver", interface)};
          finding.advice = "Check cable and transceiver; the switch port has the same counters.";
        },
        result);
}

// The same of what perfquery prints of a port, of this host's or a switch's.
void queried_errors(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  for (const auto& [name, seen] : input.facts.below("perfquery")) {
    const auto dot = name.rfind('.');
    const auto whose = name.substr(0, dot);
    const auto counter = name.substr(dot + 1);
    const auto value = topology::text::to_unsigned(seen->value).value_or(0);
    // Every port of healthy servers has some from when its link came up.
    if (value == 0 || counter == "port_rcv_errors" || counter == "excessive_buffer_overrun_errors" ||
        counter == "port_rcv_switch_relay_errors")
      continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: {} is {}", whose, counter, value);
    finding.level = Level::note;
    finding.path = whose;
    finding.cause = "errors " + whose;
    for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
      if (machine.nics[nic].name == whose) finding.devices = {nic_ref(nic)};
    }
    finding.evidence = {
        {fmt::format("{} = {}: {}", counter, value, topology::meaning_of_counter(counter)), seen->where}};
    finding.fix = {"perfquery -R; sleep 600; perfquery    # does it grow?"};
    finding.advice = "Check cable and transceiver; the other end has the same counters.";
  }
}

void port_errors(const RuleInput& input, RuleResult& result) {
  if (rail_ports(input.machine()).empty() && interfaces_with_statistics(input.facts).empty() &&
      input.facts.below("perfquery").empty())
    return result.not_applicable();
  flapping(input, result);
  wire_errors(input, result);
  queried_errors(input, result);
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
  const auto most =
      std::ranges::max_element(sent, [](const auto& a, const auto& b) { return a.second < b.second; })->second;
  if (most < 1000000000U) return result.lacks("how traffic spreads over NICs: next to nothing ran since the baseline");
  std::vector<NodeRef> idle;
  for (const auto& [nic, bytes] : sent) {
    if (bytes * 3 < most) idle.push_back(nic_ref(nic));
  }
  if (idle.empty()) return;
  auto& finding = result.add();
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
    auto& finding = result.add();
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
  }
  if (!any) result.lacks("no measured row of a rail (--measured)");
}

constexpr Rule kRules[] = {
    {"port-down", Family::port, "A port of an RDMA device is not active", "All of its rate.",
     "The state of each port: broken if none is active (a note for one unused NIC of a machine without GPUs). A "
     "warning "
     "if half or more of the devices of its kind are active, or if it is the nearest NIC of a GPU. Also if nothing but "
     "ports of InfiniBand, or of `rdma link`, is recorded and half or more of them are active. Else, and for a card's "
     "second port, a note.",
     "Check cable, transceiver, switch, subnet manager.", "est.", port_down},
    {"rail-slow", Family::port, "A NIC is far below its port's rate though the link is up", "13 of 97 Gb/s.",
     "The best measured row of a rail is below a quarter of the rate of one flow.", "Power off the host and on again.",
     "dgx-spark-playbooks, pull request 108", slow_rail},
    {"port-errors", Family::port, "A port counts errors of its link", "Stalls and retransmissions.",
     "link_downed, symbol_error, out_of_sequence and similar counters of the port and of the interface's driver, and "
     "timeouts of InfiniBand: a warning if they grew since the baseline, else a note. Some counters stop at 255.",
     "Check cable and transceiver; what each counter means stands beside it.", "a recorded H100 server", port_errors},
    {"idle-nics", Family::port, "Traffic uses only some of the NICs", "4 of 8 NICs idle.",
     "A NIC sent less than a third of what the busiest one sent since the baseline.", "Give each rank its near NIC.",
     "ucx#11680", idle_nics},
};

}  // namespace

std::span<const Rule> port_rules() {
  return kRules;
}

}  // namespace fairway::doctor
