#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "transport/command.h"

namespace fairway::transport {

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

}  // namespace fairway::transport
