#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "fairway/engine.h"
#include "fairway/request.h"

#include "core/slot_pool.h"
#include "core/time.h"
#include "engine/expectation.h"
#include "engine/tables/completions.h"
#include "engine/tables/route.h"

namespace fairway::engine {

inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
inline constexpr std::uint32_t kChunks = 16;              // staged ones of a worker at once, over all its transfers
inline constexpr std::uint32_t kAllChunks = 2 * kChunks;  // with those of chunks whose own transfer has to be staged

// Where a transfer stands. Owner of the transfer at each stage: the submitter until `waiting`, the peer's worker until
// `done`, then whoever collects the completion.
enum class Phase : std::uint8_t {
  submitted,  // in the worker's queue
  waiting,    // for the transfer in `after`
  queued,     // for its turn, room on a link, or a credit
  moving,     // slices are in flight
  flushing,   // all slices done; asking the target to make them visible
  verifying,  // comparing checksums
  notifying,  // the notification is on its way
  matching,   // a send or receive that waits for its other half
  draining,   // failed or cancelled; slices in flight must end first
  done,
};

// What a cancel() call waits for; shared by the caller and the transfer.
struct CancelTicket {
  std::atomic<std::uint32_t> word{0};  // 1: decided
  Cancelled result;
  std::shared_ptr<CancelTicket> next;  // of another call for the same transfer; the worker's
};

// Which of the transfers that one slot had have failed, by generation: exact for the last one that did and the
// kBefore generations before it. If two further apart have failed, those before the window count as failed, since
// nobody can tell. One writes, by turns with who has the slot; any worker reads.
class Failures {
 public:
  void add(std::uint32_t generation) {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    const std::uint64_t old = word & kWindow;
    const std::uint32_t by = word == 0 ? 0 : (generation - newest(word)) & kGenerations;
    const std::uint64_t moved = by > kBefore ? 0 : old << by & kWindow;
    const bool lost = (word & kOlder) != 0 || (by > kBefore ? old != 0 : by > 0 && old >> (kBefore + 1 - by) != 0);
    word_.store(std::uint64_t{generation} << kShift | (lost ? kOlder : 0) | moved | 1, std::memory_order_relaxed);
  }
  // Of a generation that has ended.
  [[nodiscard]] bool has(std::uint32_t generation) const {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    if (word == 0) return false;
    const std::uint32_t by = (newest(word) - generation) & kGenerations;
    if (by > kGenerations / 2) return false;  // after the last one that failed
    return by > kBefore ? (word & kOlder) != 0 : (word >> by & 1) != 0;
  }

 private:
  static constexpr std::uint32_t kShift = 34, kBefore = 32;
  static constexpr std::uint32_t kGenerations = (1u << 30) - 1;
  static constexpr std::uint64_t kWindow = (std::uint64_t{1} << (kBefore + 1)) - 1;  // bit i: i before the newest
  static constexpr std::uint64_t kOlder = std::uint64_t{1} << (kBefore + 1);
  static std::uint32_t newest(std::uint64_t word) { return static_cast<std::uint32_t>(word >> kShift); }

