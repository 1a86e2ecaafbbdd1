#include <algorithm>
#include <map>
#include <set>

#include "doctor/rules/common.h"

// RDMA over Ethernet: MTU, addresses, lossless classes.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

constexpr std::uint32_t kFullMtu = 4096;

void small_mtu(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  const auto ports = rail_ports(machine);
  if (ports.empty()) return say.absent();
  for (const auto& [nic, port] : ports) {
    if (!port->active_mtu) {
      say.lacks(machine.nics[nic].name + ": its MTU is not recorded (ibv_devinfo -v says it)");
      continue;
    }
    if (*port->active_mtu >= kFullMtu || port->max_mtu.value_or(kFullMtu) < kFullMtu) continue;
    // Half of a full packet costs a percent, and many switches are left at it.
    const auto mtu = *port->active_mtu;
    Finding finding;
    finding.title = fmt::format("{}: MTU is {}, {} is possible", machine.nics[nic].name, mtu, kFullMtu);
    finding.devices = {nic_ref(nic)};
    put(finding,
        cost_of(
            look, flows_through(machine, nic_ref(nic)), {}, [](predict::Conditions& how) { how.mtu = kFullMtu; },
            [mtu](predict::Conditions& how) { how.mtu = mtu; }));
    // A software device on an interface of 1500 bytes has 1024, as everybody's.
    const bool software = machine.rdma[machine.nics[nic].rdma.index].software.value_or(false);
    finding.level = mtu <= (software ? 512U : 1024U) ? Level::warning : Level::note;
    finding.cause = "mtu " + machine.nics[nic].name;
    finding.evidence.push_back({fmt::format("active_mtu {} of {}", mtu, port->max_mtu.value_or(kFullMtu)),
                                source_of(port->active_mtu.source, "port 1")});
    const auto interface = port->interface.value_or("INTERFACE");
    if (is_ethernet(*port)) {
      finding.fix = {
          fmt::format("ip link set {} mtu 9000    # 4200 is enough; the switch must take it too", interface)};
    } else {
      finding.advice = "On InfiniBand the subnet manager sets it: raise the partition's MTU.";
    }
    say.add(std::move(finding));
  }
}

void mtu_differs(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  std::map<std::uint32_t, std::vector<NodeRef>> by_mtu;
  for (const auto nic : rails(machine)) {
    const auto* port = port_of(machine, nic);
    if (port != nullptr && port->active_mtu) by_mtu[*port->active_mtu].push_back(nic_ref(nic));
  }
  for (const auto& entry : look.facts.below("peer.mtu")) {
    const auto& name = entry.first;  // no binding: clang 14 captures none
    const auto& seen = entry.second;
    const auto nic =
        std::find_if(machine.nics.begin(), machine.nics.end(), [&](const auto& one) { return one.name == name; });
    const auto theirs = text::to_u32(seen->value);
    if (nic == machine.nics.end() || !theirs) continue;
    const auto index = static_cast<std::uint32_t>(nic - machine.nics.begin());
    const auto* port = port_of(machine, index);
    if (port == nullptr || !port->active_mtu || *port->active_mtu == *theirs) continue;
    Finding finding;
    finding.title = fmt::format("{}: MTU {} here, {} at the peer", name, *port->active_mtu, *theirs);
    finding.level = Level::broken;
    finding.devices = {nic_ref(index)};
    finding.cause = "mtu " + name;
    finding.evidence = {{fmt::format("MTU {} here", *port->active_mtu), source_of(port->active_mtu.source, "port 1")},
                        {fmt::format("MTU {} there", *theirs), seen->where}};
    finding.fix = {fmt::format("ip link set {} mtu 9000    # the same on both ends and on the switch",
                               port->interface.value_or("INTERFACE"))};
    say.add(std::move(finding));
  }
  if (by_mtu.empty()) return say.lacks("no MTU of a rail is recorded");
  if (by_mtu.size() < 2) return;
  // The fewest differ from the most; of as many the smaller.
  const auto most = std::max_element(by_mtu.begin(), by_mtu.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() <= b.second.size(); });
  for (const auto& [mtu, nics] : by_mtu) {
    if (mtu == most->first) continue;
    Finding finding;
    finding.title = fmt::format("{}: MTU {}, the other rails have {}", folded_names(machine, nics), mtu, most->first);
    finding.devices = nics;
    finding.cause = "mtu " + machine.nics[nics.front().index].name;
    finding.evidence.push_back({fmt::format("active_mtu {} and {}", mtu, most->first), "ports of the rails"});
    finding.path = paths_text(machine, flows_through(machine, nics.front()));
    finding.fix = {"ip link set INTERFACE mtu 9000    # the same everywhere, switches too"};
    finding.advice =
        "Connections between ports of different MTU end in timeouts where the two do not agree on the smaller.";
    say.add(std::move(finding));
  }
}

