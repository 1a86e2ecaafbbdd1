#include "c/abi.h"

namespace fairway::c {

fairway_error* make_error(const Status& status) {
  if (status) return nullptr;
  try {
    return new fairway_error{status, status.to_string()};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

fairway_code answer(const Status& status, fairway_error** error) {
  if (error != nullptr) *error = make_error(status);
  return static_cast<fairway_code>(status.code());
}

char* copy_text(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

Timeout timeout_of(std::int64_t timeout_us) {
  return timeout_us < 0 ? kForever : Timeout(timeout_us);
}

Status check_size(std::size_t given, std::size_t known, std::size_t first) {
  if (given >= first && given <= 16 * known) return {};
  return {ErrorCode::invalid_argument, "a struct's struct_size is " + std::to_string(given) + ", not about " +
                                           std::to_string(known) + ": set it to the struct's size, or call its _init"};
}

}  // namespace fairway::c

using namespace fairway;

extern "C" {

FAIRWAY_API const char* fairway_version(void) {
  return FAIRWAY_VERSION;
}
FAIRWAY_API const char* fairway_code_name(fairway_code code) {
  return to_string(code < 0 || code > 255 ? static_cast<ErrorCode>(255) : static_cast<ErrorCode>(code)).data();
}
FAIRWAY_API const char* fairway_error_text(const fairway_error* error) {
  return error == nullptr ? "" : error->text.c_str();
}
FAIRWAY_API const char* fairway_error_message(const fairway_error* error) {
  return error == nullptr ? "" : error->status.message().c_str();
}
FAIRWAY_API const char* fairway_error_peer(const fairway_error* error) {
  return error == nullptr ? "" : error->status.peer().c_str();
}
FAIRWAY_API const char* fairway_error_link(const fairway_error* error) {
  return error == nullptr ? "" : error->status.link().c_str();
}
FAIRWAY_API fairway_code fairway_error_code(const fairway_error* error) {
  return error == nullptr ? FAIRWAY_OK : static_cast<fairway_code>(error->status.code());
}
FAIRWAY_API int32_t fairway_error_effect(const fairway_error* error) {
  return error == nullptr ? FAIRWAY_EFFECT_NOT_APPLIED : static_cast<int32_t>(error->status.effect());
}
FAIRWAY_API void fairway_error_free(fairway_error* error) {
  delete error;
}
FAIRWAY_API void fairway_free(void* memory) {
  std::free(memory);
}

}  // extern "C"

using namespace fairway::c;

namespace {

std::vector<std::string> words(const char* const* texts, std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = 0; texts != nullptr && i < count; ++i) out.emplace_back(texts[i] == nullptr ? "" : texts[i]);
  return out;
}

void set(std::string& to, const char* text) {
  if (text != nullptr) to = text;
}

// Converts to an enum of the C++ API, or returns an error that names the member.
template <class Enum>
Status choose(Enum& to, std::int32_t value, Enum last, const char* member) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    return {ErrorCode::invalid_argument, std::string(member) + " has no value " + std::to_string(value)};
  to = static_cast<Enum>(value);
  return {};
}

Status read_options(const fairway_options& in, EngineOptions& out) {
  set(out.name, in.name);
  set(out.listen, in.listen);
  set(out.job_key, in.job_key);
  set(out.directory, in.directory);
  set(out.machine, in.machine);
  if (Status status = choose(out.progress, in.progress, Progress::caller, "progress"); !status) return status;
  if (Status status = choose(out.rdma.on_demand, in.rdma_on_demand, OnDemand::always, "rdma_on_demand"); !status)
    return status;
  if (in.spin_us > 1'000'000'000 || in.peer_timeout_ms > 1'000'000'000)
    return {ErrorCode::invalid_argument, "spin_us and peer_timeout_ms are at most 1,000,000,000"};
  out.workers = in.workers;
  out.spin = std::chrono::microseconds(in.spin_us);
  out.max_transfers = in.max_transfers;
  out.max_regions = in.max_regions;
  out.max_remote_regions = in.max_remote_regions;
  out.max_peers = in.max_peers;
  out.max_counters = in.max_counters;
  out.notifications_per_peer = in.notifications_per_peer;
  out.unexpected_bytes_per_peer = in.unexpected_bytes_per_peer;
  out.peer_timeout = std::chrono::milliseconds(in.peer_timeout_ms);
  out.prove_paths = in.prove_paths != 0;
  out.strict_isolation = in.strict_isolation != 0;
  out.transports = words(in.transports, in.transport_count);
  out.interfaces = words(in.interfaces, in.interface_count);
  out.providers = words(in.providers, in.provider_count);
  out.rdma.devices = words(in.rdma_devices, in.rdma_device_count);
  out.rdma.gid_index = in.rdma_gid_index;
  out.rdma.queue_pairs = in.rdma_queue_pairs;
  out.rdma.service_level = in.rdma_service_level;
  out.rdma.traffic_class = in.rdma_traffic_class;
  out.rdma.hop_limit = in.rdma_hop_limit;
  out.rdma.timeout = in.rdma_timeout;
  out.rdma.retries = in.rdma_retries;
  out.rdma.partition = in.rdma_partition;
  out.rdma.mtu = in.rdma_mtu;
  out.rdma.connection_manager = in.rdma_connection_manager != 0;
  out.keep_links_awake = in.keep_links_awake != 0;
  if (in.loopback != nullptr) out.loopback = in.loopback->meeting_place;
  return {};
}

}  // namespace

namespace fairway::c {

fairway_engine* make_handle(std::shared_ptr<Engine> engine) {
  Engine& used = *engine;
  return new fairway_engine{std::move(engine), used, used.address()};
}
Status read_engine_options(const fairway_options* given, EngineOptions& out) {
  if (given == nullptr) return {};
  fairway_options in;
  fairway_options_init(&in);
  if (Status status = read_struct(given, in, kFirstOptions); !status) return status;
  return read_options(in, out);
}

void hold(fairway_engine* engine) {
  engine->holders.fetch_add(1, std::memory_order_relaxed);
}
void let_go(fairway_engine* engine) {
  if (engine->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete engine;
}

}  // namespace fairway::c

extern "C" {

FAIRWAY_API fairway_loopback* fairway_loopback_make(void) {
  try {
    return new fairway_loopback{make_loopback()};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
FAIRWAY_API void fairway_loopback_free(fairway_loopback* loopback) {
  delete loopback;
}

FAIRWAY_API void fairway_options_init(fairway_options* out) {
  const EngineOptions defaults;
  *out = {};
  out->struct_size = sizeof *out;
  out->progress = static_cast<int32_t>(defaults.progress);
  out->workers = defaults.workers;
  out->spin_us = static_cast<uint64_t>(defaults.spin.count());
  out->max_transfers = defaults.max_transfers;
  out->max_regions = defaults.max_regions;
  out->max_remote_regions = defaults.max_remote_regions;
  out->max_peers = defaults.max_peers;
  out->max_counters = defaults.max_counters;
  out->notifications_per_peer = defaults.notifications_per_peer;
  out->unexpected_bytes_per_peer = defaults.unexpected_bytes_per_peer;
  out->peer_timeout_ms = static_cast<uint64_t>(defaults.peer_timeout.count());
  out->prove_paths = defaults.prove_paths;
  out->strict_isolation = defaults.strict_isolation;
  out->keep_links_awake = defaults.keep_links_awake;
  out->rdma_gid_index = defaults.rdma.gid_index;
  out->rdma_queue_pairs = defaults.rdma.queue_pairs;
  out->rdma_service_level = defaults.rdma.service_level;
  out->rdma_traffic_class = defaults.rdma.traffic_class;
  out->rdma_hop_limit = defaults.rdma.hop_limit;
  out->rdma_timeout = defaults.rdma.timeout;
  out->rdma_retries = defaults.rdma.retries;
  out->rdma_partition = defaults.rdma.partition;
  out->rdma_mtu = defaults.rdma.mtu;
  out->rdma_on_demand = static_cast<int32_t>(defaults.rdma.on_demand);
  out->rdma_connection_manager = defaults.rdma.connection_manager;
}

FAIRWAY_API fairway_code fairway_open(const fairway_options* given, fairway_engine** engine, fairway_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return {ErrorCode::invalid_argument, "there is no place for the engine: it is null"};
    *engine = nullptr;
    EngineOptions options;
    if (Status status = read_engine_options(given, options); !status) return status;
    auto opened = Engine::open(options);
    if (!opened) return opened.status();
    *engine = make_handle(std::make_shared<Engine>(std::move(*opened)));
    return {};
  });
}
FAIRWAY_API void fairway_close(fairway_engine* engine) {
  if (engine == nullptr) return;
  engine->closed = true;
  engine->engine.close();
}
FAIRWAY_API void fairway_engine_free(fairway_engine* engine) {
  if (engine == nullptr) return;
  fairway_close(engine);
  let_go(engine);
}
FAIRWAY_API const char* fairway_address(fairway_engine* engine) {
  return engine == nullptr ? "" : engine->address.c_str();
}

FAIRWAY_API fairway_code fairway_connect(fairway_engine* engine, const char* address, int64_t timeout_us,
                                         fairway_peer* peer, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) {
        auto connected = on.connect(address, timeout_of(timeout_us));
        if (connected) *peer = id<fairway_peer>(*connected);
        return connected.status();
      },
      address, peer);
}
FAIRWAY_API fairway_code fairway_disconnect(fairway_engine* engine, fairway_peer peer, fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.disconnect(id<PeerId>(peer)); });
}

