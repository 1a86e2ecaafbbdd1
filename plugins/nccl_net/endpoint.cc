#include "nccl_net/endpoint.h"

#include <algorithm>
#include <thread>

namespace fairway::nccl {
namespace {

constexpr std::uint32_t kRoundsPerLook = 64;  // peers come and go rarely
constexpr int kBatchesPerPump = 8;
// Sleep while NCCL's threads poll; they poll without a pause while they have work.
constexpr std::chrono::microseconds kIdleSleep{500};
constexpr std::chrono::milliseconds kShortestLook{1}, kLongestLook{64};
constexpr std::chrono::milliseconds kBusyAfter{1};
// Yielding after each turn made an all-reduce of GPU memory a seventh slower.
constexpr std::uint32_t kTurnsPerYield = 64;
constexpr std::size_t kLargeMessageBytes = 32 * 1024;  // bytes; takes some microseconds to send
constexpr std::uint32_t kManySends = 4;                // sends in flight, over all engines of a device

void ignore_completion(const Completion&, void*) {}

}  // namespace

Result<std::shared_ptr<Endpoint>> Endpoint::open(const Settings& settings, const Log& log, BackgroundTasks& background,
                                                 std::shared_ptr<SendCount> sends) {
  auto engine = Engine::open(settings.engine);
  if (!engine) return in_variables(engine.status(), settings);
  return std::make_shared<Endpoint>(std::move(engine).value(), settings, log, background, std::move(sends));
}

Endpoint::Endpoint(Engine engine, const Settings& settings, const Log& log, BackgroundTasks& background,
                   std::shared_ptr<SendCount> sends)
    : engine_(std::move(engine)),
      log_(log),
      background_(background),
      connect_timeout_(settings.connect_timeout),
      fence_(2 * Timeout(settings.engine.peer_timeout)),
      own_threads_(settings.engine.progress == Progress::threads),
      sends_(std::move(sends)) {
  if (!own_threads_) progress_thread_ = std::thread([this] { progress_loop(); });
}

std::vector<std::string> Endpoint::transports() const {
  std::vector<std::string> names;
  for (const TransportMetrics& each : engine_.metrics().transports) names.push_back(each.name);
  return names;
}

bool Endpoint::has(std::string_view transport) const {
  const auto names = transports();
  return std::find(names.begin(), names.end(), transport) != names.end();
}

void Endpoint::close() {
  stop();
  std::vector<Entry> ports;
  const std::lock_guard lock(ports_mutex_);
  ports.swap(ports_);
  free_.clear();
}

// NCCL's threads drive the engine's progress while they poll, so that a small message crosses no other thread. The
// progress thread drives it in two cases: while they are elsewhere, for work that peers wait for (an acknowledgement,
// the rest of a handshake); and while so much data is in flight that a polling thread should not stop to move it.
void Endpoint::progress_loop() {
  auto look = kShortestLook;
  std::uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    if (is_busy()) {
      progress_thread_active_.store(true, std::memory_order_relaxed);
      for (std::uint32_t turn = 1; is_busy() && !stopping_.load(std::memory_order_acquire); ++turn) {
        dispatch_all();
        if (turn % kTurnsPerYield == 0) std::this_thread::yield();
      }
      progress_thread_active_.store(false, std::memory_order_relaxed);
    }
    if (const std::uint32_t now = pumps_.load(std::memory_order_relaxed); now != seen) {
      seen = now;
      look = kShortestLook;
      std::this_thread::sleep_for(kIdleSleep);
      continue;
    }
    (void)engine_.wait_notification(look);
    dispatch_all();
    look = std::min(2 * look, kLongestLook);
  }
}

void Endpoint::on_send(std::size_t bytes) {
  if (sends_->fetch_add(1, std::memory_order_relaxed) + 1 >= kManySends || bytes >= kLargeMessageBytes) mark_busy();
}

void Endpoint::on_sent() {
  sends_->fetch_sub(1, std::memory_order_relaxed);
}

void Endpoint::on_received(std::size_t bytes) {
  if (bytes >= kLargeMessageBytes) mark_busy();
}

void Endpoint::mark_busy() {
  busy_until_.store((Clock::now() + kBusyAfter).time_since_epoch().count(), std::memory_order_relaxed);
}

bool Endpoint::is_busy() const {
  return Clock::now().time_since_epoch().count() < busy_until_.load(std::memory_order_relaxed);
}

void Endpoint::stop() {
  stopping_.store(true, std::memory_order_release);
  engine_.close();  // wakes its waiter
  if (progress_thread_.joinable()) progress_thread_.join();
}

// ---- ports ----

void Endpoint::add(const std::shared_ptr<Port>& port) {
  const std::lock_guard lock(ports_mutex_);
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(ports_.size()));
    ports_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Entry& entry = ports_[index];
  if (++entry.generation == 0) entry.generation = 1;
  port->id_ = {index, entry.generation};
  entry.port = port;
}

void Endpoint::remove(PortId id) {
  std::shared_ptr<Port> last;  // destroyed after the lock is released
  const std::lock_guard lock(ports_mutex_);
  if (id.index >= ports_.size() || ports_[id.index].generation != id.generation) return;
  last = std::move(ports_[id.index].port);
  if (last != nullptr) free_.push_back(id.index);
}

void Endpoint::pump() {
  pumps_.store(pumps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!progress_thread_active_.load(std::memory_order_relaxed)) dispatch_all();
}

void Endpoint::dispatch_all() {
  if (pumping_.test_and_set(std::memory_order_acquire)) return;
  for (int batch = 0; batch < kBatchesPerPump; ++batch)
    if (!dispatch_some()) break;
  if (++rounds_ % kRoundsPerLook == 0) poll_peer_events();
  pumping_.clear(std::memory_order_release);
}

