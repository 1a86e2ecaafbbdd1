#include <algorithm>
#include <map>
#include <set>

#include "doctor/cost.h"
#include "doctor/nccl_settings.h"
#include "doctor/rules/common.h"

// RDMA over Ethernet: MTU, addresses, lossless classes.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

constexpr std::uint32_t kFullMtu = 4096;

void small_mtu(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto ports = rail_ports(machine);
  if (ports.empty()) return result.not_applicable();
  for (const auto& [nic, port] : ports) {
    if (!port->active_mtu) {
      result.lacks(machine.nics[nic].name + ": its MTU is not recorded (ibv_devinfo -v prints it)");
      continue;
    }
    if (*port->active_mtu >= kFullMtu || port->max_mtu.value_or(kFullMtu) < kFullMtu) continue;
    const auto mtu = *port->active_mtu;
    auto finding =
        nic_finding(machine, nic, fmt::format("{}: MTU {}, {} is possible", machine.nics[nic].name, mtu, kFullMtu));
    cost_of(
        input, flows_through(machine, nic_ref(nic)), {}, [](predict::Conditions& how) { how.mtu = kFullMtu; },
        [mtu](predict::Conditions& how) { how.mtu = mtu; })
        .write_to(finding);
    // 2048 costs one percent. A software device on an interface of 1500 bytes always has 1024.
    const bool software = machine.rdma[machine.nics[nic].rdma.index].software.value_or(false);
    finding.level = mtu <= (software ? 512U : 1024U) ? Level::warning : Level::note;
    finding.cause = "mtu " + machine.nics[nic].name;
    finding.evidence.push_back({fmt::format("active_mtu {} of {}", mtu, port->max_mtu.value_or(kFullMtu)),
                                source_of(port->active_mtu.source, fmt::format("port {}", port->number))});
    const auto interface = port->interface.value_or("INTERFACE");
    if (is_ethernet(*port)) {
      finding.fix = {fmt::format("ip link set {} mtu 9000    # 4200 is enough; set the switch too", interface)};
    } else {
      finding.advice = "On InfiniBand raise the MTU of the partition, in the subnet manager.";
    }
    result.add(std::move(finding));
  }
}

void mtu_differs(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  std::map<std::uint32_t, std::vector<NodeRef>> by_mtu;
  std::string unknown;
  for (const auto nic : rails(machine)) {
    const auto* port = port_of(machine, nic);
    if (port != nullptr && port->active_mtu) {
      by_mtu[*port->active_mtu].push_back(nic_ref(nic));
    } else {
      unknown = machine.nics[nic].name + ": its MTU is not recorded";
    }
  }
  for (const auto& entry : input.facts.below("peer.mtu")) {
    const auto& name = entry.first;  // no structured binding: clang 14 cannot capture one
    const auto& seen = entry.second;
    const auto nic = std::ranges::find_if(machine.nics, [&](const auto& one) { return one.name == name; });
    const auto theirs = text::to_u32(seen->value);
    if (nic == machine.nics.end() || !theirs) continue;
    const auto index = static_cast<std::uint32_t>(nic - machine.nics.begin());
    const auto* port = port_of(machine, index);
    if (port == nullptr || !port->active_mtu || *port->active_mtu == *theirs) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: MTU {} here, {} at the peer", name, *port->active_mtu, *theirs);
    finding.level = Level::broken;
    finding.devices = {nic_ref(index)};
    finding.cause = "mtu " + name;
    finding.evidence = {{fmt::format("MTU {} here", *port->active_mtu),
                         source_of(port->active_mtu.source, fmt::format("port {}", port->number))},
                        {fmt::format("MTU {} there", *theirs), seen->where}};
    finding.fix = {fmt::format("ip link set {} mtu 9000    # the same on both ends and on the switch",
                               port->interface.value_or("INTERFACE"))};
  }
  if (by_mtu.empty()) return result.lacks("the MTU of the rails is not recorded");
  if (!unknown.empty()) result.lacks(unknown);
  if (by_mtu.size() < 2) return;
  // The most common MTU is right; of two as common the larger.
  const auto most =
      std::ranges::max_element(by_mtu, [](const auto& a, const auto& b) { return a.second.size() <= b.second.size(); });
  for (const auto& [mtu, nics] : by_mtu) {
    if (mtu == most->first) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: MTU {}; the other rails have {}", folded_names(machine, nics), mtu, most->first);
    finding.devices = nics;
    finding.cause = "mtu " + machine.nics[nics.front().index].name;
    finding.evidence.push_back({fmt::format("active_mtu {} and {}", mtu, most->first), "ports of the rails"});
    finding.path = paths_text(machine, flows_through(machine, nics.front()));
    for (const auto& nic : nics) {
      const auto& interface = port_of(machine, nic.index)->interface;
      if (interface && finding.fix.size() < 8)
        finding.fix.push_back(fmt::format("ip link set {} mtu 9000", *interface));
    }
    finding.advice =
        "Connections between ports of different MTU time out unless both agree on the smaller. Set the same MTU "
        "everywhere, on switches too; on InfiniBand in the subnet manager.";
  }
}

