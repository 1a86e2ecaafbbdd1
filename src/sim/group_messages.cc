#include "sim/group_messages.h"

#include <algorithm>
#include <utility>

#include "sim/group.h"
#include "sim/group_measure.h"

namespace fairway::sim {
namespace {

constexpr std::uint64_t kSlot = 4096;  // the longest message
constexpr std::uint64_t kPieces = 4;   // of what goes through a chain

Collective operation_of(const FollowedCall& followed, std::vector<std::uint64_t>& input,
                        std::vector<std::uint64_t>& output) {
  Collective operation;
  operation.kind = followed.call.kind;
  operation.algorithm = followed.call.algorithm;
  operation.type = DataType::u64;
  operation.count = followed.call.count;
  operation.root = followed.call.root;
  operation.input = followed.in_place ? output.data() : input.data();
  operation.output = output.data();
  return operation;
}

// So few that messages are short, and each part and piece is there.
std::uint64_t count_for(CollectiveKind kind, Algorithm algorithm, int ranks, int per_host) {
  constexpr std::uint64_t kWorthCutting = 256;  // elements of an owner's part
  if (kind == CollectiveKind::barrier) return 0;
  if (algorithm == Algorithm::hierarchical) return kWorthCutting * static_cast<std::uint64_t>(per_host);
  if (algorithm == Algorithm::chain) return kPieces * kSlot / 8;
  return kind == CollectiveKind::all_reduce ? static_cast<std::uint64_t>(ranks) : 1;
}

}  // namespace

Result<GroupMessages> follow(const FollowedCall& followed) {
  const GroupCall& call = followed.call;
  if (call.ranks > kMostFollowed)
    return Status(ErrorCode::invalid_argument, "at most 8 ranks are followed message by message");
  auto contents = contents_of(followed);
  if (!contents) return contents.status();
  GroupOptions options;
  options.ranks = call.ranks;
  options.per_host = call.per_host;
  options.slot_bytes = static_cast<std::uint32_t>(call.piece);
  options.link = {};
  std::vector<Carried> carried;
  Group group(options);
  if (Status joined = group.join(); !joined) return joined;
  GroupMessages out;
  out.returned.resize(static_cast<std::size_t>(call.ranks));
  const Time begun = group.simulation().now();
  Status failed;
  group.fabric().watch(&carried);
  const Status ran = group.run([&](Group::Rank& rank) {
    const auto all = static_cast<std::size_t>(call.count) * static_cast<std::size_t>(call.ranks);
    std::vector<std::uint64_t> input(all), output(all);
    const Status status = rank.communicator->run(operation_of(followed, input, output));
    if (!status && failed) failed = status;
    out.returned[static_cast<std::size_t>(rank.number)] = group.simulation().now() - begun;
  });
  group.fabric().watch(nullptr);
  if (!ran || !failed) return ran ? failed : ran;

  const auto number_of = [&](const Host* host) {
    int number = 0;
    while (group.rank(number).host != host) ++number;
    return number;
  };
  std::vector<std::size_t> next(contents->size());
  for (const Carried& one : carried) {
    const int from = number_of(one.from), to = number_of(one.to);
    const auto pair =
        static_cast<std::size_t>(from) * static_cast<std::size_t>(call.ranks) + static_cast<std::size_t>(to);
    if (next[pair] == (*contents)[pair].size())
      return Status(ErrorCode::protocol_error, "a rank sent a message that its schedule does not have");
    out.messages.push_back({from, to, one.leaves - begun, one.arrives - begun, (*contents)[pair][next[pair]++]});
  }
  for (std::size_t pair = 0; pair < next.size(); ++pair)
    if (next[pair] != (*contents)[pair].size())
      return Status(ErrorCode::protocol_error, "a rank did not send a message that its schedule has");
  std::stable_sort(out.messages.begin(), out.messages.end(), [](const GroupMessage& a, const GroupMessage& b) {
    return std::pair(a.leaves, a.from) < std::pair(b.leaves, b.from);
  });
  return out;
}

std::vector<FollowedCall> calls_to_follow(int ranks, int per_host) {
  std::vector<FollowedCall> calls;
  for (const auto& [kind, algorithm] : algorithms_of_calls(per_host > 1 && per_host < ranks)) {
    FollowedCall one;
    one.call.kind = kind;
    one.call.algorithm = algorithm;
    one.call.ranks = ranks;
    one.call.per_host = per_host;
    one.call.piece = kSlot;
    one.call.count = count_for(kind, algorithm, ranks, per_host);
    calls.push_back(one);
    one.in_place = true;
    if (kind == CollectiveKind::all_to_all && algorithm == Algorithm::direct) calls.push_back(one);  // by pairs
  }
  return calls;
}

}  // namespace fairway::sim