bool is_routable(const topology::Gid& gid) {
  return gid.type.value_or("") == "RoCE v2" && (gid.scope.value_or("") == "IPv4" || gid.scope.value_or("") == "IPv6");
}

void gid(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  const auto* chosen = look.facts.find("env.NCCL_IB_GID_INDEX");
  const auto ports = roce_ports(machine);
  if (ports.empty()) return say.absent();
  for (const auto& [nic, port] : ports) {
    if (port->gids.empty()) {
      say.lacks(machine.nics[nic].name + ": its GID table is not recorded");
      continue;
    }
    const auto good = std::find_if(port->gids.begin(), port->gids.end(), is_routable);
    const auto typed = std::any_of(port->gids.begin(), port->gids.end(),
                                   [](const auto& one) { return one.type.known() && one.scope.known(); });
    if (!typed) {
      say.lacks(machine.nics[nic].name + ": types and scopes of its GIDs are not recorded");
      continue;
    }
    Finding finding;
    finding.devices = {nic_ref(nic)};
    finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
    finding.cause = "gid " + machine.nics[nic].name;
    if (chosen != nullptr) {
      const auto index = text::to_u32(chosen->value);
      const auto at = std::find_if(port->gids.begin(), port->gids.end(),
                                   [&](const auto& one) { return index && one.index == *index; });
      if (at == port->gids.end()) {
        finding.level = Level::broken;
        finding.title = fmt::format("{}: NCCL_IB_GID_INDEX={} names no GID", machine.nics[nic].name, chosen->value);
      } else if (!is_routable(*at) && good != port->gids.end()) {
        finding.title =
            fmt::format("{}: GID {} is {} {}, and GID {} is RoCE v2 and routable", machine.nics[nic].name, at->index,
                        at->scope.value_or("of unknown scope,"), at->type.value_or(""), good->index);
      } else {
        continue;
      }
      finding.evidence.push_back({fmt::format("NCCL_IB_GID_INDEX={}", chosen->value), chosen->where});
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
          "Link-local and RoCE v1 addresses end at the first router: connections to other subnets time out.";
    }
    for (const auto& one : port->gids) {
      if (finding.evidence.size() > 4) break;
      finding.evidence.push_back({fmt::format("GID {}: {}, {}", one.index, one.type.value_or("type unknown"),
                                              one.scope.value_or("scope unknown")),
                                  source_of(one.type.source, "GID table")});
    }
    say.add(std::move(finding));
  }
}

void gid_moved(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  const auto ports = roce_ports(machine);
  if (ports.empty()) return say.absent();
  for (const auto& [nic, port] : ports) {
    const auto* before = port_before(look, machine.nics[nic].name, port->number);
    if (before == nullptr || before->gids.empty()) {
      say.lacks("no earlier GID table: --baseline gives one");
      continue;
    }
    const auto good = [](const topology::RdmaPort& one) {
      return std::find_if(one.gids.begin(), one.gids.end(), is_routable);
    };
    const auto then = good(*before);
    const auto now = good(*port);
    if (then == before->gids.end() || now == port->gids.end() || then->index == now->index) continue;
    Finding finding;
    finding.title =
        fmt::format("{}: the routable GID moved from {} to {}", machine.nics[nic].name, then->index, now->index);
    finding.devices = {nic_ref(nic)};
    finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
    finding.evidence = {{fmt::format("GID {} then", then->index), "the baseline"},
                        {fmt::format("GID {} now", now->index), source_of(now->type.source, "GID table")}};
    finding.fix = {fmt::format("export NCCL_IB_GID_INDEX={}    # or unset it", now->index)};
    finding.advice = "Programs with a fixed index fail after the interface went down and up: choose by address.";
    say.add(std::move(finding));
  }
}

