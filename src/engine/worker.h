#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/mpsc_queue.h"
#include "engine/local_regions.h"
#include "engine/machine_look.h"
#include "engine/mappings.h"
#include "engine/notify.h"
#include "engine/peer.h"
#include "engine/peer_events.h"
#include "engine/peer_table.h"
#include "engine/polled_queue.h"
#include "engine/ready_list.h"
#include "engine/region_removals.h"
#include "engine/remote_regions.h"
#include "engine/scratch_memory.h"
#include "engine/staging.h"
#include "engine/timer_heap.h"
#include "transport/gpu_access.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::engine {

class Worker;

// What workers use of their engine. All members outlive the workers; each is safe for any thread.
struct Services {
  const EngineOptions& options;
  Runtime& runtime;
  transport::RegionTable& regions;
  transport::RegionTable& remotes;  // bounds of imported regions; their address is null
  TransferTable& transfers;
  PeerTable& peers;
  PeerEvents& peer_events;
  CompletionQueue& completions;
  NotificationQueue& notifications;
  CounterTable& counters;
  std::function<void()> notice;                                          // something for the user: wake the waiters
  std::function<void(control::SessionId, std::vector<std::byte>)> tell;  // a control message
  std::function<void(control::SessionId, Status)> drop;                  // ends a session that broke the protocol
  // Sleeps while `word` holds `seen`, as a caller of the engine does.
  std::function<void(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline)> wait;
  std::function<std::uint64_t(PeerId)> close_credits;  // of a peer that is gone: how many were polled
  std::function<Worker&(std::uint32_t)> worker_of;     // the owner of a peer's slot
  MachineLook& machine;
  std::atomic_flag& device_atomics;  // held by the worker that executes one on a device's memory
  Mappings& mappings;
};

// What outlives a transfer for explain(): the last ones of a worker.
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

// Owns some of the engine's peers and moves their bytes. step() is its whole life; it runs on an executor's thread, or
// on the caller's with Progress::caller. Everything but the members marked "any thread" belongs to whoever runs step().
class Worker final : public Stepper {
 public:
  Worker(std::uint16_t index, Services& services, std::vector<std::unique_ptr<transport::Transport>> transports);
  ~Worker() override;

  // ---- any thread ----
  void submit(std::uint32_t slot);                  // a transfer, ready to start
  void post(std::function<void(Worker&)> command);  // to run on the owner; cold paths only
  // Runs `command` on the owner and waits until it has run; at once when called by the owner itself.
  void call(const std::function<void(Worker&)>& command);
  void set_task(Task* task) { task_ = task; }  // before the first step
  void wake() { task_->wake(); }
  void close();  // every peer down, every transport closed; later commands run on their caller's thread
  [[nodiscard]] std::uint16_t index() const { return index_; }
  [[nodiscard]] std::span<const std::unique_ptr<transport::Transport>> transports() const { return transports_; }
  [[nodiscard]] control::Progress progress() const;

  // ---- the owner ----
  Time step(Time now) override;
  void slept(Time now) { now_ = now; }  // since the last step, on purpose: the caller was not away
  bool prepare_sleep() override;

  void when_ended(TransferId id, std::function<void(bool ok)> answer);  // at once when it has, or was never

  void add_peer(PeerId id, control::SessionId session, const control::PeerInfo& info);
  void peer_down(PeerId id, const Status& reason);
  void acknowledge();  // sends what transports hold back of their acknowledgements: before a goodbye
  Peer* peer(std::uint32_t slot);
  Peer* peer_of(PeerId id);
  void stop(TransferId id, const Status& why, std::shared_ptr<CancelTicket> ticket);
  void force_stop(TransferId id);

  // ---- regions ----
  LocalRegions& locals() { return locals_; }
  RemoteRegions& remotes() { return remotes_; }
  RegionRemovals& removals() { return removals_; }
  ScratchMemory& scratch() { return scratch_; }
  void stop_users_of(RegionId id);  // of the memory as the local side
  // `done` runs on the owner once nothing of this worker touches the region. `window_of`: it is a message's window,
  // known to that peer alone. Null: any peer may use it.
  void remove_region(RegionId id, Peer* window_of, std::function<void(Status)> done);
  [[nodiscard]] std::string holders_of(RegionId id);  // who keeps a removal waiting
  // For kernels of that GPU of this process (worker_mappings.cc); a peer's, and this engine's own.
  transport::Reach map(Peer& peer, RemoteRegionId id, int gpu, Mapping& out, Status& why);
  transport::Reach map(RegionId id, int gpu, Mapping& out, Status& why);
  void unmap(const Mappings::Entry& entry);
  [[nodiscard]] std::optional<History> history(TransferId id) const;  // of one that has ended
  [[nodiscard]] std::optional<History> in_flight(TransferId id);
  void collect(Metrics& out) const;

