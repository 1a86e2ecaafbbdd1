#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "core/atomics.h"
#include "sys/memory_file.h"

namespace fairway::transport {

// One entry of the RegionTable: a region's fields behind its generation, odd while the region is live and even while
// the slot is free or revoked. Writers hold the table's lock; readers are on any thread and never wait.
//
// A seqlock (H.-J. Boehm, "Can Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012) whose reader
// does not retry: it asks for one generation and fails if it finds another. tests/model explores it.
template <class Atomics = StdAtomics>
class RegionSlot {
 public:
  // Writer, on a slot that is not live. Returns the live generation.
  std::uint32_t publish(std::byte* address, std::uint64_t size_bytes, MemoryKind kind, Access access,
                        bool read_only = false) {
    // Release fence: a reader that sees a field below also sees the revocation before it when it reads again.
    Atomics::fence(std::memory_order_release);
    address_.store(address, std::memory_order_relaxed);
    size_bytes_.store(size_bytes, std::memory_order_relaxed);
    kind_and_access_.store(static_cast<std::uint16_t>(static_cast<unsigned>(kind) << 8 | static_cast<unsigned>(access) |
                                                      (read_only ? kReadOnly : 0)),
                           std::memory_order_relaxed);
    const std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
    generation_.store(generation, std::memory_order_release);  // publishes the fields
    return generation;
  }

  // Writer. read() of this generation then fails in every thread that the writer synchronizes with afterwards: each
  // worker, once it has passed a step (tests/model explores this). A read in progress may still succeed. The memory
  // order is stronger than the protocol needs; this is a cold path.
  void revoke() { generation_.store(generation_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst); }

  // Writer: the generation now.
  std::uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }

  // Any thread. True if `generation` was live during the whole call; otherwise `out` is unspecified.
  bool read(std::uint32_t generation, Region& out) const {
    if (generation_.load(std::memory_order_acquire) != generation) return false;  // acquire: its fields or newer ones
    out.address = address_.load(std::memory_order_relaxed);
    out.size_bytes = size_bytes_.load(std::memory_order_relaxed);
    const std::uint16_t packed = kind_and_access_.load(std::memory_order_relaxed);
    out.kind = static_cast<MemoryKind>(packed >> 8);
    out.access = static_cast<Access>(packed & kAccess);
    Atomics::fence(std::memory_order_acquire);  // pairs with publish(): newer fields, then a newer generation
    return generation_.load(std::memory_order_relaxed) == generation;
  }
  // Any thread: whether `generation` is live. While it is, what read() gave of it holds, since a slot is written only
  // between two generations: who keeps that needs no more than this, with what read() says of revoke().
  bool is_live(std::uint32_t generation) const { return generation_.load(std::memory_order_acquire) == generation; }
  // Any thread: false for memory that its owner cannot write either. Of a generation that was live: ask read() first.
  bool writable() const { return (kind_and_access_.load(std::memory_order_relaxed) & kReadOnly) == 0; }

 private:
  static constexpr unsigned kAccess = 0x7f, kReadOnly = 0x80;  // below the kind

  typename Atomics::template Atomic<std::uint32_t> generation_{0};
  typename Atomics::template Atomic<std::byte*> address_{nullptr};
  typename Atomics::template Atomic<std::uint64_t> size_bytes_{0};
  typename Atomics::template Atomic<std::uint16_t> kind_and_access_{0};
};

// Read access to the slots of a region table: this engine's, or a peer's that is mapped here. resolve() is lock-free
// and may run on any thread. A hostile peer's table can give wrong answers but cannot make it hang. A value; borrows
// the slots.
class RegionView {
 public:
  RegionView() = default;
  RegionView(const RegionSlot<>* slots, std::uint32_t capacity) : slots_(slots), capacity_(capacity) {}

  struct Resolved {
    std::byte* address = nullptr;
    MemoryKind kind = MemoryKind::host;
  };
  // ok and the address, or revoked, access_denied or out_of_range, without touching memory. If offset + length
  // overflows: out_of_range. Access::none is for local use, which needs no permission.
  ErrorCode resolve(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed, Resolved& out) const {
    if (id.slot >= capacity_ || (id.generation & 1) == 0) return ErrorCode::revoked;
    Region region;
    if (!slots_[id.slot].read(id.generation, region)) return ErrorCode::revoked;
    if (!includes(region.access, needed)) return ErrorCode::access_denied;
    if (offset > region.size_bytes || length > region.size_bytes - offset) return ErrorCode::out_of_range;
    out = {region.address == nullptr ? nullptr : region.address + offset, region.kind};
    return ErrorCode::ok;
  }
  // False when that region is not live.
  bool read(RegionId id, Region& out) const;

 private:
  const RegionSlot<>* slots_ = nullptr;
  std::uint32_t capacity_ = 0;
};

// The regions of one engine: the only place that decides whether memory may be accessed (promise 4). Software
// transports resolve every request of a peer here; for RDMA transports the NIC checks its own registration as well.
// resolve() is lock-free and may run on any thread; add, revoke and remove take a lock and serve API calls.
class RegionTable {
 public:
  explicit RegionTable(std::uint32_t capacity);

  // resource_exhausted when `capacity` regions are live.
  // `read_only`: this process cannot write it.
  Result<RegionId> add(std::byte* address, std::uint64_t size_bytes, MemoryKind kind, Access access,
                       bool read_only = false);
  // Makes resolve() refuse the region. Memory that was resolved before may still be in use: the caller waits until
  // every worker has passed a step, then calls remove().
  Status revoke(RegionId id);
  // Frees the slot for a new generation.
  void remove(RegionId id);

  using Resolved = RegionView::Resolved;
  ErrorCode resolve(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed, Resolved& out) const {
    return view_.resolve(id, offset, length, needed, out);
  }

  // The same for access by this process's CPU: unsupported if only a device reaches the memory.
  ErrorCode resolve_for_cpu(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed,
                            Resolved& out) const {
    const ErrorCode code = view_.resolve(id, offset, length, needed, out);
    return code == ErrorCode::ok && !reached_by_cpu(out.kind) ? ErrorCode::unsupported : code;
  }

  bool read(RegionId id, Region& out) const { return view_.read(id, out); }  // as find(), without words

  // Whether this process can write a region that resolve() has found. Lock-free.
  bool is_writable(RegionId id) const { return slots_[id.slot].writable(); }

  // Where the region's slot stays, for RegionSlot::is_live(); of an id that resolve() or find() has found.
  const RegionSlot<>& slot_of(RegionId id) const { return slots_[id.slot]; }

  // Moves the slots to shared memory that other processes of this host can only read. Call it before the first add();
  // a second call does nothing.
  Status share();
  int file() const { return shared_.fd(); }  // of capacity() slots; -1: not shared
  std::uint32_t capacity() const { return capacity_; }

  // The region as registered; revoked when it is not live.
  Result<Region> find(RegionId id) const;
  // Whether it was registered here and has been deregistered.
  bool has_ended(RegionId id) const;
  std::uint32_t live() const;

 private:
  std::unique_ptr<RegionSlot<>[]> own_;
  sys::MemoryFile shared_;  // holds the slots instead, once shared
  RegionSlot<>* slots_;
  std::uint32_t capacity_;
  RegionView view_;
  mutable std::mutex mutex_;  // guards free_ and the writers of slots_
  std::vector<std::uint32_t> free_;
};

}  // namespace fairway::transport
