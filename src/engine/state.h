#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/control.h"
#include "engine/open.h"
#include "engine/worker.h"
#include "sys/memory_file.h"

namespace fairway {

// Everything of one engine. Public calls run on the caller's thread and touch only what is safe for any thread: tables
// of their own, queues to the workers, and the maps below under their mutex. The control thread calls the Observer
// part.
struct Engine::State final : control::Observer {
  // `owner`, if any, keeps `on` alive.
  State(const EngineOptions& given, Runtime& on, engine::MachineLook::Source model, std::shared_ptr<void> owner);
  ~State() override;

  Status start(const TransportFactory& factory);
  void close();
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }

  // ---- engine_wait.cc: how callers wait, in both modes of progress ----
  void notice();  // any thread: something that somebody may wait for has changed
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline);
  // Waits until `done()`, checked again at every notice. False: the deadline passed.
  template <class Done>
  bool wait_until(Time deadline, Done done) {
    for (;;) {
      const std::uint32_t seen = notices.load(std::memory_order_acquire);
      if (done()) return true;
      if (runtime.clock.now() >= deadline) return false;
      wait(notices, seen, deadline);
    }
  }
  void drive();  // Progress::caller: one step of each worker, if no other thread is at it
  bool step_until(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until);
  [[nodiscard]] bool is_polled(Time now) const;  // without a pause, so that others need not step
  [[nodiscard]] Time deadline(Timeout timeout) const;
  void settle_signal();  // clears the descriptor when nothing is left to poll

  // ---- control::Observer: engine_control.cc ----
  void session_up(control::SessionId session, const control::PeerInfo& peer) override;
  void session_down(control::SessionId session, const Status& reason) override;
  void message(control::SessionId session, std::span<const std::byte> bytes) override;
  void connect_done(std::uint64_t token, Result<control::SessionId> session) override;
  void resolve_done(std::uint64_t token, Result<std::string> address) override;
  control::Progress progress() override;
  void beat(control::SessionId session, std::uint64_t steps, Time now) override;
  control::Control& control_now();
  void tell(control::SessionId session, const std::vector<std::byte>& bytes);  // any thread
  void drop(control::SessionId session, const Status& reason);                 // any thread: ends it for that reason
  void answer_lookup(control::SessionId session, std::uint64_t token, const std::string& name);

  // ---- engine_transfers.cc ----
  transport::MemoryPlace place_of(const void* address, MemoryKind said) const;
  Status check(const Request& request) const;
  Result<TransferId> submit_one(const Request& request);

  // ---- engine_mappings.cc ----
  Result<Mapping> map_by(Timeout timeout, const std::function<Status(transport::Reach&, Mapping&, Status&)>& ask);

  // ---- engine_observe.cc ----
  void look_at_machine(PeerId id, Explanation& out);

  engine::Worker& worker_of(std::uint32_t peer_slot) { return *workers[peer_slot % workers.size()]; }
  // `command` on the worker that owns the peer; peer_dead or stale_incarnation when there is none.
  Status with_peer(PeerId id, const std::function<void(engine::Worker&, engine::Peer&)>& command);
  Result<std::vector<std::byte>> describe(RegionId id);

  const std::shared_ptr<void> runtime_owner;  // first, so that it goes last
  const EngineOptions options;
  Runtime& runtime;
  transport::RegionTable regions;
  transport::RegionTable remotes;
  engine::TransferTable transfers;
  engine::PeerTable peers;
  engine::PeerEvents peer_events{peers};
  engine::CompletionQueue completions;
  engine::NotificationQueue notifications;
  engine::CounterTable counters;
  engine::MachineLook machine;
  std::atomic_flag device_atomics;
  engine::Mappings mappings;
  engine::Services services;
  std::vector<std::unique_ptr<engine::Worker>> workers;
  std::vector<std::unique_ptr<Task>> tasks;
  std::unique_ptr<Signal> signal;
  std::unique_ptr<control::Control> control;
  std::atomic<control::Control*> control_{nullptr};  // the same, for control's and the workers' threads
  std::atomic<std::uint32_t> notices{0};
  std::atomic<std::uint64_t> back_pressure{0};
  std::atomic<std::uint64_t> next_token{1};
  std::atomic<bool> stepping{false};          // Progress::caller: somebody steps the workers
  mutable std::atomic<bool> fd_given{false};  // fd() was called: somebody may sleep where we do not see it

  // Notifications polled per peer slot: generation << 32 | count. A generation of 0: the peer is gone.
  std::unique_ptr<std::atomic<std::uint64_t>[]> consumed;

  struct LocalRegion {
    Region region;
    std::vector<engine::TransportKeys> keys;
    sys::MemoryFile memory;  // of allocate()
    sys::Fd file;            // of memory that came with a descriptor
  };
  struct Pending {  // a call that waits for control
    bool done = false;
    Status status;
    control::SessionId session = 0;
    std::string address;
    std::vector<std::byte> description;
  };
  struct Asked {  // a peer's lookup of a name that is not published yet
    control::SessionId session = 0;
    std::uint64_t token = 0;
    std::string name;
  };
  static constexpr std::size_t kMaxAsked = 4096;
  std::mutex mutex;  // guards the maps below; no call to another layer is made under it
  std::map<std::uint32_t, LocalRegion> local_regions;  // by slot
  std::map<std::string, RegionId, std::less<>> published;
  std::map<std::uint64_t, Pending> pending;  // by token
  std::vector<Asked> asked;
  std::map<control::SessionId, Status> turned_away;  // sessions that found no place in `peers`, for their connect()
  static constexpr std::size_t kMaxTurnedAway = 64;

 private:
  std::atomic<bool> closed_{false};
  std::atomic<bool> stopped_{false};  // no worker steps any more
  bool work_left_ = false;            // by the last drive(); belongs to who has `stepping`
  Time next_timer_ = kNever;          // as work_left_
  std::atomic<bool> sleeps_in_turn_{false};
  std::atomic<Time> polled_{0};          // the last drive()
  std::atomic<std::uint32_t> polls_{0};  // of `poller_`, one after the other without a pause
  std::atomic<std::thread::id> poller_{};
};

}  // namespace fairway
