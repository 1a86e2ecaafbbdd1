#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/record_types.h"
#include "engine/transfer.h"
#include "transport/copier.h"

// Staging: what no link takes because a device's memory is at one of its ends goes through host memory of the engines'
// own, slot by slot. Who has that memory copies between it and a slot of its own; a transfer of the engine's own moves
// the bytes between slots, or between a slot and the host memory at the other end.
// docs/decisions/device-memory-is-staged-by-the-engines.md says why. Owner of all here: the worker.
namespace fairway::engine {

inline constexpr std::uint64_t kSlotBytes = 512 * 1024;  // long enough that the calls for one cost little beside it
inline constexpr std::uint32_t kSlots = 8;               // of a room: some move while others are copied
inline constexpr std::uint64_t kRoomBytes = kSlots * kSlotBytes;
inline constexpr std::uint32_t kSteps = 16;               // of a worker at once, over all its transfers
inline constexpr std::uint32_t kAllSteps = 2 * kSteps;    // with those of steps whose own transfer has to be staged
inline constexpr std::uint32_t kMostLandings = 16;        // rooms that a worker lends to peers at once
inline constexpr Time kIdleRoom = kSecond;                // one without work goes back to the peer
inline constexpr Time kRoomTurn = 10 * kMillisecond;      // one with work stays that long, however many wait
inline constexpr std::uint64_t kUrgentBytes = 16 * 1024;  // copies of no more pass others
inline constexpr std::uint8_t kInPlace = 0xff;            // no slot: links reach the memory itself

// A set of slots, by bit.
class SlotSet {
 public:
  [[nodiscard]] bool empty() const { return bits_ == 0; }
  [[nodiscard]] bool has(std::uint8_t slot) const { return (bits_ >> slot & 1) != 0; }
  void add(std::uint8_t slot) { bits_ = static_cast<std::uint8_t>(bits_ | 1u << slot); }
  void remove(std::uint8_t slot) { bits_ = static_cast<std::uint8_t>(bits_ & ~(1u << slot)); }
  // One that is in neither; kInPlace: there is none.
  [[nodiscard]] static std::uint8_t outside(SlotSet a, SlotSet b) {
    for (std::uint8_t slot = 0; slot < kSlots; ++slot)
      if (!a.has(slot) && !b.has(slot)) return slot;
    return kInPlace;
  }

 private:
  std::uint8_t bits_ = 0;
};

// A slotful of a transfer, at its initiator.
struct Step {
  enum class State : std::uint8_t {
    free,
    copying,  // between the local memory and the slot here
    moving,   // by a transfer of the engine's own
    asked,    // the peer copies between its slot and its memory
    left,     // asked, but the transfer has ended meanwhile: the peer's slot is not free before its answer
  };
  struct Part {
    std::uint64_t local = 0, remote = 0, length = 0;  // offsets in the two regions
  };
  State state = State::free;
  bool queued = false;  // the device has the copies
  bool outwards = true;
  std::uint8_t here = kInPlace, there = kInPlace;
  std::uint32_t peer = kNoSlot, transfer = kNoSlot;  // slots
  std::uint32_t inner = kNoSlot;                     // the transfer of the engine's own: always the same
  RegionId local;
  RemoteRegionId remote;
  std::uint64_t bytes = 0;
  std::vector<Part> parts;
  std::vector<Extent> extents;  // of the inner transfer's layout
  transport::Copier::Ticket ticket;
};

// The initiator's view of the room that the peer lends it.
struct Lent {
  enum class State : std::uint8_t { none, asked, open };
  State state = State::none;
  bool leaving = false;      // takes nothing new: the peer wants it back, or a slot was lost
  std::uint32_t number = 0;  // of this room, among those of the session
  RemoteRegionId region;
  SlotSet busy, lost;  // lost: late bytes may still come there
  std::array<std::uint32_t, kSlots> steps{};
  Time idle_since = 0;
  Status refused;
  Time refused_until = 0;
};

// The room that a peer was lent, at its owner.
struct Landing {
  enum class State : std::uint8_t { none, waiting, making, open };
  struct Job {
    bool busy = false, queued = false, put = false;
    RegionId region;
    std::vector<Step::Part> parts;  // `remote` is the offset in the region
    transport::Copier::Ticket ticket;
  };
  // Its peer may be asked to give it back: it had some use of it.
  [[nodiscard]] bool had_turn(Time now) const {
    if (state != State::open || recalled || !used) return false;
    return now - opened >= kRoomTurn || std::none_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.busy; });
  }

  State state = State::none;
  bool used = false, recalled = false;
  std::uint32_t number = 0, next = 0;  // next: asked for while this one was there; 0: none
  Time opened = 0;
  std::shared_ptr<transport::Copier::Room> room;
  RegionId region;
  std::array<Job, kSlots> jobs;
};

// What a CPU is asked to do with a device's memory: its bytes come to a slot, some go back.
struct Errand {
  enum class Kind : std::uint8_t {
    peers_sum,  // for a peer's request
    own_sum,    // of this side's half of a transfer that is being verified
    atomic,     // for a peer's request
  };
  Kind kind = Kind::peers_sum;
  bool queued = false, back = false;  // back: an atomic's new value is on its way to the device
  bool holds = false;                 // the engine's one place for atomics on devices' memory
  std::uint8_t here = kInPlace;
  std::uint8_t operation = 0;  // an atomic's, as in its record
  std::uint32_t peer = kNoSlot;
  std::uint32_t token = 0, serial = 0;  // of the request; of an own sum, the transfer's slot
  RegionId region;
  std::uint64_t offset = 0, length = 0, done = 0;
  std::uint64_t value = 0;                  // a sum so far; an atomic's old value
  std::uint64_t operand = 0, expected = 0;  // of an own sum, the peer's
  Piece piece;                              // of an own sum
  transport::Copier::Ticket ticket;
};

// A worker's. Nothing in it is made before the first staged transfer.
struct Staging {
  std::vector<Step> steps;
  std::vector<Errand> errands;
  std::shared_ptr<transport::Copier::Room> room;  // of its own slots
  RegionId region;                                // that
  SlotSet used;
  std::uint32_t landings = 0;          // rooms lent, until they are gone
  std::uint32_t recalled = 0;          // of them
  std::deque<std::uint32_t> awaiting;  // peers, by slot, that wait for one
  std::uint32_t watched = 0;           // copies and rooms that are looked after in each step
};

}  // namespace fairway::engine