void congestion(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  const auto ports = roce_ports(machine);
  if (ports.empty()) return say.absent();
  for (const auto& rail : ports) {  // no bindings: clang 14 captures none
    const auto nic = rail.nic;
    const auto* port = rail.port;
    if (port->hw_counters.empty()) {
      say.lacks(machine.nics[nic].name + ": it has no hw_counters here");
      continue;
    }
    const auto* before = port_before(look, machine.nics[nic].name, port->number);
    const auto get = [&](const char* name) {
      return before != nullptr ? growth(before, *port, name) : counter_of(*port, name);
    };
    const auto timeouts = get("local_ack_timeout_err");
    const auto disorder = std::max(get("out_of_sequence").value_or(0), get("packet_seq_err").value_or(0));
    const auto packets = get("port_rcv_packets");
    const double share = packets && *packets > 0 ? static_cast<double>(disorder) / static_cast<double>(*packets) : 0;
    const bool lossy = share > 1e-6;
    const bool timed_out = timeouts.value_or(0) > 0;
    if (!lossy && !timed_out) continue;
    Finding finding;
    finding.title =
        fmt::format("{}: the network drops packets ({} of {} out of sequence, {} acknowledgements timed out)",
                    machine.nics[nic].name, disorder, packets.value_or(0), timeouts.value_or(0));
    finding.devices = {nic_ref(nic)};
    // Counts since the driver was loaded may be of a day long gone, and a timeout also tells of a peer that died.
    finding.level = before != nullptr || lossy ? Level::warning : Level::note;
    finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
    finding.evidence.push_back(
        {fmt::format("local_ack_timeout_err {}, out_of_sequence {}, packet_seq_err {}", timeouts.value_or(0),
                     get("out_of_sequence").value_or(0), get("packet_seq_err").value_or(0)),
         before != nullptr ? "hw_counters, since the baseline" : "hw_counters, since they were reset"});
    const auto interface = port->interface.value_or("INTERFACE");
    finding.fix = {
        fmt::format("mlnx_qos -i {} --pfc 0,0,0,1,0,0,0,0 --trust dscp    # and the same class on the switch",
                    interface),
        fmt::format("echo 1 > /sys/class/net/{}/ecn/roce_np/enable/3; echo 1 > /sys/class/net/{}/ecn/roce_rp/enable/3",
                    interface, interface)};
    finding.advice = "A lossless class with PFC, or ECN, end to end; else the vendor's settings for lossy networks.";
    say.add(std::move(finding));
  }
}

void traffic_class(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  const auto ports = roce_ports(machine);
  if (ports.empty()) return say.absent();
  for (const auto& [nic, port] : ports) {
    const auto name = machine.nics[nic].name;
    const auto interface = port->interface.value_or("");
    const auto key = fmt::format("net.{}.pfc", interface);
    const auto* pfc = look.facts.find(key);
    if (pfc == nullptr) {
      say.lacks(fmt::format("{}: lossless priorities: {} (mlnx_qos -i {} prints them)", name, look.facts.why_not(key),
                            interface));
      continue;
    }
    const auto* set = look.facts.find("env.NCCL_IB_TC");
    if (set == nullptr) set = look.facts.find(fmt::format("rdma.{}.traffic_class", name));
    if (set == nullptr) {
      say.lacks(name + ": its traffic class is not known");
      continue;
    }
    const auto number = text::to_u32(set->value);
    if (pfc->value.find('1') == std::string::npos || !number || *number > 255) continue;
    const auto priority = *number >> 5U;  // the usual map of DSCP (the upper six bits) to priorities: dscp / 8
    if (priority < pfc->value.size() && pfc->value[priority] == '1') continue;
    Finding finding;
    finding.title =
        fmt::format("{}: traffic class {} maps to priority {}, which is not lossless", name, *number, priority);
    finding.devices = {nic_ref(nic)};
    finding.path = paths_text(machine, flows_through(machine, nic_ref(nic)));
    finding.evidence = {{fmt::format("traffic class {}", *number), set->where},
                        {fmt::format("PFC of priorities 0-7: {}", pfc->value), pfc->where}};
    const auto lossless = pfc->value.find('1');
    finding.fix = {fmt::format("export NCCL_IB_TC={}", (lossless * 8) << 2U),
                   fmt::format("echo {} > /sys/class/infiniband/{}/tc/1/traffic_class", (lossless * 8) << 2U, name)};
    finding.advice = "Of all queue pairs, also those that GPUs drive by themselves.";
    say.add(std::move(finding));
  }
}