void gid(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto* set = input.facts.find("env.NCCL_IB_GID_INDEX");
  const auto index = set == nullptr ? std::nullopt : nccl_gid_index(set->value);
  const auto ports = roce_ports(machine);
  if (ports.empty()) return result.not_applicable();
  for (const auto& [nic, port] : ports) {
    if (port->gids.empty()) {
      result.lacks(machine.nics[nic].name + ": its GID table is not recorded");
      continue;
    }
    const auto good = std::ranges::find_if(port->gids, is_routable);
    const auto typed =
        std::ranges::any_of(port->gids, [](const auto& one) { return one.type.known() && one.scope.known(); });
    if (!typed) {
      result.lacks(machine.nics[nic].name + ": the types and scopes of its GIDs are not recorded");
      continue;
    }
    auto finding = nic_finding(machine, nic, "");
    finding.cause = "gid " + machine.nics[nic].name;
    if (index) {
      const auto at = std::ranges::find_if(port->gids, [&](const auto& one) { return one.index == *index; });
      if (at == port->gids.end()) {
        finding.level = Level::broken;
        finding.title = fmt::format("{}: NCCL_IB_GID_INDEX={} names no GID", machine.nics[nic].name, set->value);
      } else if (!is_routable(*at) && good != port->gids.end()) {
        finding.title =
            fmt::format("{}: GID {} is {} {}; GID {} is RoCE v2 and routable", machine.nics[nic].name, at->index,
                        at->scope.value_or("of unknown scope,"), at->type.value_or(""), good->index);
      } else {
        continue;
      }
      finding.evidence.push_back({fmt::format("NCCL_IB_GID_INDEX={}", set->value), set->where});
      if (good != port->gids.end()) {
        finding.fix = {
            fmt::format("export NCCL_IB_GID_INDEX={}    # or leave it unset: recent NCCL chooses", good->index)};
      }
    } else if (good != port->gids.end()) {
      continue;
    } else {
      finding.title = fmt::format("{}: no routable RoCE v2 address, only {}", machine.nics[nic].name,
                                  port->gids.front().scope.value_or("unknown ones"));
      finding.fix = {fmt::format("ip addr add ADDRESS/PREFIX dev {}", port->interface.value_or("INTERFACE"))};
      finding.advice =
          "Routers do not forward link-local and RoCE v1 addresses: connections to other subnets time out.";
    }
    for (const auto& one : port->gids) {
      if (finding.evidence.size() > 4) break;
      finding.evidence.push_back({fmt::format("GID {}: {}, {}", one.index, one.type.value_or("type unknown"),
                                              one.scope.value_or("scope unknown")),
                                  source_of(one.type.source, "GID table")});
    }
    result.add(std::move(finding));
  }
}

