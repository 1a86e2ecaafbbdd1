#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/tables/peer_context.h"
#include "engine/tables/regions.h"
#include "engine/tables/transfer.h"
#include "transport/gpu_access.h"
#include "transport/region_table.h"

// Staging: bytes that no link takes because one end is device memory go through pinned host memory of the engines, slot
// by slot. The engine that owns the device memory copies between it and one of its slots. An internal transfer moves
// the bytes between slots, or between a slot and host memory at the other end.
// docs/decisions/staging.md says why.
namespace fairway::engine {

inline constexpr std::uint64_t kSlotBytes = 512 * 1024;  // large enough that the driver calls for a slot cost little
inline constexpr std::uint32_t kSlots = 8;               // of a staging buffer: some move while others are copied
inline constexpr std::uint64_t kStagingBytes = kSlots * kSlotBytes;
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

struct StagedPart {
  std::uint64_t local = 0, remote = 0, length = 0;  // offsets in the two regions
};

struct StagedChunk;

// Whose transfer a chunk is part of.
class ChunkOwner {
 public:
  // In each step of the worker, while the chunk is being copied. True: a device has the copies.
  virtual bool proceed(StagedChunk& chunk) = 0;

 protected:
  ~ChunkOwner() = default;
};

// A slotful of a transfer, at its initiator.
struct StagedChunk {
  enum class State : std::uint8_t {
    free,
    copying,    // between the local memory and the slot here
    moving,     // by a transfer of the engine's own
    asked,      // the peer copies between its slot and its memory
    abandoned,  // asked, but the transfer has ended meanwhile: the peer's slot is not free before its answer
  };
  State state = State::free;
  bool queued = false;  // the device has the copies
  bool outwards = true;
  std::uint8_t here = kInPlace, there = kInPlace;
  ChunkOwner* owner = nullptr;
  std::uint32_t transfer = kNoSlot;
  std::uint32_t inner = kNoSlot;  // the transfer of the engine's own: always the same
  RegionId local;
  RemoteRegionId remote;
  std::uint64_t bytes = 0;
  std::vector<StagedPart> parts;
  std::vector<Extent> extents;  // of the inner transfer's layout
  transport::Copier::Ticket ticket;
};

// A worker's resources for staging, shared by all its peers: chunks, and a staging buffer of its own. Allocated with
// the first staged transfer. Owner: the worker.
class StagingPool {
 public:
  // `copier`: null: no transport in use copies a device's memory. `first_inner`: of the kAllChunks slots of the
  // transfer table that move chunks.
  StagingPool(WorkerContext& worker, LocalRegions& locals, transport::Copier* copier, std::uint32_t first_inner)
      : worker_(worker), locals_(locals), copier_(copier), first_inner_(first_inner) {}

  [[nodiscard]] transport::Copier* copier() const { return copier_; }
  void again() const { worker_.again(); }

  // ---- chunks ----
  // Null: none is free. `for_inner`: of a chunk's own transfer; those wait for nobody but links of host memory.
  StagedChunk* free_chunk(bool for_inner);
  [[nodiscard]] std::span<StagedChunk> chunks() { return chunks_; }
  StagedChunk& operator[](std::uint32_t chunk) { return chunks_[chunk]; }
  [[nodiscard]] std::uint32_t index_of(const StagedChunk& chunk) const {
    return static_cast<std::uint32_t>(&chunk - chunks_.data());
  }

  // ---- this side's slots ----
  // kInPlace: none is free now or, if `why` is set, never will be.
  std::uint8_t take_slot(Status& why);
  void give_back(std::uint8_t slot);
  [[nodiscard]] std::byte* address(std::uint8_t slot) const { return buffer_->memory.address() + slot * kSlotBytes; }
  [[nodiscard]] RegionId region() const { return region_; }  // of which the slots are parts
  [[nodiscard]] std::string why_slow() const;                // empty: copies are as fast as they can be

  // A staging buffer as a region of this worker.
  Result<RegionId> add_region(const transport::Copier::StagingBuffer& buffer, Access access);
  // Keeps memory that may still be accessed, until the engine closes.
  void keep(std::shared_ptr<transport::Copier::StagingBuffer> buffer) { kept_.push_back(std::move(buffer)); }

  // ---- what is looked after in each step of the worker: copies, and peers that wait for a lease ----
  void watch() { ++watched_; }
  void unwatch() { --watched_; }
  [[nodiscard]] bool has_work() const { return watched_ > 0; }

