#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/gates.h"
#include "core/queues.h"
#include "engine/expectation.h"
#include "engine/links/proof.h"
#include "engine/peer.h"
#include "engine/peer_schedule.h"
#include "engine/region_removals.h"
#include "engine/staging/staging.h"
#include "engine/tables/engine_tables.h"
#include "engine/tables/worker_tables.h"
#include "engine/waiting.h"
#include "transport/gpu_access.h"
#include "transport/transport.h"

namespace fairway::engine {

class Worker;

class Workers;

// The sessions with peers, as their workers use them. Any thread.
class SessionControl {
 public:
  virtual void tell(control::SessionId session, const std::vector<std::byte>& bytes) = 0;  // a message, or drops it
  virtual void drop(control::SessionId session, const Status& reason) = 0;                 // ends it for that reason

 protected:
  ~SessionControl() = default;
};

// What explain() needs of a transfer after its end; kept for the last ones of a worker.
struct History {
  static constexpr std::size_t kSize = 1024;
  TransferId id;
  Operation operation = Operation::write;
  PeerId peer;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t links_used = 0;
  std::uint32_t retried = 0;
  Method method = Method::none;
  Time submitted = 0;
  Time ended = 0;
  Status status;
  Place place = kNoPlace, far_place = kNoPlace;
};

// The names of the links of a peer that is gone, by their numbers: what transfers to it used. Kept for the last ones.
struct GoneLinks {
  static constexpr std::size_t kPeers = 16;
  PeerId peer;
  std::vector<std::string> names;
};

// Owns some of the engine's peers and moves their bytes. All of its work happens in step(), which runs on an executor's
// thread, or on the caller's with Progress::caller. Everything but the members marked "any thread" belongs to the
// thread that runs step().
class Worker final : public Stepper, public TransferOwner, private WorkerContext {
 public:
  // Everything given outlives it. `all`: of its engine.
  Worker(std::uint16_t index, EngineTables& engine, const Workers& all, Waiting& waiting, SessionControl& sessions,
         MachineDiscovery& machine, WorkerTables::Transports transports);
  ~Worker() override;