bool Endpoint::dispatch_some() {
  const std::size_t count = engine_.poll_notifications(batch_);
  for (std::size_t i = 0; i < count; ++i) dispatch(batch_[i]);
  return count == batch_.size();
}

void Endpoint::dispatch(const Notification& notification) {
  const auto message = parse(std::span(notification.message, notification.message_bytes));
  if (!message) {
    log_.warn(
        "a peer sent a message that this plugin version does not know, and is disconnected: use the same plugin on "
        "every rank");
    (void)engine_.disconnect(notification.peer);
    return;
  }
  std::shared_ptr<Port> port;
  {
    const std::lock_guard lock(ports_mutex_);
    if (notification.immediate < ports_.size() && ports_[notification.immediate].generation == message->to_generation)
      port = ports_[notification.immediate].port;
  }
  if (port != nullptr) return port->on_message(*message, notification.peer);
  Message answer;  // so that a peer does not wait for an end that is closed
  if (message->kind == Message::Kind::hello)
    answer.kind = Message::Kind::refused;
  else if (message->kind == Message::Kind::post)
    answer.kind = Message::Kind::closed;
  else
    return;
  post_until_accepted(notification.peer, message->from, answer);
}

void Endpoint::poll_peer_events() {
  std::array<PeerEvent, 8> events;
  while (const std::size_t count = engine_.poll_peer_events(events))
    for (std::size_t i = 0; i < count; ++i) {
      if (events[i].kind == PeerEvent::Kind::link_down)
        log_.info("link " + events[i].link + " to " + events[i].name + " is down: " + events[i].reason.to_string());
      if (events[i].kind != PeerEvent::Kind::down) continue;
      while (dispatch_some()) {  // deliver everything that the peer sent before it went down
      }
      std::vector<std::shared_ptr<Port>> all;
      {
        const std::lock_guard lock(ports_mutex_);
        for (const Entry& entry : ports_)
          if (entry.port != nullptr) all.push_back(entry.port);
      }
      for (const auto& port : all) port->on_peer_down(events[i].peer, events[i].reason);
    }
}

Result<bool> Endpoint::post(PeerId peer, PortId to, const Message& message, CompletionCallback callback,
                            void* user_data) {
  MessageBytes bytes;
  Message addressed = message;
  addressed.to_generation = to.generation;
  RequestOptions options;
  options.notify = notify_event(to.index, format(addressed, bytes));
  options.priority = Priority::urgent;
  options.deliver = Deliver::to_callback;
  options.callback = callback == nullptr ? ignore_completion : callback;
  options.user_data = user_data;
  const auto id = engine_.write(peer, std::span<const Extent>(), options);
  if (id) return true;
  if (id.status().code() == ErrorCode::queue_full) return false;
  return id.status();
}

void Endpoint::post_until_accepted(PeerId peer, PortId to, const Message& message) {
  const auto taken = post(peer, to, message);
  if (!taken || *taken) return;
  later(peer, [self = shared_from_this(), peer, to, message] {
    for (auto again = self->post(peer, to, message); again && !*again; again = self->post(peer, to, message))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

// ---- memory ----

Result<Memory*> Endpoint::register_memory(void* data, std::size_t size, Access access) {
  const std::lock_guard lock(memory_mutex_);
  auto& memory = memory_[{data, size, access}];
  if (memory == nullptr) {
    auto region = engine_.register_memory(data, size, access);
    if (!region) {
      memory_.erase({data, size, access});
      return region.status();
    }
    memory = std::make_unique<Memory>();
    memory->region = *region;
  }
  ++memory->users;
  return memory.get();
}

Status Endpoint::deregister(Memory* memory) {
  {
    const std::lock_guard lock(memory_mutex_);
    if (memory->users > 1) {
      --memory->users;
      return {};
    }
    // From here on, who registers the same bytes gets a region of its own.
    const auto found = memory_.find({memory->region.address, memory->region.size_bytes, memory->region.access});
    if (found != memory_.end() && found->second.get() == memory) {
      ending_.push_back(std::move(found->second));
      memory_.erase(found);
    }
  }
  Status status = engine_.deregister(memory->region, fence_);
  // revoked: the end that an earlier call has begun is over.
  if (!status && status.code() != ErrorCode::closed && status.code() != ErrorCode::revoked) return status;
  const std::lock_guard lock(memory_mutex_);
  std::erase_if(ending_, [memory](const auto& each) { return each.get() == memory; });
  return {};
}

Status Endpoint::publish(Memory& memory) {
  if (memory.published.load(std::memory_order_acquire)) return {};
  Status status = engine_.publish(name_of(memory.region.id), memory.region);
  if (status) memory.published.store(true, std::memory_order_release);
  return status;
}

Result<RemoteRegion> Endpoint::import(PeerId peer, RegionId region) {
  auto found = engine_.lookup(peer, name_of(region), connect_timeout_);
  if (!found) return found;
  const std::lock_guard lock(memory_mutex_);
  ++imports_[found->id];
  return found;
}

void Endpoint::release(const RemoteRegion& region) {
  {
    const std::lock_guard lock(memory_mutex_);
    const auto found = imports_.find(region.id);
    if (found == imports_.end() || --found->second != 0) return;
    imports_.erase(found);
  }
  (void)engine_.release(region);
}

void Endpoint::later(PeerId peer, std::function<void()> job) {
  const std::uint64_t number = std::uint64_t{peer.generation} << 32 | peer.slot;
  background_.add(std::hash<const void*>()(this) ^ std::hash<std::uint64_t>()(number), std::move(job));
}

}  // namespace fairway::nccl