 private:
  WorkerContext& worker_;
  LocalRegions& locals_;
  transport::Copier* const copier_;
  const std::uint32_t first_inner_;
  std::uint32_t watched_ = 0;
  SlotSet used_;
  std::vector<StagedChunk> chunks_;
  std::shared_ptr<transport::Copier::StagingBuffer> buffer_;
  RegionId region_;  // that
  std::vector<std::shared_ptr<transport::Copier::StagingBuffer>> kept_;
};

inline constexpr std::uint32_t kMostLeases = 16;       // of a worker's staging buffers to peers at once
inline constexpr Time kLeaseTurn = 10 * kMillisecond;  // a lease with work is kept that long, however many peers wait

// A peer that has a lease, or waits for one.
class LeaseHolder {
 public:
  virtual void lend() = 0;  // its turn has come
  // In each step of the worker, while it has a lease. True: a device has copies.
  virtual bool proceed() = 0;
  [[nodiscard]] virtual Time lent_since() const = 0;
  [[nodiscard]] virtual bool had_turn(Time now) const = 0;       // its lease may be recalled: it has been used
  virtual void recall() = 0;                                     // asks it
  [[nodiscard]] virtual bool copies(RegionId region) const = 0;  // a device copies from or to it for the peer

 protected:
  ~LeaseHolder() = default;
};

// The leases that a worker has granted to its peers. Waiting peers are served in order; for each that still waits, the
// oldest lease is recalled. Owner: the worker.
class StagingLeases {
 public:
  StagingLeases(StagingPool& pool, transport::RegionTable& regions) : pool_(pool), regions_(regions) {}

  void wait(LeaseHolder& holder);
  void wait_no_more(LeaseHolder& holder);  // of one that does not wait: nothing
  void drop(LeaseHolder& holder);          // what it was lent could not be made
  // It gave its lease back. ended() follows, once nothing of this engine touches the buffer's region any more.
  void close(LeaseHolder& holder);
  void ended(RegionId region, bool recalled, std::shared_ptr<transport::Copier::StagingBuffer> buffer,
             const Status& fenced);

  // In each step of the worker. True: a device has copies.
  bool proceed(Time now);
  [[nodiscard]] bool copies(RegionId region) const;

 private:
  void share(Time now);

  StagingPool& pool_;
  transport::RegionTable& regions_;
  std::deque<LeaseHolder*> waiting_;
  std::vector<LeaseHolder*> holders_;
  std::uint32_t closing_ = 0;   // leases that were given back, until their buffers are gone
  std::uint32_t recalled_ = 0;  // of all
};

inline constexpr Time kIdleLease = kSecond;  // a lease without work is returned to the peer

// This side's lease on a staging buffer of the peer. It is requested with the first slot, and returned when it is idle,
// when the peer recalls it, or when one of its slots was lost. Owner: the peer's worker.
class StagingLease {
 public:
  explicit StagingLease(PeerContext& peer) : peer_(peer) {}

  [[nodiscard]] bool is_open() const { return state_ == State::open; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] RemoteRegionId region() const { return region_; }  // while it is open
  [[nodiscard]] bool uses(std::uint32_t number, std::uint8_t slot) const {
    return is_open() && number == number_ && slot < kSlots && busy_.has(slot);
  }

  // ---- slots of the peer's ----
  std::uint8_t free_slot(Status& why);  // kInPlace: not now, or with `why` set, not for a while
  void use(std::uint8_t slot) { busy_.add(slot); }
  void give_back(std::uint8_t slot);
  void lose(std::uint8_t slot) { lost_.add(slot); }  // late bytes may still come there

  // ---- records ----
  void on_grant(const record::StageGrant& grant);
  void on_recall(std::uint32_t number);

  Time run_timer(Time now);  // when to run again
  void peer_gone() { state_ = State::none; }

 private:
  enum class State : std::uint8_t { none, asked, open };
  void end_if_unused();

  PeerContext& peer_;
  State state_ = State::none;
  bool leaving_ = false;      // takes nothing new: the peer wants it back, or a slot was lost
  std::uint32_t number_ = 0;  // of this lease, among those of the session
  RemoteRegionId region_;
  SlotSet busy_, lost_;
  Time idle_since_ = 0;
  Status refused_;
  Time refused_until_ = 0;
};

}  // namespace fairway::engine
