#include <utility>

#include "engine/worker.h"
#include "transport/optional_calls.h"

// Worker: what reaches it from other threads, and its end, at which each of those still gets its answer.
namespace fairway::engine {
namespace {

constexpr int kMostDrainingPolls = 16 * transport::kPollsForAll;  // other peers may keep writing

}  // namespace

// ---- any thread ----

void Worker::post(std::function<void(Worker&)> command) {
  {
    std::lock_guard lock(commands_mutex_);
    commands_.push_back(std::move(command));
    if (!closed_.load(std::memory_order_relaxed)) {
      has_commands_.store(true, std::memory_order_release);
      return wake();
    }
  }
  run_closed();
}

// Commands of a worker that is stepped no more, by whoever posts: one thread at a time, in order, also those that they
// post meanwhile.
void Worker::run_closed() {
  std::unique_lock lock(commands_mutex_);
  if (std::exchange(runs_closed_, true)) return;
  stepping_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  while (!commands_.empty()) {
    const auto batch = std::exchange(commands_, {});
    lock.unlock();
    for (const auto& command : batch) command(*this);
    waiting_.notice();  // who waits for one of another thread's
    lock.lock();
  }
  stepping_.store({}, std::memory_order_relaxed);
  runs_closed_ = false;
}

void Worker::call(const std::function<void(Worker&)>& command) {
  if (stepped_here()) return command(*this);
  std::atomic<std::uint32_t> done{0};
  Executor& executor = engine_.runtime.executor;
  post([&](Worker& worker) {
    command(worker);
    done.store(1, std::memory_order_release);
    executor.wake_all(done);
  });
  while (done.load(std::memory_order_acquire) == 0) waiting_.wait(done, 0, kNever);
}

// ---- the owner ----

// The last act of the last step. What was posted or submitted until here is answered here, what comes later by the
// thread that it comes from.
void Worker::stay_closed() {
  take_commands();
  {
    std::lock_guard lock(commands_mutex_);
    stepping_.store({}, std::memory_order_relaxed);  // from here on it says who is in run_closed()
    closed_.store(true, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  post([](Worker& worker) {
    worker.take_all_submissions();
    worker.deliver();
  });
}

// A peer that reads the goodbye first treats unacknowledged messages as lost. Bounded, since peers may keep writing.
void Worker::acknowledge() {
  for (int poll = 0; poll < transport::kPollsForAll; ++poll) (void)poll_transports();
}

Status Worker::untouched() {
  const std::lock_guard lock(untouched_mutex_);
  for (const auto& transport : tables_.transports)
    if (Status status = transport->untouched(); !status) return status;
  return unfenced_;
}

void Worker::close() {
  call([](Worker& worker) { worker.shut(); });
}

// Messages that a transport has acknowledged count as received, so take them before the peer is dropped. Also sends
// acknowledgements that a transport has held back to coalesce them.
void Worker::drain_transports() {
  for (int poll = 0, quiet = 0; poll < kMostDrainingPolls && quiet < transport::kPollsForAll; ++poll)
    quiet = poll_transports() ? 0 : quiet + 1;
}

void Worker::shut() {
  if (shut_) return;
  drain_transports();
  for (const std::uint32_t slot : std::vector(live_))
    end(*peers_[slot], {ErrorCode::cancelled, "the engine is closing"});
  let_go();
  while (staging_.has_work() && staging_.proceed(now_)) {  // a device finishes its copies within milliseconds
  }
  for (std::uint16_t i = 0; i < tables_.transports.size(); ++i) {
    tables_.transports[i]->close();
    while (const std::size_t count = tables_.transports[i]->poll(events_, now_))
      for (std::size_t e = 0; e < count; ++e) handle(i, events_[e]);
  }
  take_all_submissions();
  end_all_any({ErrorCode::cancelled, "the engine is closing"});
  reap_peers();
  deliver();
  removals_.end_all(untouched());
  deliver();
  shut_ = true;
}

}  // namespace fairway::engine
