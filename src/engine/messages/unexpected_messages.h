#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fairway/ids.h"

namespace fairway::engine {

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