FAIRWAY_API int32_t fairway_poll_peer_event(fairway_engine* engine, fairway_peer_event* out) {
  if (engine == nullptr || out == nullptr || !check_size(out->struct_size, sizeof *out, sizeof *out)) return 0;
  try {
    PeerEvent event;
    if (engine->engine.poll_peer_events({&event, 1}) == 0) return 0;
    fairway_peer_event value{};
    value.kind = static_cast<int32_t>(event.kind);
    value.peer = id<fairway_peer>(event.peer);
    value.name = copy_text(event.name);
    value.link = copy_text(event.link);
    value.detail = copy_text(event.detail);
    value.incarnation = event.incarnation;
    value.mapping = event.mapping.number;
    value.reason = make_error(event.reason);
    return write_struct(value, out) ? 1 : 0;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}
FAIRWAY_API void fairway_peer_event_clear(fairway_peer_event* event) {
  if (event == nullptr) return;
  std::free(event->name);
  std::free(event->link);
  std::free(event->detail);
  delete event->reason;
  event->name = event->link = event->detail = nullptr;
  event->reason = nullptr;
}
FAIRWAY_API fairway_code fairway_wait_peer_event(fairway_engine* engine, int64_t timeout_us, fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.wait_peer_event(timeout_of(timeout_us)); });
}

}  // extern "C"

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