  std::atomic<std::uint64_t> word_{0};  // the newest that failed | whether one before the window has | the window
};

// The rendezvous half of a send or receive.
struct Rendezvous {
  TransferId other;               // the peer's transfer, once known
  bool announced = false;         // send: the peer knows of it; receive: the peer was told where to write
  std::uint32_t cost = 0;         // send: of the peer's room for unexpected messages
  RegionId window;                // receive: what the peer may write to, revoked when it is done
  std::byte* gathered = nullptr;  // receive into several pieces: where its window is
  RemoteRegionId remote_window;   // send: the same, imported
  std::uint64_t length = 0;       // receive: of the message
  std::uint64_t place = 0;        // receive: behind so many receives of any peer
  std::uint32_t number = 0;       // send: of the record that its bytes' immediate names; receive: of its receive_posted
  bool told = false;              // receive: the peer may write to the window before anything is matched
  bool direct = false;            // send: into such a window
  bool gone = false;   // send: its window is revoked; it waits for another receive, or for why this one ended
  bool signs = false;  // send: its bytes' immediate says that they came
  bool ended = false;  // of what overtook: send: the receive is complete; receive: the bytes came
  ErrorCode aborted = ErrorCode::ok;  // receive: of what overtook: the send ended
  TransferId next;                    // send: another receive, once the bytes are no longer on their way to the first
  RemoteRegionId next_window;         // likewise
};

// One accepted transfer. Lives in a slot of the TransferTable; nothing in it is allocated per transfer.
struct Transfer {
  // generation << 2 | Stage: what waiters sleep on and what makes a TransferId current.
  std::atomic<std::uint32_t> word{0};

  std::atomic<std::uint32_t> peer{0};           // slot; other workers read it for `after`
  Failures failures;                            // of all transfers that this slot had
  std::atomic<Effect> effect{Effect::unknown};  // of the last of them that failed
  // As the request says, for callers that know the id alone: of the slot's latest transfer.
  std::atomic<bool> receives{false};
  std::atomic<Deliver> delivery{Deliver::to_wait};

  Request request;
  std::vector<Extent> pieces;                        // of a send of several, once they have a window to go to
  std::array<std::byte, kMaxNotifyMessage> message;  // the notification's, copied at submission
  std::uint32_t message_bytes = 0;
  std::uint64_t total = 0;  // bytes to move
  std::uint64_t blocks = 0;
  Time submitted = 0;
  bool timed = true;  // false: it was between that and the worker's next step
  Time deadline = kNever;

  // The worker's.
  Phase phase = Phase::submitted;
  bool signals = false;  // its bytes are there; a word in a device's memory is being written
  bool credit_taken = false;
  bool immediate_sent = false;  // the notification rides on the slice
  Cursor cursor;
  Cursor checked;  // how far the checksum has come
  Route route;
  std::uint64_t route_version = 0;
  std::uint8_t memory_kinds = 0;                 // a bit by MemoryKind, of both sides; with the route
  Place place = kNoPlace, far_place = kNoPlace;  // of its first block's memory
  bool paced = false;                            // long enough to hold its links to their rates
  std::uint32_t pieces_out = 0;                  // in flight or parked
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_posted = 0;
  std::uint32_t retried = 0;
  std::uint64_t links_used = 0;  // bit per link of the peer
  Status status;
  Rendezvous rendezvous;
  std::uint32_t notify_record = kNoSlot;    // the notification's, once it was handed to the stream
  bool armed = false;                       // its event waits at the peer, or is on the way to it
  std::uint32_t event = 0;                  // the number of the record that armed it
  std::uint32_t arming = kNoSlot;           // that record, until it has arrived
  std::uint32_t next = kNoSlot;             // in the queue it is in
  bool queued = false;                      // it is in one
  bool needs_flush = false;                 // a link it used does not make bytes visible by itself
  bool in_doubt = false;                    // a piece ended without saying what it did at the target
  std::uint32_t previous_active = kNoSlot;  // among the peer's transfers
  std::uint32_t next_active = kNoSlot;
  std::uint32_t first_dependent = kNoSlot;  // transfers whose `after` names this one
  std::uint32_t next_dependent = kNoSlot;
  std::uint32_t chunk = kNoSlot;  // that it moves, when it is the engine's own
  bool gated = false;             // staged: its event has been waited for
  std::shared_ptr<CancelTicket> ticket;

  NamedQueue* queue = nullptr;  // whose poll gets the completion, and in which it has a place; null: poll()
  Completion completion;

