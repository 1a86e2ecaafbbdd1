// size: one function for each call of the API
#include "fairway/engine.h"

#include <memory>
#include <string>
#include <utility>

#include "engine/state.h"
#include "engine/tables/regions.h"
#include "engine/tables/request_check.h"
#include "predict/open.h"
#include "sys/library_loading.h"
#include "sys/system_runtime.h"
#include "transport/registry.h"

// Opens and closes engines, and hands each call of the API to the part whose subject it is.
namespace fairway {
namespace {

struct OwnedRuntime {
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
};

// Reads a recording now, so that a malformed one fails open(). Inspects this machine only when it is needed.
Result<engine::MachineDiscovery::Source> machine_of(const std::string& path) {
  if (path.empty()) return engine::MachineDiscovery::Source([] { return predict::open_model({}); });
  Result<predict::Model> model = predict::open_model(path);
  if (!model) return Status(model.status().code(), "EngineOptions::machine: " + model.status().message());
  const auto kept = std::make_shared<Result<predict::Model>>(std::move(model));
  return engine::MachineDiscovery::Source([kept] { return std::move(*kept); });  // called once
}

}  // namespace

Engine::State::State(const EngineOptions& given, Runtime& on, engine::MachineDiscovery::Source model,
                     std::shared_ptr<void> owner, bool short_path)
    : runtime_owner(std::move(owner)),
      tables(given, on, short_path),
      introspection(tables, std::move(model), workers, waiting) {}

Engine::State::~State() {
  close();
  workers.destroy();  // they borrow the parts
}

Status Engine::State::start(const TransportFactory& factory) {
  if (Status status = waiting.open(); !status) return status;
  if (Status status = workers.open(factory, waiting, sessions, introspection.machine()); !status) return status;
  if (Status status = sessions.open(exchange); !status) return status;
  workers.wake();
  return {};
}

void Engine::State::close() {
  if (workers.stepped_here()) return;
  if (!waiting.close()) return (void)waiting.wait_for_end(kNever);
  introspection.machine().close();
  workers.call_all([](engine::Worker& owner) { owner.acknowledge(); });
  sessions.close();
  workers.close();
  waiting.stop();
  workers.end_tasks();
  regions.free_all();
  const Status why(ErrorCode::closed, "the engine is closed");
  sessions.end_calls(why);
  exchange.end_calls(why);
  submissions.closed();
  waiting.notice();
  waiting.ended();
}

Status Engine::State::wait_untouched(Time deadline) {
  constexpr Time kLook = kMillisecond;
  std::atomic<std::uint32_t> nothing{0};
  for (;;) {
    const Status status = workers.untouched();
    const Time now = waiting.now();
    if (status || now >= deadline)
      return status.with_context("the engine is closed, and its memory may still be touched: do not reuse it");
    tables.runtime.executor.wait(nothing, 0, std::min(deadline, after(now, kLook)));
  }
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> EngineAccess::open(const EngineOptions& options, Runtime& runtime, const TransportFactory& transports,
                                  engine::MachineDiscovery::Source machine, std::shared_ptr<void> owner,
                                  bool short_path) {
  if (const Status status = engine::check_values(options); !status) return status;
  auto state = std::make_unique<Engine::State>(options, runtime, std::move(machine), std::move(owner), short_path);
  if (const Status status = state->start(transports); !status) return status;
  return Engine(std::move(state));
}

Result<Engine> EngineAccess::open(const EngineOptions& options, bool short_path) {
  if (const Status status = transport::check_names(options.transports); !status) return status;
  Result<engine::MachineDiscovery::Source> machine = machine_of(options.machine);
  if (!machine) return machine.status();
  auto owned = std::make_shared<OwnedRuntime>();
  return open(
      options, owned->runtime,
      [&options](transport::RegionTable& regions, Runtime& runtime) {
        const sys::LibraryLoading loading;  // of drivers and providers
        return transport::open_transports({options.transports,
                                           options.loopback,
                                           options.listen,
                                           options.strict_isolation,
                                           options.interfaces,
                                           options.rdma,
                                           options.providers,
                                           options.keep_links_awake,
                                           {}},
                                          regions, runtime);
      },
      std::move(*machine), owned, short_path);
}

std::shared_ptr<CounterRanges> EngineAccess::counter_ranges(const Engine& engine) {
  return engine.state_ == nullptr ? nullptr : engine.state_->arrivals.ranges();
}
std::shared_ptr<CounterRanges> counter_ranges_of(const Engine& engine) {
  return EngineAccess::counter_ranges(engine);
}

engine::Worker& EngineAccess::worker(Engine& engine, std::size_t index) {
  return engine.state_->workers[index];
}

Result<Engine> Engine::open(const EngineOptions& options) {
  return EngineAccess::open(options, true);
}

void Engine::close() {
  if (state_ != nullptr) state_->close();
}

bool Engine::is_open() const {
  return state_ != nullptr && !state_->waiting.closed();
}

std::chrono::milliseconds Engine::peer_timeout() const {
  return state_ != nullptr ? state_->tables.options.peer_timeout : std::chrono::milliseconds(0);
}

namespace {
Status moved() {
  return {ErrorCode::closed, "this Engine was moved from: use the one that it was moved to"};
}
}  // namespace

// ---- peers ----

std::string Engine::address() const {
  if (state_ == nullptr) return {};
  return state_->sessions.address();
}
Result<PeerId> Engine::connect(std::string_view address, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->sessions.connect(address, timeout);
}
Status Engine::disconnect(PeerId peer) {
  if (state_ == nullptr) return moved();
  return state_->sessions.disconnect(peer);
}
std::size_t Engine::poll_peer_events(std::span<PeerEvent> events) {
  if (state_ == nullptr) return 0;
  return state_->sessions.poll_events(events);
}
Status Engine::wait_peer_event(Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->sessions.wait_event(timeout);
}

// ---- memory ----

Result<Region> Engine::register_memory(void* address, std::size_t size_bytes, Access access,
                                       const MemorySource& source) {
  if (state_ == nullptr) return moved();
  return state_->regions.add(address, size_bytes, access, source);
}
Result<Region> Engine::allocate(std::size_t size_bytes, Access access) {
  if (state_ == nullptr) return moved();
  return state_->regions.allocate(size_bytes, access);
}
Status Engine::deregister(const Region& region, Timeout timeout) {
  if (state_ == nullptr) return moved();
  State& state = *state_;
  if (state.waiting.closed()) {
    if (state.workers.stepped_here() || !state.waiting.wait_for_end(state.waiting.deadline(timeout)))
      return {ErrorCode::not_fenced, "the engine is closing: its regions may be touched until close() has returned"};
    if (Status status = state.wait_untouched(state.waiting.deadline(timeout)); !status) return status;
    return {ErrorCode::closed, "the engine is closed: nothing touches its regions any more"};
  }
  const auto ending = state.regions.begin_end(region.id);
  if (!ending) return ending.status();
  state.exchange.withdraw(region.id);
  return state.regions.wait_for_end(region.id, **ending, timeout);
}
Fence Engine::fence_state(const Region& region) const {
  if (state_ == nullptr) return Fence::unknown;
  if (state_->waiting.ended_already()) return state_->workers.untouched() ? Fence::fenced : Fence::pending;
  const Fence state = state_->regions.fence_state(region.id);
  return state == Fence::registered && state_->waiting.closed() ? Fence::pending : state;  // close() ends them all
}
Result<std::vector<std::byte>> Engine::describe(const Region& region) {
  if (state_ == nullptr) return moved();
  const auto description = state_->exchange.describe(region.id);
  if (!description) return description.status();
  return engine::seal_description(*description);
}
Result<RemoteRegion> Engine::import_region(PeerId peer, std::span<const std::byte> description) {
  if (state_ == nullptr) return moved();
  return state_->exchange.import(peer, description);
}
Status Engine::release(const RemoteRegion& region) {
  if (state_ == nullptr) return moved();
  return state_->exchange.release(region);
}
Status Engine::publish(std::string_view name, const Region& region) {
  if (state_ == nullptr) return moved();
  return state_->exchange.publish(name, region.id);
}
Result<RemoteRegion> Engine::lookup(PeerId peer, std::string_view name, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->exchange.lookup(peer, name, timeout);
}

// ---- communication by kernels and CUDA streams ----

Result<Mapping> Engine::map(const RemoteRegion& region, int gpu, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->mappings.map(region, gpu, timeout);
}
Result<Mapping> Engine::map(const Region& region, int gpu, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->mappings.map(region, gpu, timeout);
}
Status Engine::unmap(MappingId mapping) {
  if (state_ == nullptr) return moved();
  return state_->mappings.unmap(mapping);
}
Status Engine::stream_put(MappingId to, const StreamPut& put, void* stream) {
  if (state_ == nullptr) return moved();
  return state_->mappings.stream_put(to, put, stream);
}
Status Engine::stream_wait_signal(const StreamWait& wait, void* stream) {
  if (state_ == nullptr) return moved();
  return state_->mappings.stream_wait_signal(wait, stream);
}

// ---- transfers ----

Submitted Engine::submit(std::span<const Request> requests, std::span<TransferId> ids) {
  if (state_ == nullptr) return {0, moved()};
  if (ids.size() < requests.size())
    return {0, {ErrorCode::invalid_argument, "submit() needs space for one id per request"}};
  return state_->submissions.submit(requests, ids);
}

bool Engine::writable() const {
  if (state_ == nullptr) return false;
  return state_->submissions.writable();
}

Result<TransferId> Engine::write(PeerId peer, const Layout& layout, const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  if (const TransferId done = state_->submissions.complete_now(Operation::write, peer, layout, options)) return done;
  return state_->submissions.submit({Operation::write, peer, layout, {}, 0, 0, 0, options});
}
Result<TransferId> Engine::read(PeerId peer, const Layout& layout, const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  if (const TransferId done = state_->submissions.complete_now(Operation::read, peer, layout, options)) return done;
  return state_->submissions.submit({Operation::read, peer, layout, {}, 0, 0, 0, options});
}
Result<TransferId> Engine::send(PeerId peer, std::uint64_t tag, const Slice& from, const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  return state_->submissions.submit({Operation::send, peer, Extent{from, {}}, {}, 0, 0, tag, options});
}
Result<TransferId> Engine::receive(PeerId peer, std::uint64_t tag, const Slice& into, const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  return state_->submissions.submit({Operation::receive, peer, Extent{into, {}}, {}, 0, 0, tag, options});
}
Result<TransferId> Engine::send(PeerId peer, std::uint64_t tag, std::span<const Extent> from,
                                const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  return state_->submissions.submit({Operation::send, peer, from, {}, 0, 0, tag, options});
}
Result<TransferId> Engine::receive(PeerId peer, std::uint64_t tag, std::span<const Extent> into,
                                   const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  return state_->submissions.submit({Operation::receive, peer, into, {}, 0, 0, tag, options});
}
Result<Probed> Engine::probe(PeerId peer, std::uint64_t tag, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->message_probe.probe(peer, tag, timeout);
}
Result<TransferId> Engine::fetch_add(PeerId peer, RemoteAddress target, std::uint64_t addend,
                                     const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  return state_->submissions.submit({Operation::fetch_add, peer, {}, target, addend, 0, 0, options});
}
Result<TransferId> Engine::compare_swap(PeerId peer, RemoteAddress target, std::uint64_t expected,
                                        std::uint64_t desired, const RequestOptions& options) {
  if (state_ == nullptr) return moved();
  return state_->submissions.submit({Operation::compare_swap, peer, {}, target, desired, expected, 0, options});
}

// ---- completion ----

Result<Completion> Engine::wait(TransferId id, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->submissions.wait(id, timeout);
}
Result<Completion> Engine::wait_any(std::span<const TransferId> ids, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->transfer_waits.wait_any(ids, timeout);
}
Status Engine::wait_all(std::span<const TransferId> ids, std::span<Completion> completions, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->transfer_waits.wait_all(ids, completions, timeout);
}
Status Engine::flush(PeerId peer, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->transfer_waits.flush(peer, timeout);
}
Status Engine::drain(Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->transfer_waits.drain(timeout);
}
Status Engine::stream_wait(TransferId id, void* stream) {
  if (state_ == nullptr) return moved();
  return state_->submissions.stream_wait(id, stream);
}
std::size_t Engine::poll(std::span<Completion> completions) {
  if (state_ == nullptr) return 0;
  return state_->submissions.poll(completions);
}
Result<QueueId> Engine::make_queue(std::uint32_t capacity) {
  if (state_ == nullptr) return moved();
  return state_->submissions.make_queue(capacity);
}
std::size_t Engine::poll(QueueId queue, std::span<Completion> completions) {
  if (state_ == nullptr) return 0;
  return state_->submissions.poll_queue(queue, completions);
}
Status Engine::wait(QueueId queue, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->submissions.wait_queue(queue, timeout);
}
Status Engine::end_queue(QueueId queue) {
  if (state_ == nullptr) return moved();
  return state_->submissions.end_queue(queue);
}
int Engine::fd() const {
  if (state_ == nullptr) return -1;
  return state_->waiting.fd();
}
Result<Cancelled> Engine::cancel(TransferId id, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->submissions.cancel(id, timeout);
}

// ---- at the target ----

std::size_t Engine::poll_notifications(std::span<Notification> notifications) {
  if (state_ == nullptr) return 0;
  return state_->arrivals.poll(notifications);
}
Status Engine::wait_notification(Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->arrivals.wait(timeout);
}
std::uint64_t Engine::counter(std::uint32_t immediate) const {
  if (state_ == nullptr) return 0;
  return state_->arrivals.counter(immediate);
}
Status Engine::wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->arrivals.wait_counter(immediate, at_least, timeout);
}

Result<CounterSpace> Engine::make_counters(std::uint32_t count, std::optional<std::uint32_t> first) {
  if (state_ == nullptr) return moved();
  return state_->arrivals.make_counters(count, first);
}
Status Engine::release_counters(CounterSpaceId space) {
  if (state_ == nullptr) return moved();
  return state_->arrivals.release_counters(space);
}
std::size_t Engine::poll_notifications(CounterSpaceId space, std::span<Notification> notifications) {
  if (state_ == nullptr) return 0;
  return state_->arrivals.poll(space, notifications);
}
Status Engine::wait_notification(CounterSpaceId space, Timeout timeout) {
  if (state_ == nullptr) return moved();
  return state_->arrivals.wait(space, timeout);
}

// ---- introspection ----

Result<Explanation> Engine::explain(const Request& request) const {
  if (state_ == nullptr) return moved();
  if (Status status = state_->submissions.check(request); !status) return status;
  return state_->introspection.explain(request);
}
Result<Explanation> Engine::explain(PeerId peer) const {
  if (state_ == nullptr) return moved();
  return state_->introspection.explain(peer);
}
Result<Explanation> Engine::explain(TransferId id) const {
  if (state_ == nullptr) return moved();
  return state_->introspection.explain(id);
}
Metrics Engine::metrics() const {
  if (state_ == nullptr) return {};
  Metrics out;
  for (const auto& worker : state_->workers.all()) worker->collect(out);
  state_->submissions.collect(out);
  out.regions = state_->regions.count();
  return out;
}
std::vector<PortCounter> Engine::port_counters() const {
  if (state_ == nullptr) return {};
  return state_->introspection.port_counters();
}

}  // namespace fairway
