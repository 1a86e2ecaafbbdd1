#pragma once

#include <optional>
#include <string>

#include "group_board.h"
#include "group_call.h"

namespace fairway::tool::soak::groups {

// What came of operations: how the group ended, or what is wrong with a result.
struct Outcome {
  Status status;
  std::string wrong;
};

// One rank's part of what a group does together: operations by each of their forms, messages, groups within the group.
class Acts {
 public:
  Acts(std::uint64_t largest, Board& board) : largest_(largest), board_(board) {}

  // So many acts as `draws` says; every rank of the group draws the same.
  Outcome play(Communicator& group, Draws draws, unsigned most);
  Outcome split(Communicator& group, Draws& draws);

 private:
  Outcome run_one(Communicator& group, Draws& draws);
  Outcome run_together(Communicator& group, Draws& draws);
  Outcome run_started(Communicator& group, Draws& draws);
  Outcome exchange(Communicator& group, Draws& draws);
  Outcome ended(const Status& status, const Call& call);

  const std::uint64_t largest_;
  Board& board_;
};

}  // namespace fairway::tool::soak::groups
