#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fairway/status.h"

#include "sim/group.h"

namespace fairway::sim {

// One collective of all ranks: what came out, and what it took beside what the formulas say.
struct GroupMeasured {
  GroupCall call;
  std::string wrong;                                 // empty: every rank has every value that it should
  double virtual_ns = 0, formula_ns = 0;             // from the call to the last rank's return
  std::uint64_t messages = 0, formula_messages = 0;  // of all ranks, as their NICs counted them
  std::uint64_t bytes = 0, formula_bytes = 0;
  int unlike = -1;            // a rank that has not sent what the formula says; -1: none
  std::uint64_t records = 0;  // the engines' own, by which slots are given back
  int times = 1;              // that it ran; all figures are of one
  [[nodiscard]] double time_ratio() const { return virtual_ns / formula_ns; }
};

// Every rank of the group has joined. What has few messages in all, or from each rank to each, runs four times in a
// row: slots are given back in fours, also those of the operation before.
GroupMeasured measure(Group& group, GroupCall call);

// Each kind with each of its algorithms, and several sizes: below, at and above a message's longest piece. `most`: the
// most bytes in a rank's buffer.
// `local`: those that have a root, with local completion.
std::vector<GroupCall> calls_for(const Group& group, std::uint64_t most, bool local = false);
// Every kind that is simulated with each of its algorithms; `hierarchical` only on hosts of several ranks.
std::vector<std::pair<CollectiveKind, Algorithm>> algorithms_of_calls(bool on_hosts);
std::vector<std::string> names_of_calls();  // their kinds, then their algorithms

// One collective among few simulated ranks, message by message: what each carries, when it leaves, when it is there.

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