void wrong_device(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (machine.rdma.empty()) return say.absent();
  const auto* list = look.facts.find("env.NCCL_IB_HCA");
  if (list == nullptr) return say.lacks("NCCL_IB_HCA of the job is not set here, or its environment is not known");
  const bool excludes = list->value.starts_with("^");
  const bool exact = list->value.starts_with("=") || list->value.starts_with("^=");
  if (excludes) return;
  std::string_view rest = list->value;
  if (exact) rest.remove_prefix(1);
  std::vector<NodeRef> wrong;
  std::string reason;
  const auto good = rails(machine);
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto& nic = machine.nics[i];
    if (!nic.rdma || std::find(good.begin(), good.end(), i) != good.end()) continue;
    for (const auto word : text::split(rest, ',')) {
      const auto name = word.substr(0, word.find(':'));
      if (name.empty() || (exact ? nic.name != name : !nic.name.starts_with(name))) continue;
      wrong.push_back(nic_ref(i));
      reason = topology::rail_verdict(machine, {NodeKind::rdma, nic.rdma.index}).reason;
      break;
    }
  }
  if (wrong.empty()) return;
  Finding finding;
  finding.title = fmt::format("NCCL_IB_HCA includes {}, which {} no rail", some_names(machine, wrong),
                              wrong.size() == 1 ? "is" : "are");
  finding.devices = wrong;
  finding.path = "every job with this setting";
  finding.evidence = {{fmt::format("NCCL_IB_HCA={}", list->value), list->where}, {reason, "fairway topo hca"}};
  std::string names;
  for (const auto nic : good) names += (names.empty() ? "" : ",") + machine.nics[nic].name;
  finding.fix = {fmt::format("export NCCL_IB_HCA=={}", names)};
  say.add(std::move(finding));
}

constexpr Rule kRules[] = {
    {"mtu-differs", Family::roce, "Ports that talk to each other have different MTUs",
     "Jobs fail with timeouts (error 12).", "The active MTU of the rails of one host, and of the peer with --with.",
     "One MTU on hosts and switches.", "nccl#709", mtu_differs},
    {"mtu-small", Family::roce, "The MTU is smaller than it could be",
     "92.6 % of the line is payload at 1024 bytes, 98.0 % at 4096.",
     "The active MTU of a rail below 4096 where its device takes 4096; a warning from 1024 down.",
     "The interface's MTU 4200 or 9000, and the switch's.", "est.", small_mtu},
    {"gid-unroutable", Family::roce, "The RoCE address in use is not routable",
     "Connections to other subnets time out.",
     "The GID that the job names, or all GIDs of a rail, are link-local or RoCE v1.",
     "The RoCE v2 GID with the interface's address.", "nccl#769, nccl#426; uccl, pull request 803", gid},
    {"gid-moved", Family::roce, "The index of the routable GID changed",
     "3 became 4: a running job dies, a restart needs the new index.",
     "The index of the routable RoCE v2 GID against the baseline's.", "Choose by address, not by index.",
     "nccl#1333, nccl#2157", gid_moved},
    {"congestion", Family::roce, "The network drops RDMA packets",
     "RoCE down to 0.x GB/s; 91,316 timeouts in a job that hung.",
     "local_ack_timeout_err above 0, or out of sequence above one in a million packets; since the baseline where there "
     "is "
     "one.",
     "A lossless class with PFC and ECN, or the settings for lossy networks.", "nccl#378, nccl#394", congestion},
    {"traffic-class", Family::roce, "Traffic is in a priority that is not lossless",
     "GPU-driven queue pairs alone were lossy.", "The priority of the traffic class against the PFC map.",
     "One class for every queue pair.", "nccl#2383", traffic_class},
    {"wrong-device", Family::roce, "A job's list of devices includes one that is no rail",
     "A slow rail, or a failure: nvidia-smi topo ended with status 255.",
     "NCCL_IB_HCA names or begins the name of a software, slow or management device.", "List the rails exactly (==).",
     "NVSentinel#1485", wrong_device},
};

}  // namespace

std::span<const Rule> roce_rules() {
  return kRules;
}

}  // namespace fairway::doctor
