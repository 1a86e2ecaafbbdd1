#include <algorithm>
#include <map>

#include "doctor/rules/common.h"

// Bonds of two ports or more below one RDMA device.
namespace fairway::doctor {
namespace {

bool carries(const topology::Bond& bond, const topology::BondLeg& leg) {
  if (!leg.up.value_or(true)) return false;
  return !leg.aggregator || !bond.active_aggregator || *leg.aggregator == *bond.active_aggregator;
}

// Bonds of two legs or more, those of hosts without RDMA too.
std::vector<std::uint32_t> used_bonds(const Machine& machine) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < machine.bonds.size(); ++i) {
    if (machine.bonds[i].legs.size() > 1) out.push_back(i);
  }
  return out;
}

std::string bond_name(const Machine& machine, const topology::Bond& bond) {
  return bond.interface ? machine.interfaces[bond.interface.index].name : "bond";
}

void leg_down(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto bonds = used_bonds(machine);
  if (bonds.empty()) return result.not_applicable();
  for (const auto index : bonds) {
    const auto& bond = machine.bonds[index];
    if (std::ranges::none_of(bond.legs, [](const auto& leg) { return leg.up.known(); })) {
      result.lacks(fmt::format("{}: the state of its legs is not recorded", bond_name(machine, bond)));
      continue;
    }
    if (bond.mode.value_or("") == "active-backup") {
      if (std::ranges::all_of(bond.legs, [](const auto& leg) { return leg.up.value_or(true); })) continue;
    }
    std::vector<const topology::BondLeg*> dead;
    double fastest = 0;
    for (const auto& leg : bond.legs) {
      fastest = std::max(fastest, leg.speed_gbps.value_or(0));
      if (!carries(bond, leg)) dead.push_back(&leg);
    }
    for (const auto& leg : bond.legs) {
      if (leg.speed_gbps && *leg.speed_gbps < 0.9 * fastest && carries(bond, leg)) dead.push_back(&leg);
    }
    if (dead.empty()) continue;
    std::string names;
    for (const auto* leg : dead) names += (names.empty() ? "" : ", ") + machine.interfaces[leg->interface.index].name;
    Finding finding;
    const bool all = dead.size() == bond.legs.size();
    finding.level = all ? Level::broken : Level::warning;
    finding.title = all ? fmt::format("{}: no leg carries traffic", bond_name(machine, bond))
                        : fmt::format("{}: {} of {} legs down or slower than the others ({})", bond_name(machine, bond),
                                      dead.size(), bond.legs.size(), names);
    finding.devices = {{NodeKind::bond, index}};
    const auto device = NodeRef{NodeKind::bond, index};
    finding.cause = "bond " + bond_name(machine, bond);
    for (const auto* leg : dead) {
      std::string what = machine.interfaces[leg->interface.index].name + ": ";
      if (leg->up && !*leg->up) {
        what += leg->up.source == topology::Source::bonding || leg->up.source == topology::Source::procfs
                    ? "MII status down"
                    : "no carrier";
      } else if (bond.active_aggregator.source == topology::Source::derived && leg->aggregator) {
        what += fmt::format("in aggregator {}, another leg in {}: one of the two carries nothing", *leg->aggregator,
                            *bond.active_aggregator);
      } else if (leg->aggregator && bond.active_aggregator && *leg->aggregator != *bond.active_aggregator) {
        what += fmt::format("in aggregator {}; the bond's active one is {}", *leg->aggregator, *bond.active_aggregator);
      } else {
        what += fmt::format("{:g} Gb/s; the fastest leg has {:g}", leg->speed_gbps.value_or(0), fastest);
      }
      if (leg->link_failures.value_or(0) > 0) what += fmt::format(", {} link failures", *leg->link_failures);
      const auto source = leg->up ? leg->up.source : leg->speed_gbps.source;
      const bool file = source == topology::Source::bonding || source == topology::Source::procfs;
      finding.evidence.push_back(
          {what, source_of(source, file ? "/proc/net/bonding/" + bond_name(machine, bond) : "the leg's interface")});
    }
    const auto flows = flows_through(machine, device);
    cost_of(input, flows, [&](Machine& mended) {
      auto& one = mended.bonds[index];
      for (auto& leg : one.legs) {
        leg.up.value = true;
        if (fastest > 0) leg.speed_gbps.value = fastest;
        leg.aggregator = one.active_aggregator;
      }
    }).write_to(finding);
    // Where the model knows no rate, by the rates of the legs.
    if (finding.loss_gbps.value_or(0) == 0 && fastest > 0) {
      double lost = 0;
      for (const auto* leg : dead) lost += fastest - (carries(bond, *leg) ? leg->speed_gbps.value_or(0) : 0);
      finding.loss_gbps = lost;
      finding.mended_gbps = fastest * static_cast<double>(bond.legs.size());
      finding.now_gbps = *finding.mended_gbps - lost;
    }
    const auto active = bond.active_leg.value_or("");
    const bool active_dead = std::ranges::any_of(dead, [&](const topology::BondLeg* leg) {
      return machine.interfaces[leg->interface.index].name == active && !leg->up.value_or(true);
    });
    if (bond.mode.value_or("") == "active-backup" && active_dead) {
      finding.level = Level::broken;
      finding.title =
          fmt::format("{}: its active leg {} is dead, and it did not fail over", bond_name(machine, bond), active);
      finding.advice = "Not a packet leaves. Set a miimon (below), and it changes to the other leg.";
    } else if (bond.mode.value_or("") == "active-backup" && !all) {
      finding.level = Level::note;
      finding.loss_gbps.reset();
      finding.advice = "The bond has no backup left: the next failure ends its traffic.";
    }
    const auto first = machine.interfaces[dead.front()->interface.index].name;
    finding.fix = {
        fmt::format("ip link set {0} up; ethtool {0}    # link and speed; then cable and transceiver", first),
        fmt::format("grep -A12 {} /proc/net/bonding/{}    # LACP: aggregator and churn; then the switch port", first,
                    bond_name(machine, bond))};
    result.add(std::move(finding));
  }
}

