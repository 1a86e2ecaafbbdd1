#include "fairway/engine.h"

#include <algorithm>
#include <optional>

#include "engine/state.h"
#include "engine/values.h"
#include "predict/open.h"
#include "sys/system_runtime.h"
#include "transport/registry.h"

namespace fairway {
namespace {

struct OwnedRuntime {
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
};

constexpr std::uint32_t kMostNotifications = 8192;
constexpr Time kAnswer = 100 * kMillisecond;  // control answers at a deadline, and this is how long that may take

Status check_options(const EngineOptions& options) {
  const auto positive = [](std::uint64_t value, const char* name) {
    return value > 0 ? Status() : Status(ErrorCode::invalid_argument, std::string("EngineOptions::") + name + " is 0");
  };
  for (const Status& status :
       {positive(options.workers, "workers"), positive(options.max_transfers, "max_transfers"),
        positive(options.max_regions, "max_regions"), positive(options.max_remote_regions, "max_remote_regions"),
        positive(options.max_peers, "max_peers"), positive(options.max_counters, "max_counters"),
        positive(options.notifications_per_peer, "notifications_per_peer")})
    if (!status) return status;
  if (options.workers > 256)
    return {ErrorCode::invalid_argument,
            "EngineOptions::workers is " + std::to_string(options.workers) + ", at most 256"};
  if (options.max_transfers >= 1u << 24 || options.max_regions >= 1u << 24 || options.max_remote_regions >= 1u << 24)
    return {ErrorCode::invalid_argument,
            "EngineOptions::max_transfers, max_regions and max_remote_regions are at most 2^24"};
  if (options.unexpected_bytes_per_peer < 2048)
    return {ErrorCode::invalid_argument,
            "EngineOptions::unexpected_bytes_per_peer is at least 2048, the room of one small message"};
  return engine::check_values(options);
}

}  // namespace

Engine::State::State(const EngineOptions& given, Runtime& on, engine::MachineLook::Source model,
                     std::shared_ptr<void> owner)
    : runtime_owner(std::move(owner)),
      options(given),
      runtime(on),
      regions(given.max_regions),
      remotes(given.max_remote_regions),
      transfers(given.max_transfers, given.workers * engine::kAllChunks),
      peers(given.max_peers),
      completions(given.max_transfers),
      notifications(given.max_peers,
                    static_cast<std::uint32_t>(std::min<std::uint64_t>(
                        std::uint64_t{given.max_peers} * given.notifications_per_peer, kMostNotifications))),
      counters(given.max_counters),
      machine(on.executor, std::move(model),
              [this] {
                for (const auto& worker : workers) worker->post([](engine::Worker& each) { each.machine_known(); });
                notice();
              }),
      services{options,       runtime,        regions, remotes, transfers, peers, peer_events, completions,
               notifications, counters,       {},      {},      {},        {},    {},          {},
               machine,       device_atomics, mappings},
      consumed(new std::atomic<std::uint64_t>[given.max_peers]()) {}

Engine::State::~State() {
  close();
}

Status Engine::State::start(const TransportFactory& factory) {
  auto made = runtime.executor.make_signal();
  if (!made) return made.status();
  signal = std::move(made).value();
  services.notice = [this] { notice(); };
  services.wait = [this](std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until) { wait(word, seen, until); };
  services.worker_of = [this](std::uint32_t slot) -> engine::Worker& { return worker_of(slot); };
  services.tell = [this](control::SessionId session, std::vector<std::byte> bytes) { tell(session, bytes); };
  services.drop = [this](control::SessionId session, const Status& reason) { drop(session, reason); };
  services.close_credits = [this](PeerId peer) {
    return consumed[peer.slot].exchange(0, std::memory_order_relaxed) & 0xffffffff;
  };
  for (std::uint16_t i = 0; i < options.workers; ++i) {
    auto transports = factory(regions, runtime);
    if (!transports) return transports.status();
    if (transports->size() > engine::kMaxTransports)
      return {ErrorCode::invalid_argument,
              std::to_string(transports->size()) +
                  " transports are in use, at most 64 can be: name fewer in EngineOptions::transports or providers"};
    workers.push_back(std::make_unique<engine::Worker>(i, services, std::move(*transports)));
    TaskOptions task_options;
    task_options.name = "fairway-" + std::to_string(i);
    task_options.spin_ns = static_cast<Time>(std::chrono::nanoseconds(options.spin).count());
    task_options.caller_steps = options.progress == Progress::caller;
    task_options.signal = signal.get();
    auto started = runtime.executor.start(task_options, *workers.back());
    if (!started) return started.status();
    tasks.push_back(std::move(started).value());
    workers.back()->set_task(tasks.back().get());
    Status attached;
    workers.back()->call([&](engine::Worker& worker) {
      for (const auto& transport : worker.transports())
        if (attached) attached = transport->attach(*tasks.back()).with_context(std::string(transport->name()));
    });
    if (!attached) return attached;
  }
  control::Options control_options;
  control_options.name = options.name;
  control_options.listen = options.listen;
  control_options.job_key = options.job_key;
  control_options.directory = options.directory;
  control_options.peer_timeout = static_cast<Time>(std::chrono::nanoseconds(options.peer_timeout).count());
  control_options.max_peers = options.max_peers;
  control_options.by_caller = options.progress == Progress::caller;
  auto opened = control::open_control(control_options, runtime, *this);
  if (!opened) return opened.status();
  control = std::move(opened).value();
  control_.store(control.get(), std::memory_order_release);
  notice();
  for (const auto& worker : workers) worker->wake();
  return {};
}

void Engine::State::close() {
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  machine.close();
  if (tasks.size() == workers.size())
    for (const auto& worker : workers) worker->call([](engine::Worker& owner) { owner.acknowledge(); });
  if (control != nullptr) control->close();
  if (tasks.size() == workers.size())
    for (const auto& worker : workers) worker->close();
  stopped_.store(true, std::memory_order_release);
  notice();
  tasks.clear();
  std::map<std::uint32_t, LocalRegion> freed;
  {
    std::lock_guard lock(mutex);
    freed.swap(local_regions);
    for (auto& [token, call] : pending) call = {true, {ErrorCode::closed, "the engine is closed"}, 0, {}, {}};
  }
  notice();
}

// ---- public ----

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> EngineAccess::open(const EngineOptions& options, Runtime& runtime, const TransportFactory& transports,
                                  engine::MachineLook::Source machine, std::shared_ptr<void> owner) {
  if (const Status status = check_options(options); !status) return status;
  auto state = std::make_unique<Engine::State>(options, runtime, std::move(machine), std::move(owner));
  if (const Status status = state->start(transports); !status) return status;
  return Engine(std::move(state));
}

Result<Engine> Engine::open(const EngineOptions& options) {
  if (const Status status = transport::check_names(options.transports); !status) return status;
  auto owned = std::make_shared<OwnedRuntime>();
  return EngineAccess::open(
      options, owned->runtime,
      [&options](transport::RegionTable& regions, Runtime& runtime) {
        return transport::open_transports({options.transports,
                                           options.loopback,
                                           options.listen,
                                           options.strict_isolation,
                                           options.interfaces,
                                           options.rdma,
                                           options.providers,
                                           {}},
                                          regions, runtime);
      },
      [path = options.machine] { return predict::open_model(path); }, owned);
}

void Engine::close() {
  if (state_ != nullptr) state_->close();
}

std::string Engine::address() const {
  return state_->control->address();
}

Result<PeerId> Engine::connect(std::string_view address, Timeout timeout) {
  State& state = *state_;
  if (state.closed()) return Status(ErrorCode::closed, "the engine is closed");
  const Time until = state.deadline(timeout);
  std::string target(address);
  const std::uint64_t token = state.next_token.fetch_add(1, std::memory_order_relaxed);
  // One question to control, and its answer, which says more than that none came.
  const auto run = [&](auto start) {
    {
      std::lock_guard lock(state.mutex);
      state.pending[token] = {};
    }
    State::Pending answer;
    answer.status = start();
    if (answer.status.is_ok() && !state.wait_until(after(until, kAnswer), [&] {
          std::lock_guard lock(state.mutex);
          return state.pending[token].done;
        }))
      answer.status = {ErrorCode::timed_out, "no answer from " + target + " in time"};
    std::lock_guard lock(state.mutex);
    if (answer.status.is_ok()) answer = state.pending[token];
    state.pending.erase(token);
    return answer;
  };
  const Time now = state.runtime.clock.now();
  const Time left = until == kNever ? kNever : until - std::min(now, until);
  if (target.find(':') == std::string::npos) {
    const State::Pending resolved = run([&] { return state.control->resolve(target, token, left); });
    if (!resolved.status) return resolved.status;
    target = resolved.address;
  }
  State::Pending connected;
  // A session that this side has dropped a moment ago may still be control's answer: it is asked until it has heard of
  // that. A second session that has ended too is the peer's doing, and is not dialled in a loop.
  for (std::optional<control::SessionId> dropped;;) {
    connected = run([&] { return state.control->connect(target, token, left); });
    if (!connected.status) return connected.status;
    const auto info = state.peers.find_session(connected.session);
    if (!info || info->state != engine::PeerTable::State::down) break;
    if ((dropped && *dropped != connected.session) || state.runtime.clock.now() >= until) break;
    dropped = connected.session;
  }

  PeerId peer;
  Status failure;
  const bool decided = state.wait_until(until, [&] {
    const auto info = peer ? state.peers.find(peer) : state.peers.find_session(connected.session);
    if (!info) {
      std::lock_guard lock(state.mutex);
      const auto full = state.turned_away.extract(connected.session);
      failure = full ? full.mapped()
                     : Status(ErrorCode::unsupported,
                              "an engine does not connect to itself: its own memory needs no transfer");
      return true;
    }
    peer = info->id;
    failure = info->reason;
    return info->state == engine::PeerTable::State::ready || !info->reason.is_ok() ||
           info->state == engine::PeerTable::State::down;
  });
  if (!decided) return Status(ErrorCode::timed_out, "connected, but no link came up in time").with_peer(target);
  if (failure) return peer;
  // What a transport lacked, a port or an address, may be there next time: a session without a link would only repeat
  // what was said when it began.
  if (peer && failure.code() == ErrorCode::unsupported) state.drop(connected.session, failure);
  return failure;
}

Status Engine::disconnect(PeerId peer) {
  const auto info = state_->peers.find(peer);
  if (!info || info->state == engine::PeerTable::State::down) return state_->peers.why_not(peer);
  // In this order at the worker: what is owed, the goodbye, the end.
  state_->worker_of(info->id.slot).post([state = state_.get(), session = info->session](engine::Worker& worker) {
    worker.acknowledge();
    state->control_now().disconnect(session);
  });
  state_->session_down(info->session, {ErrorCode::closed, "disconnected by this side"});
  return {};
}

std::size_t Engine::poll_peer_events(std::span<PeerEvent> events) {
  if (state_->options.progress == Progress::caller) state_->drive();
  const std::size_t count = state_->peer_events.pop(events);
  if (count == 0) state_->settle_signal();
  return count;
}

Status Engine::wait_peer_event(Timeout timeout) {
  const bool came =
      state_->wait_until(state_->deadline(timeout), [&] { return !state_->peer_events.empty() || state_->closed(); });
  if (!came) return {ErrorCode::timed_out, "no peer event came in time"};
  return state_->peer_events.empty() ? Status(ErrorCode::closed, "the engine is closed") : Status();
}

}  // namespace fairway
