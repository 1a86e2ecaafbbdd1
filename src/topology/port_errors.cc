#include "topology/port_errors.h"

#include <algorithm>
#include <array>

#include "topology/text.h"

namespace fairway::topology {
namespace {

struct Words {
  std::string_view name, meaning;
};
// Standard counters, then those of mlx5, soft-RoCE, EFA and bnxt_re, by the names of the kernel's drivers.
constexpr std::array kWords{
    Words{"symbol_error", "bits were wrong on the wire: look at cable and transceiver"},
    Words{"link_error_recovery", "the link had to train again"},
    Words{"link_downed", "the link went down"},
    Words{"local_link_integrity_errors", "the wire is worse than the port bears"},
    Words{"excessive_buffer_overrun_errors", "more came than the port had agreed to take"},
    Words{"port_rcv_errors", "packets with an error came in"},
    Words{"port_rcv_remote_physical_errors", "packets that were already marked as bad came in"},
    Words{"port_rcv_switch_relay_errors", "packets that could not be forwarded"},
    Words{"port_rcv_constraint_errors", "packets of a partition that the port is not in"},
    Words{"port_xmit_constraint_errors", "packets that the port may not send: partition, or their form"},
    Words{"port_xmit_discards", "packets thrown away as the link was down or full"},
    Words{"VL15_dropped", "management packets dropped: no buffer was free"},
    Words{"out_of_sequence", "packets came out of order: some were lost, or took several paths"},
    Words{"packet_seq_err", "the far side missed packets of this port, which sent them again"},
    Words{"implied_nak_seq_err", "an answer showed that an earlier one was lost"},
    Words{"local_ack_timeout_err", "no acknowledgement in time: packets were lost, or the peer is gone"},
    Words{"rnr_nak_retry_err", "the peer had no receive ready and was asked again"},
    Words{"out_of_buffer", "packets dropped here, as no receive was posted"},
    Words{"duplicate_request", "requests came again: their acknowledgement was lost or late"},
    Words{"np_cnp_sent", "congestion notifications that this port sent to senders"},
    Words{"np_ecn_marked_roce_packets", "packets came marked by a congested switch"},
    Words{"rp_cnp_handled", "congestion notifications after which this port slowed down"},
    Words{"rp_cnp_ignored", "congestion notifications that this port ignored"},
    Words{"rx_icrc_encapsulated", "RoCE packets with a wrong checksum"},
    Words{"roce_adp_retrans", "sent again, by adaptive retransmission"},
    Words{"roce_adp_retrans_to", "adaptive retransmission came to its timeout"},
    Words{"roce_slow_restart", "sending began again slowly after a loss"},
    Words{"req_cqe_error", "requests of this host ended with an error"},
    Words{"req_cqe_flush_error", "requests flushed as their queue pair ended; normal at its end"},
    Words{"resp_cqe_error", "receives of this host ended with an error"},
    Words{"resp_cqe_flush_error", "receives flushed as their queue pair ended; normal at its end"},
    Words{"req_remote_access_errors", "peers refused memory: a wrong key, bounds or permission"},
    Words{"resp_remote_access_errors", "this host refused memory to a peer: a wrong key, bounds or permission"},
    Words{"out_of_seq_request", "requests came out of order: some were lost, or took several paths"},
    Words{"rcvd_seq_err", "the far side missed packets of this port, which sent them again"},
    Words{"rcvd_rnr_err", "the peer had no receive ready and was asked again"},
    Words{"send_rnr_err", "no receive was posted here, and the peer was asked to retry"},
    Words{"completer_retry_err", "requests sent again: a packet or its acknowledgement was lost"},
    Words{"retry_exceeded_err", "given up: no acknowledgement after all repetitions"},
    Words{"retry_rnr_exceeded_err", "given up: the peer never had a receive ready"},
    Words{"send_err", "packets that the host's network stack did not take"},
    Words{"retrans_pkts", "packets sent again"},
    Words{"retrans_timeout_events", "no acknowledgement in time"},
    Words{"unresponsive_remote_events", "peers that stopped answering"},
    Words{"rx_drops", "packets dropped here"},
    Words{"to_retransmits", "sent again after a timeout"},
    Words{"seq_err_naks_rcvd", "the far side missed packets of this port, which sent them again"},
    Words{"max_retry_exceeded", "given up: no acknowledgement after all repetitions"},
    Words{"oos_drop_count", "packets dropped as they came out of order"},
};

}  // namespace

std::string_view meaning_of_counter(std::string_view counter) {
  const auto* const at = std::ranges::find(kWords, counter, &Words::name);
  return at != kWords.end() ? at->meaning : std::string_view();
}

bool tells_of_an_error(std::string_view counter) {
  if (!meaning_of_counter(counter).empty()) return true;
  const std::string name = text::lower(counter);
  constexpr std::string_view kParts[] = {"err", "retr", "drop", "discard", "timeout", "cnp", "out_of", "nak"};
  return std::ranges::any_of(kParts, [&](std::string_view part) { return name.find(part) != name.npos; });
}

std::vector<PortError> port_errors(const Machine& machine) {
  std::vector<PortError> out;
  for (std::size_t device = 0; device < machine.rdma.size(); ++device)
    for (const RdmaPort& port : machine.rdma[device].ports)
      for (const auto* counters : {&port.counters, &port.hw_counters})
        for (const Counter& counter : *counters)
          if (counter.value != 0 && tells_of_an_error(counter.name))
            out.push_back(
                {Ref<RdmaDevice>(device), port.number, counter.name, counter.value, meaning_of_counter(counter.name)});
  return out;
}

}  // namespace fairway::topology
