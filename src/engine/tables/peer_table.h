#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fairway/engine.h"
#include "fairway/ids.h"
#include "fairway/status.h"

#include "control/control.h"

namespace fairway::engine {

// Peers as the callers of the API see them. Slots are given by the control thread, read without a lock when submitting.
class PeerTable {
 public:
  enum class State : std::uint32_t { free, opening, ready, down };
  struct Info {
    PeerId id;
    State state = State::free;
    control::SessionId session = 0;
    control::PeerInfo peer;
    Status reason;  // down; or, while opening, why no link came up
  };

  explicit PeerTable(std::uint32_t capacity);
  // Control thread. resource_exhausted when all slots hold living peers.
  Result<PeerId> add(control::SessionId session, const control::PeerInfo& peer);
  void set_ready(PeerId id);                       // its worker
  void set_settled(PeerId id, Status no_link);     // its worker: every attempt to link ended, without a link
  bool set_down(PeerId id, const Status& reason);  // any thread: refused from now on. False: it was
  void set_at_once(PeerId id);                     // its worker: a link came up that may complete within a call
  void free(PeerId id);                            // its worker, after its last use of the slot

  // Any thread, lock-free: ok, stale_incarnation or not_found, peer_dead.
  [[nodiscard]] bool is_usable(PeerId id) const {
    if (id.slot >= capacity_ || !id) return false;
    const std::uint64_t word = slots_[id.slot].word.load(std::memory_order_acquire);
    return word == pack(id.generation, State::ready) || word == pack(id.generation, State::opening);
  }
  // Whether to try to complete a request within its call. A hint: asking the worker for its place costs microseconds.
  [[nodiscard]] bool at_once(PeerId id) const {
    return id.slot < capacity_ && slots_[id.slot].at_once.load(std::memory_order_relaxed);
  }
  // The error for an id that is not usable: of a call that is refused, and of a transfer that had been accepted. They
  // differ where the engine itself closes: the call gets `closed`, the transfer `cancelled`.
  [[nodiscard]] Status why_not(PeerId id) const;
  [[nodiscard]] Status why_ended(PeerId id) const;
  [[nodiscard]] std::optional<Info> find(PeerId id) const;
  [[nodiscard]] std::optional<Info> find_session(control::SessionId session) const;
  [[nodiscard]] std::string name_at(std::uint32_t slot) const;  // of who has the slot, or had it last
  [[nodiscard]] std::vector<Info> all() const;
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  // Grows with every change of a state; waiters of connect() sleep on it.
  std::atomic<std::uint32_t> changes{0};

 private:
  struct Slot {
    std::atomic<std::uint64_t> word{0};  // generation << 8 | State
    std::atomic<bool> at_once{false};
    Info info;  // guarded by mutex_
  };
  static constexpr std::uint64_t pack(std::uint32_t generation, State state) {
    return std::uint64_t{generation} << 8 | static_cast<std::uint64_t>(state);
  }
  void set_state(Slot& slot, State state);

  std::uint32_t capacity_;
  std::unique_ptr<Slot[]> slots_;
  mutable std::mutex mutex_;        // guards each Slot's info, and what follows
  std::deque<std::uint32_t> free_;  // oldest first, so that a peer's last words stay readable for long
  std::unordered_map<control::SessionId, std::uint32_t> by_session_;  // slots whose info is of that session
};

// The queue of peer events; bounded, for cold paths. If nobody polls, the oldest are dropped and counted. `up` of a
// peer that came back is held until the `down` of its last session was reported, since control's thread reports the one
// and a worker the other.
class PeerEvents {
 public:
  explicit PeerEvents(const PeerTable& peers) : peers_(peers) {}
  void push(PeerEvent event);
  std::size_t pop(std::span<PeerEvent> events);
  [[nodiscard]] bool empty() const { return waiting_.load(std::memory_order_seq_cst) == 0; }

 private:
  static constexpr std::size_t kCapacity = 1024;
  [[nodiscard]] bool waits(const PeerEvent& event) const;
  void tell(PeerEvent event);

  const PeerTable& peers_;
  std::mutex mutex_;            // guards the next four
  std::deque<PeerEvent> held_;  // an `up` that waits, and what is said of the same peer
  std::deque<PeerEvent> events_;
  std::vector<std::pair<PeerId, std::string>> up_;  // told to be up, and not yet to be down
  std::uint64_t dropped_ = 0;
  std::atomic<std::size_t> waiting_{0};  // events_.size(), for those who only want to know whether
};

}  // namespace fairway::engine
