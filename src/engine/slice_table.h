#pragma once

#include <cstdint>
#include <vector>

#include "core/time.h"
#include "engine/stripe.h"
#include "transport/transport.h"

namespace fairway::engine {

enum class SliceUse : std::uint8_t {
  free,
  data,     // a piece of a transfer, in a transport's hands
  request,  // a piece the peer's engine does for us (emulation, checksum, flush): ends with its reply
  record,   // a record of the engine's own
  proof,    // a step of a link's proof
};

// One slice in a transport's or the peer engine's hands, or parked because its link broke. Its index is the token.
struct SliceEntry {
  SliceUse use = SliceUse::free;
  transport::Op op = transport::Op::write;
  bool parked = false;          // its link is down; undecided until both ends closed the epoch
  std::uint8_t link = 0;        // index into the peer's links
  std::uint32_t peer = 0;       // slot
  std::uint32_t owner = 0;      // data: the transfer's slot; record: the record's index; proof: its step
  std::uint32_t serial = 0;     // request: told to the peer with the token, so that a late reply fits nothing else
  std::uint64_t immediate = 0;  // write_immediate: its number among the link's immediates of this epoch
  Piece piece;
  Time posted = 0;
  bool retry = false;  // waits for its turn to be posted again
};

// All slices of one worker that are in flight. Fixed size; owner: the worker.
class SliceTable {
 public:
  // Room for `capacity` pieces of transfers, and some that they cannot take: pieces may hold theirs until a link is
  // proven or a piece was cut anew, and both need some.
  explicit SliceTable(std::uint32_t capacity) : entries_(capacity + kReserve) {
    free_.reserve(entries_.size());
    for (std::size_t i = entries_.size(); i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
  }
  [[nodiscard]] std::uint32_t room() const { return static_cast<std::uint32_t>(free_.size()); }
  [[nodiscard]] std::uint32_t room_for_pieces() const { return room() > kReserve ? room() - kReserve : 0; }
  // Only with room().
  std::uint32_t acquire() {
    const std::uint32_t token = free_.back();
    free_.pop_back();
    entries_[token].serial = ++serial_;
    return token;
  }
  void release(std::uint32_t token) {
    entries_[token].use = SliceUse::free;
    entries_[token].parked = false;
    entries_[token].retry = false;
    free_.push_back(token);
  }
  SliceEntry& operator[](std::uint32_t token) { return entries_[token]; }
  [[nodiscard]] std::uint32_t capacity() const { return static_cast<std::uint32_t>(entries_.size()); }

 private:
  static constexpr std::uint32_t kReserve = 64;

  std::vector<SliceEntry> entries_;
  std::vector<std::uint32_t> free_;
  std::uint32_t serial_ = 0;
};

}  // namespace fairway::engine