void gid_moved(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto ports = roce_ports(machine);
  if (ports.empty()) return result.not_applicable();
  for (const auto& [nic, port] : ports) {
    const auto* before = port_before(input, machine.nics[nic].name, port->number);
    if (before == nullptr || before->gids.empty()) {
      result.lacks("no earlier GID table (--baseline)");
      continue;
    }
    const auto good = [](const topology::RdmaPort& one) { return std::ranges::find_if(one.gids, is_routable); };
    const auto then = good(*before);
    const auto now = good(*port);
    if (then == before->gids.end() || now == port->gids.end() || then->index == now->index) continue;
    auto finding = nic_finding(machine, nic,
                               fmt::format("{}: the index of the routable GID changed from {} to {}",
                                           machine.nics[nic].name, then->index, now->index));
    finding.evidence = {{fmt::format("GID {} then", then->index), "the baseline"},
                        {fmt::format("GID {} now", now->index), source_of(now->type.source, "GID table")}};
    finding.fix = {fmt::format("export NCCL_IB_GID_INDEX={}    # or unset it", now->index)};
    finding.advice = "The index changes when the interface goes down and up: choose the GID by its address.";
    result.add(std::move(finding));
  }
}

void congestion(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto ports = roce_ports(machine);
  if (ports.empty()) return result.not_applicable();
  for (const auto& rail : ports) {  // no structured binding: clang 14 cannot capture one
    const auto nic = rail.nic;
    const auto* port = rail.port;
    if (port->hw_counters.empty()) {
      result.lacks(machine.nics[nic].name + ": its hw_counters are not recorded");
      continue;
    }
    const auto* before = port_before(input, machine.nics[nic].name, port->number);
    const auto get = [&](const char* name) {
      return before != nullptr ? growth(before, *port, name) : counter_of(*port, name);
    };
    const auto timeouts = get("local_ack_timeout_err");
    const auto disorder = std::max(get("out_of_sequence").value_or(0), get("packet_seq_err").value_or(0));
    const auto packets = get("port_rcv_packets");
    if (!timeouts && !packets) {
      result.lacks(machine.nics[nic].name + ": its counters of lost packets are not recorded");
      continue;
    }
    const double share = packets && *packets > 0 ? static_cast<double>(disorder) / static_cast<double>(*packets) : 0;
    const bool lossy = share > 1e-6;
    const bool timed_out = timeouts.value_or(0) > 0;
    if (!lossy && !timed_out) continue;
    auto finding = nic_finding(
        machine, nic,
        fmt::format("{}: the network drops packets ({} of {} out of sequence, {} acknowledgements timed out)",
                    machine.nics[nic].name, disorder, packets.value_or(0), timeouts.value_or(0)));
    // Without a baseline the timeouts may be old, or those of a peer that died.
    finding.level = before != nullptr || lossy ? Level::warning : Level::note;
    finding.evidence.push_back(
        {fmt::format("local_ack_timeout_err {}, out_of_sequence {}, packet_seq_err {}", timeouts.value_or(0),
                     get("out_of_sequence").value_or(0), get("packet_seq_err").value_or(0)),
         before != nullptr ? "hw_counters, since the baseline" : "hw_counters, since they were reset"});
    for (const auto& interface : wires_of(machine, nic)) {
      if (is_mellanox(machine, nic)) {
        finding.fix.push_back(fmt::format(
            "mlnx_qos -i {} --pfc 0,0,0,1,0,0,0,0 --trust dscp    # and the same class on the switch", interface));
        finding.fix.push_back(fmt::format(
            "echo 1 > /sys/class/net/{0}/ecn/roce_np/enable/3; echo 1 > /sys/class/net/{0}/ecn/roce_rp/enable/3",
            interface));
      } else {
        finding.fix.push_back(
            fmt::format("dcb pfc set dev {} prio-pfc all:off 3:on    # and the same class on the switch", interface));
      }
    }
    finding.advice =
        "Use a lossless class with PFC, or ECN, end to end; else the vendor's settings for lossy networks.";
    result.add(std::move(finding));
  }
}