// miimon 0 is the kernel's default for balance-rr, xor, active-backup and broadcast.
void unwatched(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto bonds = used_bonds(machine);
  if (bonds.empty()) return result.not_applicable();
  for (const auto index : bonds) {
    const auto& bond = machine.bonds[index];
    const auto name = bond_name(machine, bond);
    if (!bond.watch_ms) {
      result.lacks(fmt::format("{}: how often it looks at its links (/proc/net/bonding/{})", name, name));
      continue;
    }
    // 802.3ad looks by itself: LACP needs a miimon, and the kernel sets one.
    if (*bond.watch_ms > 0 || bond.mode.value_or("") == "802.3ad") continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: nothing looks at its links: a dead leg stays in use", name);
    finding.devices = {{NodeKind::bond, index}};
    finding.level = level_on_path(machine, {NodeKind::bond, index}, Level::warning);
    finding.path = name;
    finding.evidence.push_back({"MII and ARP polling interval 0 ms", source_of(bond.watch_ms.source, name)});
    finding.fix = {fmt::format("ip link set {} type bond miimon 100", name)};
    finding.advice = "Write it into the host's network settings too; without it the bond never fails over.";
  }
}

void one_queue_pair(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  bool looked = false;
  for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
    const auto bond = machine.nics[nic].bond;
    if (!bond || machine.bonds[bond.index].legs.size() < 2) continue;
    any = true;
    const auto capacity = topology::nic_capacity_gbps(machine, machine.nics[nic]);
    const Measurement* best = nullptr;
    double many = 0;
    for (const auto& row : input.measured) {
      if (row.failed || nic_of(machine, row) != nic) continue;
      looked = looked || (row.qps == 1 && capacity);
      if (row.qps == 1 && (best == nullptr || row.gbps > best->gbps)) best = &row;
      if (row.qps > 1) many = std::max(many, row.gbps);
    }
    if (best == nullptr || !capacity || best->gbps > 0.6 * *capacity) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: one queue pair uses one leg of the bond: {:.0f} of {:.0f} Gb/s",
                                machine.nics[nic].name, best->gbps, *capacity);
    finding.devices = {nic_ref(nic)};
    const bool proven = many > 1.15 * best->gbps;
    set_measured(finding, best->gbps, proven ? many : 0.97 * *capacity);
    // Jobs have more queue pairs than a benchmark with one: a note until several were measured.
    finding.level = proven ? Level::warning : Level::note;
    if (proven) finding.confidence = Confidence::confirmed;
    finding.path = machine.nics[nic].name;
    finding.evidence.push_back(evidence_of(machine, *best));
    finding.evidence.push_back(
        {fmt::format("{} legs, {:.0f} Gb/s in all", machine.bonds[bond.index].legs.size(), *capacity),
         source_of(capacity.source, "bond")});
    finding.fix = {"export NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=1",
                   fmt::format("ib_write_bw -d {} -q 4 SERVER    # against -q 1", machine.nics[nic].name)};
    if (!proven) finding.advice = "If jobs also use one queue pair for each peer: four or more use both legs.";
  }
  if (!any) return result.not_applicable();
  if (!looked) result.lacks("no measured row of one queue pair over a bonded NIC of known rate (--measured)");
}