  // The submitter's, once the slot is acquired: everything as for a transfer that has not started.
  void begin(const Request& given, Time now, NamedQueue* named = nullptr);
};

// done_to_poll: the completion is poll()'s alone.
enum class Stage : std::uint32_t { free = 0, active = 1, done = 2, done_to_poll = 3 };

// The slots of all transfers of an engine. acquire: any thread; release: who collected the completion. Beside them, by
// worker, the completions of transfers that never had a slot: their ids have `slot` beyond kAtOnce.
class TransferTable {
 public:
  // `inner`: transfers of the engine's own beyond them, which no id names.
  // `used`: as if each slot had had so many, so that a test need not go through them.
  explicit TransferTable(std::uint32_t capacity, std::uint32_t inner = 0, std::uint32_t workers = 0,
                         std::uint32_t used = 0)
      : slots_(capacity, inner), workers_(workers), at_once_(new AtOnceTable<>[workers]) {
    for (std::uint32_t slot = 0; used > 0 && slot < capacity; ++slot)
      slots_[slot].word.store(pack(used, Stage::free), std::memory_order_relaxed);
  }

  static bool is_at_once(std::uint32_t slot) { return slot >= kAtOnce; }
  AtOnceTable<>& at_once(std::uint32_t worker) { return at_once_[worker]; }
  // Of one that was added there.
  static TransferId at_once_id(std::uint32_t worker, std::pair<std::uint32_t, std::uint32_t> added) {
    return {kAtOnce | worker * AtOnceTable<>::kSize | added.first, added.second};
  }
  // As AtOnceTable::collect; fills the completion.
  bool collect_at_once(TransferId id, bool to_poll, Completion& out) {
    const std::uint32_t worker = worker_of(id);
    if (worker >= workers_) return false;
    out.id = id;
    return at_once_[worker].collect(index_of(id), id.generation, to_poll, out.bytes, out.user_data);
  }
  [[nodiscard]] const AtOnceTable<>::Past* past_at_once(TransferId id, std::uint32_t worker) const {
    return is_at_once(id.slot) && worker_of(id) == worker ? at_once_[worker].past(index_of(id), id.generation)
                                                          : nullptr;
  }

  // kNoSlot when all are in use. Who sees the transfer active sees at least this of it.
  std::uint32_t acquire(PeerId peer = {}, bool receives = false, Deliver delivery = Deliver::to_wait) {
    const auto slot = slots_.acquire();
    if (!slot) return kNoSlot;
    Transfer& t = slots_[*slot];
    t.peer.store(peer.slot, std::memory_order_relaxed);
    t.receives.store(receives, std::memory_order_relaxed);
    t.delivery.store(delivery, std::memory_order_relaxed);
    const std::uint32_t generation = generation_of(t.word.load(std::memory_order_relaxed)) % kGenerations + 1;
    t.word.store(pack(generation, Stage::active), std::memory_order_release);
    return *slot;
  }
  // The completion must be in place: this publishes it to waiters, in the order of ends(). `done`: Stage::done or
  // done_to_poll.
  void publish(std::uint32_t slot, Stage done, std::memory_order order = std::memory_order_release) {
    std::atomic<std::uint32_t>& word = slots_[slot].word;
    word.store(pack(generation_of(word.load(std::memory_order_relaxed)), done), order);
  }
  // True for the one caller that may collect the completion of `id`, published as `done`; it must copy it out and then
  // release() the slot.
  bool claim(TransferId id, Stage done) {
    if (id.slot >= slots_.capacity()) return false;
    std::uint32_t expected = pack(id.generation, done);
    return slots_[id.slot].word.compare_exchange_strong(expected, pack(id.generation, Stage::free),
                                                        std::memory_order_acquire, std::memory_order_relaxed);
  }
  void release(std::uint32_t slot) { slots_.release(slot); }
  // Of one with Deliver::to_wait, for the one caller that gets it.
  bool collect(TransferId id, Completion& out) {
    if (is_at_once(id.slot)) return collect_at_once(id, false, out);
    if (!claim(id, Stage::done)) return false;
    out = std::move(slots_[id.slot].completion);
    release(id.slot);
    return true;
  }
  // Of one that is active or done; else it says nothing.
  [[nodiscard]] bool is_to_wait(TransferId id) const {
    return is_at_once(id.slot) || id.slot >= slots_.capacity() ||
           slots_[id.slot].delivery.load(std::memory_order_relaxed) == Deliver::to_wait;
  }
  EndsCount<>& ends() { return ends_; }  // of transfers
  // In place of publish(), claim() and release(): of a completion that nobody else has to collect.
  void collected(std::uint32_t slot) {
    std::atomic<std::uint32_t>& word = slots_[slot].word;
    word.store(pack(generation_of(word.load(std::memory_order_relaxed)), Stage::free), std::memory_order_release);
    slots_.release(slot);
  }

