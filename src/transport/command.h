#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "transport/region_table.h"
#include "transport/transport.h"

// How transports name memory in a Slice.
namespace fairway::transport {

// The handle of local memory is its region's id, so the region table is the only table of local memory.
constexpr std::uint64_t handle_of(RegionId id) {
  return static_cast<std::uint64_t>(id.generation) << 32 | id.slot;
}
constexpr RegionId region_of(std::uint64_t handle) {
  return {static_cast<std::uint32_t>(handle), static_cast<std::uint32_t>(handle >> 32)};
}

// The imported regions by handle, with a transport's own data for each. Owner: the transport's worker.
template <class Extra = std::monostate>
class ImportTable {
 public:
  struct Entry {
    std::uint32_t generation = 0;
    bool live = false;
    PeerIndex peer = 0;
    RegionId region;
    Extra extra;
  };

  std::uint64_t add(PeerIndex peer, RegionId region, Extra extra = {}) {
    auto slot = static_cast<std::uint32_t>(entries_.size());
    if (free_.empty()) {
      entries_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    Entry& entry = entries_[slot];
    entry = {entry.generation + 1, true, peer, region, std::move(extra)};
    return handle_of({slot, entry.generation});
  }
  // Null: no such handle, released, or of another peer.
  Entry* find(std::uint64_t handle, PeerIndex peer) {
    const RegionId id = region_of(handle);
    if (id.slot >= entries_.size()) return nullptr;
    Entry& entry = entries_[id.slot];
    return entry.live && entry.generation == id.generation && entry.peer == peer ? &entry : nullptr;
  }
  const Entry* find(std::uint64_t handle) const {
    const RegionId id = region_of(handle);
    const bool live =
        id.slot < entries_.size() && entries_[id.slot].live && entries_[id.slot].generation == id.generation;
    return live ? &entries_[id.slot] : nullptr;
  }
  void release(std::uint64_t handle) {
    if (find(handle) != nullptr) drop(region_of(handle).slot);
  }
  void release_all(PeerIndex peer) {
    for (std::uint32_t slot = 0; slot < entries_.size(); ++slot)
      if (entries_[slot].live && entries_[slot].peer == peer) drop(slot);
  }
  template <class Visit>
  void each(PeerIndex peer, Visit visit) {
    for (std::uint32_t slot = 0; slot < entries_.size(); ++slot)
      if (Entry& entry = entries_[slot]; entry.live && entry.peer == peer) visit(entry);
  }

 private:
  void drop(std::uint32_t slot) {
    entries_[slot].live = false;
    entries_[slot].extra = {};
    free_.push_back(slot);
  }
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

// A set of Op or Shape, for Capabilities.
template <class... Each>
constexpr Bits bits(Each... each) {
  return static_cast<Bits>((static_cast<unsigned>(each) | ...));
}

// A slice with its handles resolved to what both ends understand.
struct Command {
  Slice slice;
  RegionId region;                   // at the target
  std::byte* local_begin = nullptr;  // the initiator's registered memory: every block must lie in it
  std::uint64_t local_size = 0;
  MemoryKind local_kind = MemoryKind::host;
};

// Fills `out` with `slice`, whose remote handle names `remote`; a slice of one block gets a count of one. Checks what
// this side can: the target checks its own bounds and permissions, and BlockCursor checks each block's local bounds.
ErrorCode prepare(const Capabilities& can, const RegionTable& regions, const Slice& slice, const RegionId* remote,
                  Command& out);

// The text of a slice's failure, for its event.
const char* describe_failure(ErrorCode code);

// Where the next bytes of a command lie on both sides.
struct Piece {
  std::byte* local = nullptr;
  std::uint64_t remote_block = 0;  // where its block begins in the region: bounds are those of the whole block
  std::uint64_t offset = 0;        // within the block
  std::uint64_t length = 0;
};

// at += units * stride; false: the sum overflows.
inline bool advance(std::uint64_t& at, std::uint64_t units, std::uint64_t stride) {
  std::uint64_t distance = 0;
  return !__builtin_mul_overflow(units, stride, &distance) && !__builtin_add_overflow(at, distance, &at);
}

// A resumable walk over a command's blocks. A value; it borrows only the caller's index arrays.
struct BlockCursor {
  std::uint32_t block = 0;
  std::uint64_t offset = 0;  // within the block

  bool done(const Slice& slice) const { return block >= slice.count; }

  // The next piece, at most `most` bytes, within one block. out_of_range: the block leaves the local memory, or an
  // offset overflows. The target checks the remote side. An empty block is one empty piece.
  ErrorCode next(const Command& command, std::uint64_t most, Piece& out) {
    const Slice& slice = command.slice;
    std::uint64_t local = static_cast<std::uint64_t>(slice.local - command.local_begin);
    std::uint64_t remote = slice.remote_offset;
    if (slice.shape != Shape::contiguous) {
      const std::uint64_t local_unit = slice.shape == Shape::indexed ? slice.local_index[block] : block;
      const std::uint64_t remote_unit = slice.shape == Shape::indexed ? slice.remote_index[block] : block;
      if (!advance(local, local_unit, slice.local_stride) || !advance(remote, remote_unit, slice.remote_stride))
        return ErrorCode::out_of_range;
    }
    if (slice.length != 0 && (local > command.local_size || slice.length > command.local_size - local))
      return ErrorCode::out_of_range;
    out = {command.local_begin + local + offset, remote, offset, std::min(slice.length - offset, most)};
    offset += out.length;
    if (offset >= slice.length) {
      offset = 0;
      ++block;
    }
    return ErrorCode::ok;
  }
};

constexpr Access needed_access(Op op) {
  switch (op) {
    case Op::write:
    case Op::write_immediate: return Access::write;
    case Op::read: return Access::read;
    case Op::fetch_add:
    case Op::compare_swap: return Access::atomic;
    case Op::message: break;
  }
  return Access::none;
}

// A piece's bytes, by this process's CPU, where it also reaches the target's memory.
inline ErrorCode copy_piece(const Command& command, const Piece& piece, const RegionTable& target) {
  const Slice& slice = command.slice;
  RegionTable::Resolved at;
  const ErrorCode code =
      target.resolve_for_cpu(command.region, piece.remote_block, slice.length, needed_access(slice.op), at);
  if (code != ErrorCode::ok || piece.length == 0) return code;
  if (slice.op == Op::read)
    std::memmove(piece.local, at.address + piece.offset, piece.length);
  else
    std::memmove(at.address + piece.offset, piece.local, piece.length);
  return code;
}

// fetch_add or compare_swap by the CPU on the eight aligned bytes at `at`. Returns the old value.
inline std::uint64_t apply_atomic(Op op, std::byte* at, std::uint64_t operand, std::uint64_t expected) {
  std::atomic_ref<std::uint64_t> target(*reinterpret_cast<std::uint64_t*>(at));
  if (op == Op::fetch_add) return target.fetch_add(operand);
  target.compare_exchange_strong(expected, operand);  // leaves the old value in `expected`, swapped or not
  return expected;
}

}  // namespace fairway::transport
