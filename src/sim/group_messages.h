#pragma once

#include <vector>

#include "fairway/status.h"

#include "sim/group_contents.h"

// One collective among few simulated ranks, message by message: what each carries, when it leaves, when it is there.
namespace fairway::sim {

struct GroupMessage {
  int from = 0, to = 0;
  Time leaves = 0, arrives = 0;  // since the call, as Carried
  Content content;
};

struct GroupMessages {
  std::vector<GroupMessage> messages;  // in the order in which they leave
  std::vector<Time> returned;          // of each rank: its call
};

// Letters and bits name blocks and ranks.
inline constexpr int kMostFollowed = 8;

// Runs it among ranks that have just joined and call it at once. No other call changes what comes out.
[[nodiscard]] Result<GroupMessages> follow(const FollowedCall& followed);

// Each kind with each of its algorithms, of as few bytes as show what it does. With several ranks on a host also
// `hierarchical`, where there is more than one host.
[[nodiscard]] std::vector<FollowedCall> calls_to_follow(int ranks, int per_host);

}  // namespace fairway::sim