  Transfer& operator[](std::uint32_t slot) { return slots_[slot]; }
  const Transfer& operator[](std::uint32_t slot) const { return slots_[slot]; }
  TransferId id(std::uint32_t slot) const {
    if (is_at_once(slot)) return {slot, at_once_[worker_of({slot, 0})].generation_of(index_of({slot, 0}))};
    return {slot, generation_of(slots_[slot].word.load(std::memory_order_relaxed))};
  }
  bool is_active(TransferId id) const { return stage(id) == Stage::active; }
  // Stage::free also for an id of an earlier generation.
  Stage stage(TransferId id, std::memory_order order = std::memory_order_acquire) const {
    if (is_at_once(id.slot))
      return worker_of(id) < workers_ && at_once_[worker_of(id)].waits(index_of(id), id.generation) ? Stage::done
                                                                                                    : Stage::free;
    if (id.slot >= slots_.capacity() || !id) return Stage::free;
    const std::uint32_t word = slots_[id.slot].word.load(order);
    return generation_of(word) == id.generation ? static_cast<Stage>(word & 3) : Stage::free;
  }
  // An id that acquire() gave, of whatever stage by now. Of generations that came round again: the latest round's.
  bool was_given(TransferId id) const {
    if (is_at_once(id.slot))
      return worker_of(id) < workers_ && at_once_[worker_of(id)].was_given(index_of(id), id.generation);
    return id && id.slot < slots_.capacity() &&
           id.generation <= generation_of(slots_[id.slot].word.load(std::memory_order_relaxed));
  }
  bool any_free() const { return slots_.any_free(); }
  // Slots, counted one by one: who asks is in no hurry, and no transfer keeps a count for it.
  std::uint32_t used() const {
    std::uint32_t count = 0;
    for (std::uint32_t slot = 0; slot < slots_.capacity(); ++slot)
      count += static_cast<Stage>(slots_[slot].word.load(std::memory_order_relaxed) & 3) != Stage::free ? 1 : 0;
    return count;
  }
  std::uint32_t used_at_once() const {
    std::uint32_t count = 0;
    for (std::uint32_t worker = 0; worker < workers_; ++worker) count += at_once_[worker].used();
    return count;
  }
  std::uint32_t capacity() const { return slots_.capacity(); }

  static constexpr std::uint32_t pack(std::uint32_t generation, Stage stage) {
    return generation << 2 | static_cast<std::uint32_t>(stage);
  }

 private:
  static constexpr std::uint32_t kGenerations = (1u << 30) - 1;
  static constexpr std::uint32_t kAtOnce = 1u << 31;
  static std::uint32_t worker_of(TransferId id) { return (id.slot & ~kAtOnce) / AtOnceTable<>::kSize; }
  static std::uint32_t index_of(TransferId id) { return id.slot % AtOnceTable<>::kSize; }
  static std::uint32_t generation_of(std::uint32_t word) { return word >> 2; }

  SlotPool<Transfer> slots_;
  const std::uint32_t workers_;
  const std::unique_ptr<AtOnceTable<>[]> at_once_;  // by worker
  EndsCount<> ends_;
};

}  // namespace fairway::engine