  // ---- any thread ----
  // A transfer, ready to start; with AnyReceives::kMark a receive of any peer.
  void submit(std::uint32_t slot);
  void post(std::function<void(Worker&)> command);  // to run on the owner; cold paths only
  // Runs `command` on the owner and waits until it has run; at once when called by the owner itself.
  void call(const std::function<void(Worker&)>& command);
  void set_task(std::unique_ptr<Task> task) { task_ = std::move(task); }  // before the first step
  void wake() { task_->wake(); }
  void end_task() { task_->end(); }
  // Every peer down, every transport closed. From the end of that step on commands run on their caller's thread.
  void close();
  Status untouched();  // once it is closed; not_fenced: by what the engine's memory may still be touched
  [[nodiscard]] bool stepped_here() const {  // by this thread, which is in a callback
    return stepping_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  [[nodiscard]] std::uint16_t index() const { return index_; }
  [[nodiscard]] std::span<const std::unique_ptr<transport::Transport>> transports() const { return tables_.transports; }
  [[nodiscard]] control::Progress progress() const;

  // Progress::threads: runs `act` in the owner's place, between two steps, if that comes within a microsecond or two.
  // False: it did not run. Any thread; not for what takes longer than a step may.
  template <class Act>
  bool in_its_place(const Act& act) {
    if (stepped_here()) return false;
    for (int tries = 0; !word_.visit(); ++tries)
      if (tries == kTriesToVisit) return false;
    const Visit visit{word_};  // also where `act` throws
    act();
    return true;
  }

  // ---- the owner, or who is in its place ----
  [[nodiscard]] bool is_closed() const { return closed_.load(std::memory_order_relaxed); }
  // A small request that is complete on return (ShortPath), if nothing is in its way; else an empty id, and nothing was
  // done. `queue`: in which it has a place, if it names one.
  TransferId complete_now(PeerId peer, Operation operation, const Extent& extent, const RequestOptions& options,
                          NamedQueue* queue);
  // Starts a send or receive that was just accepted; a small send is handed over, and complete if it asked for no more.
  // So does it a small write or read, which the next step posts. False: nothing was done, submit() it.
  bool start_now(std::uint32_t slot);

  // ---- the owner ----
  Time step(Time now) override;
  void slept(Time now) {  // since the last step, on purpose: the caller was not away
    if (!is_closed()) now_ = now;
  }
  bool prepare_sleep() override;

  void when_ended(TransferId id, std::function<void(bool ok)> answer);  // at once when it has, or was never

  void add_peer(PeerId id, control::SessionId session, const control::PeerInfo& info);
  // Its session has ended. `told` runs once everything that it had taken has completed, and the rest has failed.
  void peer_down(PeerId id, const Status& reason, std::function<void()> told);
  void acknowledge();  // sends what transports hold back of their acknowledgements: before a goodbye
  Peer* peer(std::uint32_t slot) { return slot < peers_.size() ? peers_[slot].get() : nullptr; }
  Peer* peer_of(PeerId id) {
    Peer* const found = peer(id.slot);
    return found != nullptr && found->id() == id ? found : nullptr;
  }
  void stop(TransferId id, const Status& why, std::shared_ptr<CancelTicket> ticket);
  void force_stop(TransferId id);

  // ---- receives of any peer (worker_any.cc) ----
  AnyWaiting& any() { return any_; }
  void took_any();    // this worker has taken one: the others forget it
  void forget_any();  // those that other workers have taken

  // ---- regions ----
  LocalRegions& locals() { return tables_.locals; }
  RemoteRegions& remotes() { return tables_.remotes; }
  RegionRemovals& removals() { return removals_; }
  ScratchMemory& scratch() { return scratch_; }
  void stop_users_of(RegionId id);  // of the memory as the local side
  // `done` runs on the owner once nothing of this worker touches the region. Any peer may use a program's; a lease's
  // and a message's window are known to one, without transfers of their own. A window's is asked for until it is gone.
  enum class RegionOf : std::uint8_t { program, lease, window };
  void remove_region(RegionId id, RegionOf what, std::function<void(Status)> done);
  [[nodiscard]] std::string holders_of(RegionId id);  // who keeps a removal waiting
  // For kernels of that GPU of this process (worker_regions.cc); a peer's, and this engine's own.
  transport::Reach map(Peer& peer, RemoteRegionId id, int gpu, Mapping& out, Status& why);
  transport::Reach map(RegionId id, int gpu, Mapping& out, Status& why);
  void unmap(const Mappings::Entry& entry);
  [[nodiscard]] std::optional<History> history(TransferId id) const;  // of one that has ended
  [[nodiscard]] const GoneLinks* links_of_gone(PeerId id) const;      // null: too long ago, or not gone
  [[nodiscard]] std::optional<History> in_flight(TransferId id);
  [[nodiscard]] std::optional<Probed> first_message(std::uint64_t tag) const;  // of any peer, that waits for a receive
  void collect(Metrics& out) const;  // any thread, at any time: it reads gauges

  // For Peer.
  [[nodiscard]] Time now() const { return now_; }
  EngineTables& engine() { return engine_; }
  WorkerTables& tables() { return tables_; }
  SessionControl& sessions() { return sessions_; }
  MachineDiscovery& machine() { return machine_; }
  std::uint16_t transport_index(std::string_view name) const;  // kNoTransport when there is none
  static constexpr std::uint16_t kNoTransport = 0xffff;
  GpuRates& gpus() { return gpus_; }
  void machine_known();  // the look at it has ended
  Staging& staging() { return staging_; }
  [[nodiscard]] std::uint32_t record_bytes() const;  // that every device carrying records takes in a message
  void link_at(std::uint16_t transport, transport::LinkId id, Peer& peer, std::uint8_t link);
  void wake_at(std::uint32_t peer, Time time) { timers_.at_latest(peer, time); }
  void ready(std::uint32_t peer) { ready_.add(peer); }  // it has something to post
  void again() override { busy_ = true; }
  // Something for the user came. With Progress::caller who waits is told once, at the end of the step, which mostly was
  // made by the one who waits.
  void notice() { visited_ ? waiting_.notice() : void(untold_ = true); }
  // ---- TransferOwner ----
  bool wait_for(TransferId after, std::uint32_t slot, bool& failed) override;
  void no_longer_waits(std::uint32_t slot) override;
  void ended(std::uint32_t slot) override;
  Slice signal_word(std::uint32_t slot, std::uint64_t value) override;

 private:
  struct LinkRef {
    std::uint32_t peer = kNoSlot;
    std::uint8_t link = 0;
    std::uint32_t epoch = 0;
  };
  struct Departure {  // of a peer whose session has ended
    PeerId peer;
    Status reason;
    std::function<void()> told;
    Time until = 0;  // when it is down at the latest
  };

  struct Visit {
    OwnerWord& word;
    ~Visit() { word.leave(); }
  };

  static constexpr int kTriesToVisit = 256;
  static constexpr std::uint32_t kTimed = 16;  // one of so many that start_now() starts reads the clock

  void shut();
  void deliver() {
    if (!finished_.empty()) deliver_all();
    tell();
  }
  void deliver_all();
  void deliver(std::uint32_t slot, bool& completed);  // `completed`: some for poll() wait there, and nobody was told
  void deliver_to(NamedQueue& queue, std::uint32_t slot) {
    queue.push(slot);
    engine_.runtime.executor.wake_all(queue.told());
  }
  void tell() {
    if (std::exchange(untold_, false)) waiting_.notice();
  }
  void note_end(Transfer& transfer);
  void note_ends() {  // of transfers whose ends are stored: to who waits for several
    if (engine_.transfers.ends().noted()) engine_.runtime.executor.wake_all(engine_.transfers.ends().word());
  }
  void answer_cancels(std::shared_ptr<CancelTicket> ticket, Cancelled::Far far_side);
  void deliver_cancelled(std::uint32_t slot, bool& completed);
  [[nodiscard]] Cancelled::Far far_side_of_ended(TransferId id) const;
  bool take_commands();
  void run_closed();
  void stay_closed();
  void take_all_submissions() {
    while (take_submissions()) {
    }
  }
  bool take_submissions();
  // worker_any.cc
  [[nodiscard]] bool is_home() const { return &owner_of(kNoSlot) == this; }
  [[nodiscard]] Worker& owner_of(std::uint32_t peer_slot) const;
  [[nodiscard]] Worker* elsewhere(TransferId id);  // who has it; null: this worker, or nobody
  bool stop_any(TransferId id, const Status& why, std::shared_ptr<CancelTicket>& ticket);  // false: it is none
  void take_any(std::uint32_t index);
  void end_any(std::uint32_t slot, const Status& status);
  void end_all_any(const Status& status);
  void end_late_any();
  bool poll_transports();
  void drain_transports();
  bool pump_peers();
  bool run_timers();
  void on_untaken(std::uint32_t token) override;
  void let_go();
  void end(Peer& peer, const Status& reason);
  void handle(std::uint16_t transport, const transport::Event& event);
  void handle_rare(std::uint16_t transport, const transport::Event& event);  // that no transfer waits for
  // Whose current epoch that is; kNoSlot: of no link that is known.
  [[nodiscard]] LinkRef link_of(std::uint16_t transport, transport::LinkId id) const {
    const auto& links = links_[transport];
    if (id.slot >= links.size()) return {};
    const LinkRef ref = links[id.slot];
    return ref.peer == kNoSlot || ref.epoch != id.epoch || peers_[ref.peer] == nullptr ? LinkRef() : ref;
  }
  Peer* peer_by_index(transport::PeerIndex index);
  void reap_peers();
  Mapping keep(const transport::GpuAccess::View& view, std::uint16_t transport, int gpu, PeerId peer, std::string name);
  void mapping_ended(std::uint16_t transport, const transport::Event& event);
  void add_viewers_of(RegionId id, std::string& names) const;

  const std::uint16_t index_;
  EngineTables& engine_;
  const Workers& all_;
  Waiting& waiting_;
  SessionControl& sessions_;
  MachineDiscovery& machine_;
  WorkerTables tables_;
  std::unique_ptr<Task> task_;  // kept to the end: a caller's wake() may come later than close()

  // Taken for each step where others may come between, which is with Progress::threads: with Progress::caller all who
  // touch the worker take turns anyway (Waiting).
  OwnerWord word_;
  const bool visited_;
  bool kept_out_ = false;  // a visitor was there when it was to step; the owner's

  MpscQueue<std::uint32_t> submissions_;
  AnyWaiting any_;
  Time any_deadline_ = kNever;                          // of those in any_, if this is their home
  std::mutex commands_mutex_;                           // guards commands_, runs_closed_ and the writing of closed_
  std::vector<std::function<void(Worker&)>> commands_;  // guarded by commands_mutex_
  bool runs_closed_ = false;                            // guarded by commands_mutex_: a thread is in run_closed()
  std::atomic<bool> has_commands_{false};
  std::atomic<std::thread::id> stepping_{};  // the thread that is inside step()
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<bool> queued_{false};

  Time now_ = 0;
  bool busy_ = false;
  Status unfenced_;                  // the last epoch of a link that could not be ended; written before closed_
  std::mutex untouched_mutex_;       // guards what transports are asked once they are closed
  bool shut_ = false;                // shut() has run: no peer is left, no transport is open
  std::atomic<bool> closed_{false};  // no step any more; written under commands_mutex_, at the end of the last step
  std::vector<transport::Event> events_;

  mutable std::mutex shape_;  // guards which peers there are, against collect(): taken where that changes
  std::vector<std::unique_ptr<Peer>> peers_;  // by slot
  std::vector<std::uint32_t> live_;           // slots in use
  std::vector<Departure> departures_;         // of peers that are not down yet
  std::vector<std::uint32_t> leaving_;        // slots of peers that are down
  ReadyList ready_;
  TimerHeap timers_;
  std::vector<std::uint32_t> due_;  // whose timers run now
  std::unordered_map<transport::PeerIndex, std::uint32_t> peer_by_index_;
  transport::PeerIndex next_peer_index_ = 1;
  std::vector<std::vector<LinkRef>> links_;  // by transport, by the transport's link slot

  RegionRemovals removals_;
  ScratchMemory scratch_;
  GpuRates gpus_;
  OwnMemory signals_;  // a word for each transfer, whence it is written to a device's memory

  Staging staging_;

  std::vector<std::pair<std::uint32_t, bool>> released_;  // transfers whose `after` has ended, and whether it was ok
  bool releasing_ = false;
  bool untold_ = false;                  // something for the user is there, and nobody was told yet
  AtOnceTable<>& at_once_;               // this worker's
  std::vector<std::uint32_t> finished_;  // transfers to deliver
  std::vector<std::uint32_t> delivering_;
  // Transfers of other workers' peers that wait for one of ours.
  std::vector<std::pair<TransferId, std::function<void(bool ok)>>> foreign_;
  std::uint32_t started_now_ = 0;
  std::vector<History> history_;
  std::size_t history_next_ = 0;
  std::deque<GoneLinks> gone_;  // the oldest first
};

}  // namespace fairway::engine
