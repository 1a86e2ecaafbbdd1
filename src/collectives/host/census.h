#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/host/lanes.h"

namespace fairway::collectives {

// Which ranks of a communicator go on, as one of them sees it.
using Alive = std::vector<std::uint8_t>;

// How the ranks that live agree on who goes on. Each tells everybody it knows of what it knows, and hears the same of
// them, round after round, until all have said the same in two: what was said in the first of them may be of a rank
// that waited in vain, and who says it again has heard all others. A rank that goes meanwhile is left out. Who has
// waited in vain calls again: that is another attempt. Each message has its attempt's number, and who hears of a later
// one than its own goes over to it, so it does not matter who called how often. What comes of an earlier one is passed
// over. A receive stays posted between two calls: nothing that was said gets lost. Owner: a communicator.
class Census {
 public:
  Census(Lanes& lanes, const std::string& name);
  ~Census() { close(); }
  Census(const Census&) = delete;
  Census& operator=(const Census&) = delete;

  // `alive`: whom this rank knows to live, and then who goes on. Returns the attempt in which all have agreed, another
  // one each time. Errors: timed_out, which names who has not called; cancelled, the others go on without this rank;
  // peer_dead, one gave up, and calls again; resource_exhausted.
  Result<std::uint32_t> take(Alive& alive, Time deadline);
  // A rank may have heard the same of all, and go on, while others have missed one that died, and ask it once more.
  // When it cannot go on, it tells them.
  void give_up(const Alive& alive);

 private:
  struct Said {  // a message; behind it the ranks that live, a bit each
    std::uint64_t magic = 0;
    std::uint32_t attempt = 0, round = 0;
    std::uint32_t gives_up = 0, reserved = 0;
  };
  struct Round {  // what has been heard in it
    Alive said;   // by this rank
    std::vector<std::uint8_t> heard;
    bool same = true;
    bool is_over = false;  // there is a later attempt
  };
  static constexpr std::size_t kRounds = 2;  // whose messages may be on their way

  Status open(const Alive& alive);
  void close();
  Status say(const Alive& alive, bool gives_up, Time deadline);
  bool has_ended(TransferId transfer);
  void take_back(std::vector<TransferId>& sends);
  void let_go(Time deadline);  // waits for what was said to go
  Status hear(Round& round, Alive& alive, Time deadline);
  // Whether the rank's next message is there, or comes in time. An error: none will.
  Result<bool> has_message(int rank, Timeout most);
  Status take_messages(int rank, Timeout most, Round& round, Alive& alive);
  [[nodiscard]] Said message_of(int rank) const;
  [[nodiscard]] bool lives(int rank, int other) const;  // as the rank's message says
  [[nodiscard]] std::byte* message_at(std::size_t place) const { return region_.address + place * bytes_; }
  [[nodiscard]] Status missing(const Round& round, const Alive& alive) const;
  [[nodiscard]] PeerId peer(int rank) const { return lanes_.members()[static_cast<std::size_t>(rank)].peer; }
  [[nodiscard]] const std::string& name_of(int rank) const {
    return lanes_.members()[static_cast<std::size_t>(rank)].name;
  }

  Lanes& lanes_;
  const std::uint64_t tag_;
  const std::size_t bytes_;  // of a message
  std::uint32_t attempt_ = 0, round_ = 0;
  Region region_;                     // a message of each rank, then the own ones of kRounds
  std::vector<TransferId> receives_;  // by rank
  std::vector<std::uint8_t> has_;     // by rank: its message is there
  std::vector<Status> gone_;          // by rank
  std::array<std::vector<TransferId>, kRounds> sends_;
  std::vector<TransferId> left_;  // sends that could not be taken back at once
};

}  // namespace fairway::collectives