void one_leg_full(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto index : used_bonds(machine)) {
    const auto& bond = machine.bonds[index];
    if (bond.mode.value_or("") == "active-backup") continue;
    any = true;
    const auto name = bond_name(machine, bond);
    double heavy = 0;
    double light = 1e300;
    std::string heaviest;
    bool known = true;
    for (const auto& leg : bond.legs) {
      const auto& interface = machine.interfaces[leg.interface.index].name;
      const auto key = fmt::format("net.{}.tx_bytes", interface);
      const auto now = input.facts.number(key);
      const auto then = input.before == nullptr ? std::nullopt : input.before->number(key);
      if (!now || !then || *now < *then) {
        known = false;
        break;
      }
      const double sent = *now - *then;
      if (sent > heavy) heaviest = interface;
      heavy = std::max(heavy, sent);
      light = std::min(light, sent);
    }
    if (!known) {
      result.lacks(name + ": how much each leg sent since a baseline (--baseline)");
      continue;
    }
    if (heavy < 1e9) result.lacks(name + ": next to nothing ran over it since the baseline");
    if (heavy < 1e9 || heavy <= 1.5 * light) continue;
    Finding finding;
    finding.title =
        fmt::format("{}: {} sent {:.1f} times as much as the other leg", name, heaviest, heavy / std::max(light, 1.0));
    finding.devices = {{NodeKind::bond, index}};
    finding.confidence = Confidence::measured;
    // The heaviest leg bounds the bond: of the rate of even legs, this share is lost.
    const double legs = static_cast<double>(bond.legs.size());
    const double share = std::max(0.0, 1 - (heavy + light * (legs - 1)) / (heavy * legs));
    cost_of_share(input, flows_through(machine, {NodeKind::bond, index}), share).write_to(finding);
    finding.evidence.push_back(
        {fmt::format("heaviest leg {:.1f} GB, lightest {:.1f} GB since the baseline", heavy / 1e9, light / 1e9),
         "tx_bytes of the legs"});
    for (const auto& nic : machine.nics) {
      if (!nic.bond || nic.bond.index != index || nic.functions.empty()) continue;
      const auto key = fmt::format("lag.{}.port_sel_mode", machine.pci[nic.functions.front().index].bus_id.to_string());
      if (input.facts.find(key) != nullptr)
        finding.evidence.push_back(
            evidence_of(input.facts, key, "queue pairs are spread over legs by " + input.facts.text(key)));
    }
    finding.fix = {"cat /sys/kernel/debug/mlx5/*/lag/port_sel_mode    # hash or queue_affinity",
                   "# in programs: lag_tx_port_affinity of queue pairs 1 and 2 in turn, or more queue pairs"};
    finding.cause = "bond balance " + name;
    result.add(std::move(finding));
  }
  if (!any) result.not_applicable();
}