  // For Peer.
  [[nodiscard]] Time now() const { return now_; }
  Services& services() { return services_; }
  SliceTable& slices() { return slices_; }
  RecordPool& records() { return records_; }
  transport::Transport& transport_at(std::uint16_t index) { return *transports_[index]; }
  const transport::Device& device_of(const Link& link) const {
    return transports_[link.transport]->devices()[link.device];
  }
  std::uint16_t transport_index(std::string_view name) const;  // kNoTransport when there is none
  static constexpr std::uint16_t kNoTransport = 0xffff;
  void stage(std::uint16_t transport, const transport::Slice& slice);  // posted at the end of the turn, or when full
  [[nodiscard]] Place place_of(RegionId id) { return locals_.place_of(id, services_.machine.found()); }
  [[nodiscard]] Place place_of(RemoteRegionId id) { return remotes_.place_of(id, services_.machine.found()); }
  void machine_known();                        // the look at it has ended
  double least_between(Place from, Place to);  // by a GPU's engines, bytes per second; 0: no figure
  Staging& staging() { return staging_; }
  [[nodiscard]] std::uint32_t record_bytes() const;            // that every device carrying records takes in a message
  Slice signal_word(std::uint32_t slot, std::uint64_t value);  // of that transfer's own, holding the value
  void link_at(std::uint16_t transport, transport::LinkId id, Peer& peer, std::uint8_t link);
  void wake_at(std::uint32_t peer, Time time) { timers_.at_latest(peer, time); }
  void ready(std::uint32_t peer) { ready_.add(peer); }  // it has something to post
  void again() { busy_ = true; }                        // this step left work
  void completed(std::uint32_t slot);                   // its completion is filled: delivered at the end of the step
  void ended(Transfer& transfer);                       // tell dependents
  // Starts `slot` by dependency_ended() once `after` has ended. False: it has, and `failed` says how.
  bool wait_for(TransferId after, std::uint32_t slot, bool& failed);
  void no_longer_waits(std::uint32_t slot);  // it ended while it waited

 private:
  struct LinkRef {
    std::uint32_t peer = kNoSlot;
    std::uint8_t link = 0;
    std::uint32_t epoch = 0;
  };
  struct Outbox {
    static constexpr std::size_t kCapacity = 64;
    std::array<transport::Slice, kCapacity> slices;
    std::size_t count = 0;
  };

  void shut();
  void deliver();
  void deliver(std::uint32_t slot);
  void answer_cancels(Transfer& transfer, Cancelled::Far far_side);
  bool take_commands();
  bool take_submissions();
  bool poll_transports();
  void drain_transports();
  bool pump_peers();
  bool run_timers();
  void end(Peer& peer, const Status& reason);
  void flush(std::uint16_t transport);
  void handle(std::uint16_t transport, const transport::Event& event);
  Peer* peer_by_index(transport::PeerIndex index);
  void reap_peers();
  Mapping keep(const transport::GpuAccess::View& view, std::uint16_t transport, int gpu, PeerId peer, std::string name);
  void mapping_ended(std::uint16_t transport, const transport::Event& event);
  void add_viewers_of(RegionId id, std::string& names) const;

  const std::uint16_t index_;
  Services& services_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  Task* task_ = nullptr;

  MpscQueue<std::uint32_t> submissions_;
  std::mutex commands_mutex_;                           // guards commands_ and the writing of closed_
  std::mutex closed_mutex_;                             // guards the worker itself, once no task runs it
  std::vector<std::function<void(Worker&)>> commands_;  // guarded by commands_mutex_
  std::atomic<bool> has_commands_{false};
  std::atomic<std::thread::id> stepping_{};  // the thread that is inside step()
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<bool> queued_{false};

  Time now_ = 0;
  bool busy_ = false;
  std::atomic<bool> closed_{false};  // written under commands_mutex_
  SliceTable slices_;
  RecordPool records_;
  std::vector<Outbox> outboxes_;
  std::vector<transport::Event> events_;
  std::vector<std::function<void(Worker&)>> running_commands_;

  std::vector<std::unique_ptr<Peer>> peers_;  // by slot
  std::vector<std::uint32_t> live_;           // slots in use
  std::vector<std::uint32_t> leaving_;        // of those, whose sessions have ended
  ReadyList ready_;
  TimerHeap timers_;
  std::vector<std::uint32_t> due_;  // whose timers run now
  std::unordered_map<transport::PeerIndex, std::uint32_t> peer_by_index_;
  transport::PeerIndex next_peer_index_ = 1;
  std::vector<std::vector<LinkRef>> links_;  // by transport, by the transport's link slot

  LocalRegions locals_;
  RemoteRegions remotes_;
  RegionRemovals removals_;
  ScratchMemory scratch_;
  std::vector<std::pair<std::pair<Place, Place>, double>> leasts_;  // least_between(), of pairs asked for so far
  OwnMemory signals_;  // a word for each transfer, whence it is written to a device's memory

  Staging staging_;

  std::vector<std::pair<std::uint32_t, bool>> released_;  // transfers whose `after` has ended, and whether it was ok
  bool releasing_ = false;
  std::vector<std::uint32_t> finished_;  // transfers to deliver
  std::vector<std::uint32_t> delivering_;
  // Transfers of other workers' peers that wait for one of ours.
  std::vector<std::pair<TransferId, std::function<void(bool ok)>>> foreign_;
  std::vector<History> history_;
  std::size_t history_next_ = 0;
};

}  // namespace fairway::engine
