#include "c/abi.h"

using namespace fairway;
using namespace fairway::c;

namespace {

// One allocation per answer: the struct that C sees, and behind it the C++ value that its pointers point into.
struct HeldExplanation : fairway_explanation {
  Explanation own;
  std::string own_text;
  std::vector<fairway_explained_link> own_links;
  std::vector<const char*> own_notes;
};

Status hand_over(Result<Explanation> from, fairway_explanation** out) {
  if (!from) return from.status();
  auto held = std::make_unique<HeldExplanation>();
  held->own_text = from->text();
  held->own = std::move(*from);
  const Explanation& own = held->own;
  for (const ExplainedLink& link : own.links)
    held->own_links.push_back({link.name.c_str(), link.reason.c_str(), link.bound.c_str(), link.share,
                               link.expected_low, link.expected_high, static_cast<uint8_t>(link.taken)});
  for (const std::string& note : own.notes) held->own_notes.push_back(note.c_str());
  static_cast<fairway_explanation&>(*held) = {sizeof(fairway_explanation),
                                              own.operation.c_str(),
                                              own.peer.c_str(),
                                              own.state.c_str(),
                                              held->own_text.c_str(),
                                              held->own_links.data(),
                                              held->own_notes.data(),
                                              held->own_links.size(),
                                              held->own_notes.size(),
                                              own.bytes_done,
                                              own.retried_slices,
                                              own.seconds,
                                              own.reached};
  *out = held.release();
  return {};
}

struct HeldMetrics : fairway_metrics {
  Metrics own;
  std::vector<PortCounter> counters;
  std::vector<fairway_peer_metrics> own_peers;
  std::vector<fairway_link_metrics> own_links;
  std::vector<fairway_transport_metrics> own_transports;
  std::vector<fairway_port_counter> own_ports;
};

fairway_latency latency_of(const Latency& in) {
  return {in.count, in.p50_ns, in.p90_ns, in.p99_ns, in.max_ns};
}

}  // namespace

extern "C" {

FAIRWAY_API fairway_code fairway_explain_request(fairway_engine* engine, const fairway_request* given,
                                                 fairway_explanation** out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        fairway_request in;
        fairway_request_init(&in);
        if (Status status = read_struct(given, in, kFirstRequest); !status) return status;
        Request request;
        if (Status status = read_request(in, request); !status) return status;
        request.options.deliver = Deliver::to_wait;  // a plan delivers nothing
        return hand_over(on.explain(request), out);
      },
      given, out);
}
FAIRWAY_API fairway_code fairway_explain_peer(fairway_engine* engine, fairway_peer peer, fairway_explanation** out,
                                              fairway_error** error) {
  return with(
      engine, error, [&](Engine& on) { return hand_over(on.explain(id<PeerId>(peer)), out); }, out);
}
FAIRWAY_API fairway_code fairway_explain_transfer(fairway_engine* engine, fairway_transfer transfer,
                                                  fairway_explanation** out, fairway_error** error) {
  return with(
      engine, error, [&](Engine& on) { return hand_over(on.explain(id<TransferId>(transfer)), out); }, out);
}
FAIRWAY_API void fairway_explanation_free(fairway_explanation* explanation) {
  delete static_cast<HeldExplanation*>(explanation);
}

FAIRWAY_API fairway_metrics* fairway_metrics_get(fairway_engine* engine, int32_t with_ports) {
  if (engine == nullptr) return nullptr;
  try {
    auto held = std::make_unique<HeldMetrics>();
    held->own = engine->engine.metrics();
    if (with_ports != 0) held->counters = engine->engine.port_counters();
    for (const PeerMetrics& peer : held->own.peers)
      held->own_peers.push_back({id<fairway_peer>(peer.peer), peer.name.c_str(), peer.transfers_ok,
                                 peer.transfers_failed, peer.bytes, peer.notifications, peer.in_flight,
                                 latency_of(peer.latency)});
    for (const LinkMetrics& link : held->own.links)
      held->own_links.push_back({link.name.c_str(), id<fairway_peer>(link.peer), link.bytes_out, link.slices,
                                 link.errors, link.retries, link.failures, link.in_flight,
                                 static_cast<uint8_t>(link.up)});
    for (const TransportMetrics& transport : held->own.transports)
      held->own_transports.push_back({transport.name.c_str(), transport.system_calls, transport.copied_bytes});
    for (const PortCounter& counter : held->counters)
      held->own_ports.push_back({counter.port.c_str(), counter.name.c_str(), counter.value});
    static_cast<fairway_metrics&>(*held) = {
        sizeof(fairway_metrics), held->own_peers.data(),     held->own_links.data(), held->own_transports.data(),
        held->own_ports.data(),  held->own_peers.size(),     held->own_links.size(), held->own_transports.size(),
        held->own_ports.size(),  held->own.transfers_in_use, held->own.regions,      held->own.back_pressure};
    return held.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
FAIRWAY_API void fairway_metrics_free(fairway_metrics* metrics) {
  delete static_cast<HeldMetrics*>(metrics);
}

}  // extern "C"