void misread_rate(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  std::map<std::pair<double, double>, Finding> alike;  // by the rates of port and bond
  for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
    const auto bond = machine.nics[nic].bond;
    const auto* port = port_of(machine, nic);
    if (!bond || port == nullptr) continue;
    any = true;
    const auto& interface = machine.bonds[bond.index].interface;
    const auto speed = interface ? machine.interfaces[interface.index].speed_gbps : topology::Fact<double>{};
    const auto sum = speed ? speed : topology::bond_capacity_gbps(machine, machine.bonds[bond.index]);
    if (!port->rate_gbps || !sum) {
      result.lacks(machine.nics[nic].name + ": the rate of its port or of its bond is not recorded");
      continue;
    }
    if (*port->rate_gbps == *sum) continue;
    auto& finding = alike[{*port->rate_gbps, *sum}];
    finding.devices.push_back(nic_ref(nic));
    finding.evidence = {{fmt::format("{:g} Gb/s", *port->rate_gbps), source_of(port->rate_gbps.source, "RDMA port")},
                        {fmt::format("{:g} Gb/s", *sum), source_of(sum.source, "bond")}};
  }
  for (auto& [rates, finding] : alike) {
    finding.title = fmt::format("{}: the RDMA port reports {:g} Gb/s, the bond {:g}",
                                folded_names(machine, finding.devices), rates.first, rates.second);
    finding.level = Level::note;
    finding.advice = "Programs that go by the port's rate count one leg. Two or more queue pairs can use the sum.";
    result.add(std::move(finding));
  }
  if (!any) result.not_applicable();
}

constexpr Rule kRules[] = {
    {"bond-leg-down", Family::bond, "A leg of a bond is down, idle or slower", "Half the rate of a bond of two legs.",
     "MII status, speed and aggregator of each leg.", "Cable, transceiver, LACP on the switch port.", "est.", leg_down},
    {"bond-unwatched", Family::bond, "A bond does not look at its links",
     "A dead leg stays in use: half the packets, or all.",
     "MII and ARP polling interval 0, the kernel's default, except of 802.3ad; a note if no path uses the bond.",
     "miimon 100.", "the kernel's bonding documentation", unwatched},
    {"bond-one-queue-pair", Family::bond, "One queue pair over a bond", "195 of 400 Gb/s; NCCL 240 of 395.",
     "A measured row of one queue pair at most 0.6 of the bond's rate; a warning if more "
     "queue pairs were measured faster.",
     "Four queue pairs or more, spread over the legs.", "an 8x H20 server; nccl-tests#265", one_queue_pair},
    {"bond-one-leg-full", Family::bond, "One leg of a bond is full while another is idle",
     "One 200 Gb/s leg saturated.", "Bytes sent by the legs since the baseline differ by more than a factor of 1.5.",
     "Set lag_tx_port_affinity of queue pairs to 1 and 2 in turn.", "nccl#2315, nccl#2150", one_leg_full},
    {"bond-rate-misread", Family::bond, "The RDMA port and its bond report different rates",
     "Programs count one leg only.", "The port's rate against the bond interface's speed.",
     "Count the sum of the legs with two queue pairs or more.", "DeepEP, pull request 705", misread_rate},
};

}  // namespace

std::span<const Rule> bond_rules() {
  return kRules;
}

}  // namespace fairway::doctor
