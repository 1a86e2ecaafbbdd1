#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "sim/group_formula.h"

// What each message of a collective carries, in words: the schedules that engines run, run on names instead of values.
// Pure.
namespace fairway::sim {

// A call that is followed message by message.
struct FollowedCall {
  GroupCall call;
  bool in_place = false;  // as Collective describes it
};

struct Content {
  std::string text;  // "B 0+1": block B, combined of ranks 0 and 1; empty: there is no more to say than that it came
  int one = -1;      // the block, or the rank, that it is of; -1: of several
  bool combined = false;  // its receiver combines it with values of its own
  std::uint64_t bytes = 0;
};

// Of all messages from rank a to rank b, in their order: [a * ranks + b]. An error: the schedules do not end.
[[nodiscard]] Result<std::vector<std::vector<Content>>> contents_of(const FollowedCall& followed);

// Into how many blocks the text of a call's messages divides a vector, or a rank's blocks; 1: into none.
[[nodiscard]] int blocks_of(const FollowedCall& followed);

}  // namespace fairway::sim
