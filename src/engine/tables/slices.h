#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/time.h"
#include "engine/tables/route.h"
#include "transport/transport.h"

namespace fairway::engine {

inline constexpr std::uint32_t kNoToken = ~std::uint32_t{0};
inline constexpr std::uint32_t kTurnPieces = 16;  // that a transfer posts at most before others have their turn
using Pieces = std::array<Piece, kTurnPieces>;

enum class SliceUse : std::uint8_t {
  free,
  data,     // a piece of a transfer, in a transport's hands
  request,  // a piece the peer's engine does for us (emulation, checksum, flush): ends with its reply
  record,   // a record of the engine's own
  proof,    // a step of a link's proof
};

// One slice that a transport or the peer's engine holds, or that is parked because its link broke. Its index is the
// token.
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

// All slices of one worker that are in flight, listed by peer, so that an event of one peer visits that peer's slices
// only. Fixed size; owner: the worker.
class SliceTable {
 public:
  // Room for `capacity` pieces of transfers, plus a reserve that pieces cannot take. Pieces may hold their entries
  // until a link is proven or a piece is cut again, and both of these need entries. `peers`: the number of peer slots.
  SliceTable(std::uint32_t capacity, std::uint32_t peers)
      : entries_(capacity + kReserve), nodes_(entries_.size()), lists_(peers) {
    free_.reserve(entries_.size());
    for (std::size_t i = entries_.size(); i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
  }
  [[nodiscard]] std::uint32_t free_count() const { return static_cast<std::uint32_t>(free_.size()); }
  [[nodiscard]] std::uint32_t free_for_pieces() const { return free_count() > kReserve ? free_count() - kReserve : 0; }

  // The last of that peer's list from now on. Only if free_count() is not 0.
  std::uint32_t acquire(std::uint32_t peer) {
    const std::uint32_t token = free_.back();
    free_.pop_back();
    entries_[token].serial = ++serial_;
    List& list = lists_[peer];
    nodes_[token] = {list.last, kNoToken, peer};
    (list.last == kNoToken ? list.first : nodes_[list.last].next) = token;
    list.last = token;
    return token;
  }
  void release(std::uint32_t token) {
    entries_[token].use = SliceUse::free;
    entries_[token].parked = false;
    entries_[token].retry = false;
    free_.push_back(token);
    const Node node = nodes_[token];
    List& list = lists_[node.peer];
    (node.previous == kNoToken ? list.first : nodes_[node.previous].next) = node.next;
    (node.next == kNoToken ? list.last : nodes_[node.next].previous) = node.previous;
    for (Walk* walk = walks_; walk != nullptr; walk = walk->outer)
      if (walk->next == token) walk->next = node.next;
  }
  SliceEntry& operator[](std::uint32_t token) { return entries_[token]; }
  [[nodiscard]] Pieces& pieces() { return pieces_; }  // room for those of the turn under way, which all peers share
  [[nodiscard]] std::uint32_t capacity() const { return static_cast<std::uint32_t>(entries_.size()); }

  // Calls visit(token, entry) for that peer's slices, the oldest first. `visit` may release any slice and acquire new
  // ones, which may be visited too.
  template <class Visit>
  void for_each(std::uint32_t peer, const Visit& visit) {
    Walk walk{lists_[peer].first, walks_};
    walks_ = &walk;
    while (walk.next != kNoToken) {
      const std::uint32_t token = walk.next;
      walk.next = nodes_[token].next;
      visit(token, entries_[token]);
    }
    walks_ = walk.outer;
  }
  // Whether test(entry) holds for one of that peer's slices.
  template <class Test>
  [[nodiscard]] bool any_of(std::uint32_t peer, const Test& test) const {
    for (std::uint32_t token = lists_[peer].first; token != kNoToken; token = nodes_[token].next)
      if (test(entries_[token])) return true;
    return false;
  }

 private:
  static constexpr std::uint32_t kReserve = 64;
  struct Node {
    std::uint32_t previous = kNoToken, next = kNoToken;
    std::uint32_t peer = 0;
  };
  struct List {
    std::uint32_t first = kNoToken, last = kNoToken;
  };
  struct Walk {  // a for_each() that is under way
    std::uint32_t next;
    Walk* outer;
  };

  std::vector<SliceEntry> entries_;
  std::vector<Node> nodes_;  // by token
  std::vector<List> lists_;  // by slot of the peer
  std::vector<std::uint32_t> free_;
  Pieces pieces_;
  Walk* walks_ = nullptr;
  std::uint32_t serial_ = 0;
};

class OutboxOwner {
 public:
  virtual void on_untaken(std::uint32_t token) = 0;  // a transport did not take that slice: nothing happened

 protected:
  ~OutboxOwner() = default;
};

// Collects slices for a worker's transports, so that many are posted at once and each doorbell is rung once. Owner: the
// worker.
class Outbox {
 public:
  using Transports = std::span<const std::unique_ptr<transport::Transport>>;
  Outbox(Transports transports, OutboxOwner& owner)
      : transports_(transports), owner_(owner), rows_(transports.size()) {}

  void add(std::uint16_t transport, const transport::Slice& slice) {  // posted by flush(), or when there are many
    Row& row = rows_[transport];
    row.slices[row.count++] = slice;
    ++waiting_;
    if (row.count == kCapacity) flush(transport);
  }
  void flush(std::uint16_t transport);
  [[nodiscard]] bool empty() const { return waiting_ == 0; }
  // Whether a little more may wait there without being posted.
  [[nodiscard]] bool has_room(std::uint16_t transport) const { return rows_[transport].count < kCapacity / 2; }

 private:
  static constexpr std::size_t kCapacity = 64;
  struct Row {
    std::array<transport::Slice, kCapacity> slices;
    std::size_t count = 0;
  };

  const Transports transports_;
  OutboxOwner& owner_;
  std::vector<Row> rows_;    // by transport
  std::size_t waiting_ = 0;  // in all of them
};

}  // namespace fairway::engine