void traffic_class(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto ports = roce_ports(machine);
  if (ports.empty()) return result.not_applicable();
  for (const auto& [nic, port] : ports) {
    const auto name = machine.nics[nic].name;
    const auto interface = wires_of(machine, nic).front();  // PFC is a leg's, not its bond's
    const auto key = fmt::format("net.{}.pfc", interface);
    const auto* pfc = input.facts.find(key);
    if (pfc == nullptr) {
      result.lacks(fmt::format("{}: lossless priorities: {} ({} prints them)", name, input.facts.why_not(key),
                               show_pfc(machine, nic, interface)));
      continue;
    }
    const auto* set = input.facts.find("env.NCCL_IB_TC");
    if (set != nullptr && nccl_number(set->value) < 0) set = nullptr;  // as unset
    if (set == nullptr) set = input.facts.find(fmt::format("rdma.{}.traffic_class", name));
    if (set == nullptr) {
      result.lacks(name + ": its traffic class is not recorded");
      continue;
    }
    const auto number = nccl_number(set->value);
    if (pfc->value.find('1') == std::string::npos || number > 255) continue;
    const auto priority =
        static_cast<std::size_t>(number) >> 5U;  // the usual map of DSCP (the upper six bits) to priorities: dscp / 8
    if (priority < pfc->value.size() && pfc->value[priority] == '1') continue;
    auto finding = nic_finding(
        machine, nic,
        fmt::format("{}: traffic class {} maps to priority {}, which is not lossless", name, number, priority));
    finding.evidence = {{fmt::format("traffic class {}", number), set->where},
                        {fmt::format("PFC of priorities 0-7: {}", pfc->value), pfc->where}};
    const auto lossless = pfc->value.find('1');
    finding.fix = {fmt::format("export NCCL_IB_TC={}", (lossless * 8) << 2U),
                   fmt::format("echo {} > /sys/class/infiniband/{}/tc/1/traffic_class", (lossless * 8) << 2U, name)};
    finding.advice = "Set it for all queue pairs, those that GPUs drive too.";
    result.add(std::move(finding));
  }
}

void networks(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (rail_ports(machine).size() < 2) return result.not_applicable();
  const auto groups = rail_networks(machine);
  if (groups.empty()) return result.lacks("the addresses of the rails are not recorded (snapshots leave them out)");
  // One network for each rail is the usual design, and one for all too.
  const bool mixed = std::ranges::any_of(groups, [](const auto& one) { return one.second.size() > 1; });
  if (groups.size() < 2 || !mixed) return;
  auto& finding = result.add();
  finding.title = fmt::format("The rails are in {} networks", groups.size());
  finding.level = Level::note;
  for (const auto& [network, nics] : groups) {
    finding.evidence.push_back({fmt::format("{}: {}", network, folded_names(machine, nics)), "GIDs of the rails"});
    finding.devices.insert(finding.devices.end(), nics.begin(), nics.end());
  }
  finding.cause = "rail networks";
  finding.advice =
      "If no router joins them, only rails of one network reach each other: pair NICs of equal networks on all hosts.";
  finding.fix = {"show_gids    # the addresses of each NIC"};
}

// A setting of ARP as it acts on an interface: the larger of its own and all's. None if it may be less than enough.
std::optional<double> arp_setting(const Facts& facts, const std::string& interface, std::string_view name,
                                  double enough) {
  const auto all = facts.number(fmt::format("sysctl.net.ipv4.conf.all.{}", name));
  const auto own = facts.number(fmt::format("sysctl.net.ipv4.conf.{}.{}", interface, name));
  const double known = std::max(all.value_or(0), own.value_or(0));
  return (all && own) || known >= enough ? std::optional(known) : std::nullopt;
}

