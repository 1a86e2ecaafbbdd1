#pragma once

#include <cstddef>
#include <cstdint>

#include "fairway/memory.h"

#include "core/atomics.h"

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

}  // namespace fairway::transport
