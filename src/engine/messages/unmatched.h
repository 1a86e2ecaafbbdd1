#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fairway/ids.h"

#include "engine/tables/record_body.h"
#include "engine/tables/regions.h"
#include "engine/tables/turns.h"

namespace fairway::engine {

inline constexpr std::size_t kMostTold = 8;  // receives that a sender knows ahead; it keeps no more

// The sender's side of receives that are told ahead: those of the peer that this side knows, and the numbers of this
// side's sends. The peer tells of one receive of a tag, the first that waits, and of the number of sends that it had
// taken before. So both sides know which send it is for: the first of that tag with a higher number. A sender that has
// made that send already ignores what it is told, and so it may at any time. Owner: the peer's worker.
class ToldReceives {
 public:
  struct Told {
    std::uint64_t tag = 0;
    TransferId receiver;
    std::uint32_t number = 0;  // of the record
    Description window;
  };

  std::uint32_t number_send(std::uint64_t tag);  // the next send has that tag: its number
  // Of several of that tag the one that was told last, whatever came first: those before it have ended. Null: none.
  [[nodiscard]] Told* find(std::uint64_t tag);
  void forget(std::uint64_t tag);  // a send of that tag was made

  // ---- records ----
  // Each returns what is wrong with the record, null if nothing is. `number`: of the record.
  const char* posted(std::uint32_t number, const record::ReceivePosted& posted);
  const char* withdrawn(std::uint32_t number, bool to_come);  // to_come: the record that it withdraws

 private:
  static constexpr std::uint32_t kRecent = 16;  // sends whose tags are known

  std::uint32_t sequence_ = 0;                        // of the next send
  std::array<std::uint64_t, kRecent> recent_tags_{};  // of this side's sends, by their number
  std::vector<Told> told_;                            // kMostTold at most
  std::vector<std::uint32_t> withdrawn_;              // numbers of records to come; bounded by the window of records
};

// This side's receives that are not matched yet, in the order of submission, and how many of them the peer knows ahead.
// Owner: the peer's worker.
class WaitingReceives {
 public:
  explicit WaitingReceives(TransferTable& table) : table_(table), queue_(table) {}

  void push(std::uint32_t slot) { queue_.push(slot); }
  bool remove(std::uint32_t slot) { return queue_.remove(slot); }
  [[nodiscard]] std::uint32_t first(std::uint64_t tag) const;  // kNoSlot: none of that tag
  // The same, if it takes a message: it does not wait for another transfer.
  [[nodiscard]] std::uint32_t ready(std::uint64_t tag) const {
    const std::uint32_t slot = first(tag);
    return slot != kNoSlot && table_[slot].phase == Phase::waiting ? kNoSlot : slot;
  }

  // ---- telling ahead ----
  // A window that nobody writes to costs two microseconds, so none is told while messages are short.
  [[nodiscard]] bool may_tell() const { return told_ < kMostTold && long_due_ > 0; }
  void tell(Transfer& receive);
  bool untell(Transfer& receive);  // its message is here, or it ends without; false: it was not told
  void matched(bool eager) { long_due_ = eager ? long_due_ - (long_due_ > 0 ? 1 : 0) : kAfterLong; }

 private:
  static constexpr std::uint32_t kAfterLong = 16;  // messages after a long one of which each may be another

  TransferTable& table_;
  TransferQueue queue_;
  std::uint32_t told_ = 0;
  std::uint32_t long_due_ = kAfterLong;  // messages of which each may be too long to be eager
};

// Bytes of the receiver's limit that a message takes until it is matched.
constexpr std::uint32_t unexpected_cost(std::uint64_t length, bool eager) {
  constexpr std::uint32_t kAnnouncement = 64;
  return kAnnouncement + (eager ? static_cast<std::uint32_t>(length) : 0);
}

struct UnexpectedMessage {  // one that came before its receive
  std::uint64_t tag = 0;
  std::uint64_t length = 0;
  TransferId sender;
  bool eager = false;
  std::vector<std::byte> payload;  // of an eager one
  TransferId receiver = {};        // direct: into whose window
  std::uint32_t number = 0;        // direct: of its record
  bool came = false;               // direct: its bytes are there
};

// The peer's messages that wait for a receive, or for a message before them: sends are taken in the order of their
// numbers, whatever the order in which their records came. Owner: the peer's worker.
class UnexpectedMessages {
 public:
  explicit UnexpectedMessages(std::uint32_t limit) : limit_(limit) {}  // bytes, as unexpected_cost() counts them

  // Every message is charged as it comes, and gives that back once it is matched. False: beyond the limit.
  bool charge(std::uint64_t length, bool eager) {
    cost_ += unexpected_cost(length, eager);
    return cost_ <= limit_;
  }
  void give_back(std::uint32_t cost) { cost_ -= cost; }

  [[nodiscard]] std::uint32_t taken() const { return expected_; }  // sends, in their order
  // Whether it has its turn, and none of its tag waits: then it need not be kept if its receive is there.
  [[nodiscard]] bool is_first(std::uint32_t sequence, std::uint64_t tag) const {
    return sequence == expected_ && early_.empty() && (messages_.empty() || find(tag) == nullptr);
  }
  void pass() { ++expected_; }  // such a one was matched

  // One whose turn it is and that none waits behind, as if it had been added and had advanced; else false.
  bool add_in_turn(std::uint32_t sequence, UnexpectedMessage& message);
  bool add(std::uint32_t sequence, UnexpectedMessage message);  // false: no number that it can have
  // One whose turn has come takes its place among those that wait for a receive: its tag. Empty: none.
  std::optional<std::uint64_t> advance();
  [[nodiscard]] const UnexpectedMessage* find(std::uint64_t tag) const;  // the first of that tag whose turn has come
  UnexpectedMessage take(const UnexpectedMessage* message);              // what find() gave
  bool bytes_came(std::uint32_t number);  // of the direct one with that record; false: none waits

 private:
  const std::uint32_t limit_;
  std::uint32_t expected_ = 0;  // the number of the next send to take
  std::uint32_t cost_ = 0;
  std::unordered_map<std::uint32_t, UnexpectedMessage> early_;  // by number; bounded by the limit
  std::vector<UnexpectedMessage> messages_;                     // in the order of sending
  std::size_t directs_ = 0;                                     // of both, whose bytes go into a window
};

}  // namespace fairway::engine