void arp(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (roce_ports(machine).size() < 2) return result.not_applicable();
  const auto groups = rail_networks(machine);
  if (groups.empty()) return result.lacks("the addresses of the rails are not recorded (snapshots leave them out)");
  for (const auto& [network, nics] : groups) {
    if (nics.size() < 2 || network.find(':') != network.npos) continue;  // IPv6 asks by other rules
    Finding finding;
    for (const auto& node : nics) {
      const auto& name = machine.nics[node.index].name;
      const auto interface = interface_of(machine, node.index);
      const auto filter = arp_setting(input.facts, interface, "arp_filter", 1);
      const auto ignore = arp_setting(input.facts, interface, "arp_ignore", 1);
      const auto announce = arp_setting(input.facts, interface, "arp_announce", 2);
      if (filter.value_or(0) >= 1 || (ignore.value_or(0) >= 1 && announce.value_or(0) >= 2)) continue;
      if (!ignore || !announce || !filter) {
        const auto why = input.facts.why_not(fmt::format("sysctl.net.ipv4.conf.{}.arp_ignore", interface));
        result.lacks(fmt::format("{}: how {} answers ARP: {}", name, interface, why));
        continue;
      }
      finding.devices.push_back(node);
      const auto values = fmt::format("arp_ignore {}, arp_announce {}, arp_filter 0", *ignore, *announce);
      finding.evidence.push_back({fmt::format("{} ({}): {}", name, interface, values),
                                  fmt::format("/proc/sys/net/ipv4/conf/{{all,{}}}", interface)});
    }
    if (finding.devices.empty()) continue;
    finding.title = fmt::format("{} rails are in {}, and {} answer or ask by ARP for an address of another",
                                nics.size(), network, folded_names(machine, finding.devices));
    finding.level = Level::note;
    finding.cause = "ARP of " + network;
    finding.fix = {"sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"};
    finding.advice =
        "By Linux's default any interface answers for every address of the host. Peers then send one NIC's packets to "
        "another: TCP goes through the wrong rail, and RoCE's meet no queue pair there and are dropped.";
    result.add(std::move(finding));
  }
}

constexpr Rule kRules[] = {
    {"mtu-differs", Family::roce, "Ports that talk to each other have different MTUs",
     "Jobs fail with timeouts (error 12).", "The active MTU of the rails of one host, and of the peer with --with.",
     "Set one MTU on hosts and switches.", "nccl#709", mtu_differs},
    {"mtu-small", Family::roce, "The MTU is smaller than it could be",
     "92.6 % of the line rate is payload at 1024 bytes, 98.0 % at 4096.",
     "The active MTU of a rail is below 4096 though the device supports 4096; a warning at 1024 and below.",
     "Set the MTU of interface and switch to 4200 or 9000.", "est.", small_mtu},
    {"gid-unroutable", Family::roce, "The RoCE address in use is not routable",
     "Connections to other subnets time out.",
     "The GID that the job names, or every GID of a rail, is link-local or RoCE v1.",
     "Use the RoCE v2 GID with the interface's address.", "nccl#769, nccl#426; uccl, pull request 803", gid},
    {"gid-moved", Family::roce, "The index of the routable GID changed",
     "A running job dies, and a restart needs the new index (3 became 4).",
     "The index of the routable RoCE v2 GID against the baseline's.", "Choose by address, not by index.",
     "nccl#1333, nccl#2157", gid_moved},
    {"congestion", Family::roce, "The network drops RDMA packets",
     "RoCE down to 0.x GB/s; 91,316 timeouts in a job that hung.",
     "local_ack_timeout_err above 0, or more than one packet in a million out of sequence; since the baseline if there "
     "is one.",
     "Use a lossless class with PFC and ECN, or the settings for lossy networks.", "nccl#378, nccl#394", congestion},
    {"traffic-class", Family::roce, "Traffic is in a priority that is not lossless",
     "Packet loss; in one case only for the queue pairs that GPUs drive.",
     "PFC is off for the priority of the traffic class.", "Use one class for all queue pairs.", "nccl#2383",
     traffic_class},
    {"rail-networks", Family::roce, "The rails of one host are in several networks",
     "Transfers succeed for some pairs of NICs and fail for others, where no router joins the networks.",
     "The networks of the rails' routable addresses (IPv4 by the interface's prefix, else the first 16 bits; IPv6 the "
     "first 48; InfiniBand by subnet prefix), where several rails share one of several.",
     "Pair NICs of equal networks on all hosts.", "vllm#44919", networks},
    {"arp-answers", Family::roce, "Rails of one network answer ARP for each other's addresses",
     "TCP takes the wrong rail; RoCE packets reach a NIC that does not have their queue pair, and are dropped.",
     "Two rails or more in one IPv4 network; arp_ignore below 1 or arp_announce below 2 on one of them (the larger of "
     "the interface's and all's counts), and arp_filter 0.",
     "net.ipv4.conf.all.arp_ignore=1 and arp_announce=2, or a network for each rail.",
     "Linux's documentation of arp_ignore, arp_announce and arp_filter", arp},
};

}  // namespace

std::span<const Rule> roce_rules() {
  return kRules;
}

}  // namespace fairway::doctor
