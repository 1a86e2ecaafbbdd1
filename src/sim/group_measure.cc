#include "sim/group_measure.h"

#include <algorithm>
#include <utility>

#include "collectives/host/choose.h"
#include "sim/group.h"

namespace fairway::sim {
namespace {

using Values = std::vector<std::uint64_t>;

constexpr std::uint64_t kFew = 5'000;
constexpr std::uint64_t kMostMessages = 300'000;  // of one collective, which take some seconds

// Element `index` of a rank's input.
std::uint64_t value(int rank, std::uint64_t index) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15 ^ index * 0xd6e8feb86659fd93;
  return mixed ^ mixed >> 29;
}

bool gives_all_to_each(CollectiveKind kind) {  // size * count elements go in
  return kind == CollectiveKind::scatter || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::all_to_all;
}
bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast || kind == CollectiveKind::gather ||
         kind == CollectiveKind::scatter;
}
bool takes_all(CollectiveKind kind) {  // size * count elements come out
  return kind == CollectiveKind::all_gather || kind == CollectiveKind::gather || kind == CollectiveKind::all_to_all;
}

class Expected {
 public:
  explicit Expected(const GroupCall& call) : call_(call) {
    const bool combines = call.kind == CollectiveKind::all_reduce || call.kind == CollectiveKind::reduce ||
                          call.kind == CollectiveKind::reduce_scatter;
    if (!combines) return;
    sums_.resize(call.count * (gives_all_to_each(call.kind) ? static_cast<std::uint64_t>(call.ranks) : 1));
    for (std::uint64_t i = 0; i < sums_.size(); ++i)
      for (int rank = 0; rank < call.ranks; ++rank) sums_[i] += value(rank, i);
  }
  [[nodiscard]] std::uint64_t elements(int rank) const {
    if (call_.kind == CollectiveKind::barrier) return 0;
    const bool rooted = call_.kind == CollectiveKind::reduce || call_.kind == CollectiveKind::gather;
    if (rooted && rank != call_.root) return 0;
    return call_.count * (takes_all(call_.kind) ? static_cast<std::uint64_t>(call_.ranks) : 1);
  }
  [[nodiscard]] std::uint64_t at(int rank, std::uint64_t index) const {
    const auto own = static_cast<std::uint64_t>(rank);
    const auto from = static_cast<int>(call_.count == 0 ? 0 : index / call_.count);
    switch (call_.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::reduce: return sums_[index];
      case CollectiveKind::reduce_scatter: return sums_[own * call_.count + index];
      case CollectiveKind::broadcast: return value(call_.root, index);
      case CollectiveKind::scatter: return value(call_.root, own * call_.count + index);
      case CollectiveKind::all_gather:
      case CollectiveKind::gather: return value(from, index % call_.count);
      default: return value(from, own * call_.count + index % call_.count);
    }
  }

 private:
  const GroupCall& call_;
  Values sums_;
};

std::string compare(const Expected& expected, int rank, const Values& output) {
  for (std::uint64_t i = 0; i < expected.elements(rank); ++i)
    if (output[i] != expected.at(rank, i))
      return "rank " + std::to_string(rank) + ": element " + std::to_string(i) + " is wrong";
  return {};
}

// What is simulated.
constexpr CollectiveKind kKinds[] = {
    CollectiveKind::barrier,   CollectiveKind::all_reduce,     CollectiveKind::reduce,
    CollectiveKind::broadcast, CollectiveKind::all_gather,     CollectiveKind::gather,
    CollectiveKind::scatter,   CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};

std::vector<Algorithm> algorithms_of(CollectiveKind kind, bool on_hosts) {
  const auto all = collectives::algorithms_of(kind);
  std::vector<Algorithm> algorithms(all.begin(), all.end());
  if (on_hosts && collectives::has_algorithm(kind, Algorithm::hierarchical, false))
    algorithms.push_back(Algorithm::hierarchical);
  return algorithms;
}

// Runs it once; the time from the call to the last rank's return.
Time run_once(Group& group, const GroupCall& call, const Expected& expected, std::string& wrong) {
  const Time begun = group.simulation().now();
  Time ended = begun;
  const auto tell = [&wrong](std::string what) {
    if (wrong.empty()) wrong = std::move(what);
  };
  const Status ran = group.run([&](Group::Rank& rank) {
    const std::uint64_t all = call.count * static_cast<std::uint64_t>(call.ranks);
    const bool gives = call.kind != CollectiveKind::scatter || rank.number == call.root;
    Values input(gives ? (gives_all_to_each(call.kind) ? all : call.count) : 0);
    for (std::uint64_t i = 0; i < input.size(); ++i) input[i] = value(rank.number, i);
    Values output(std::max(expected.elements(rank.number), call.kind == CollectiveKind::barrier ? 0 : call.count));
    Collective operation;
    operation.kind = call.kind;
    operation.algorithm = call.algorithm;
    operation.type = DataType::u64;
    operation.count = call.count;
    operation.root = call.root;
    operation.local_completion = call.local;
    operation.input = input.data();
    operation.output = output.data();
    const Status status = rank.communicator->run(operation);
    ended = std::max(ended, group.simulation().now());
    tell(status ? compare(expected, rank.number, output) : status.to_string());
  });
  if (!ran) tell(ran.to_string());
  return ended - begun;
}

int times_of(const GroupCall& call) {
  const bool fans = call.algorithm == Algorithm::direct || call.algorithm == Algorithm::one_shot;
  const std::uint64_t messages = expected_sent(call, 1).messages * static_cast<std::uint64_t>(call.ranks);
  const bool parts = call.kind == CollectiveKind::all_reduce && call.algorithm == Algorithm::direct;
  const std::uint64_t block = call.bytes() / (parts ? static_cast<std::uint64_t>(call.ranks) : 1);
  return (fans && block < 4 * call.piece) || messages <= kFew ? 4 : 1;
}

}  // namespace

GroupMeasured measure(Group& group, GroupCall call) {
  call.ranks = group.options().ranks;
  call.piece = group.options().slot_bytes;
  call.per_host = group.options().per_host;
  GroupMeasured out;
  out.call = call;
  out.times = times_of(call);
  out.formula_ns = expected_ns(call, group.options().link);
  std::vector<Traffic> before;
  for (int rank = 0; rank < call.ranks; ++rank) before.push_back(group.fabric().sent_by(*group.rank(rank).host));
  const Expected expected(call);
  for (int time = 0; time < out.times; ++time)
    out.virtual_ns += static_cast<double>(run_once(group, call, expected, out.wrong)) / out.times;
  const auto times = static_cast<std::uint64_t>(out.times);
  for (int rank = 0; rank < call.ranks; ++rank) {
    const Traffic& was = before[static_cast<std::size_t>(rank)];
    const Traffic is = group.fabric().sent_by(*group.rank(rank).host);
    const Sent formula = expected_sent(call, rank);
    const Sent sent{is.messages - was.messages, is.bytes - was.bytes};
    if (out.unlike < 0 && (sent.messages != times * formula.messages || sent.bytes != times * formula.bytes))
      out.unlike = rank;
    out.messages += sent.messages;
    out.bytes += sent.bytes;
    out.formula_messages += formula.messages;
    out.formula_bytes += formula.bytes;
    out.records += is.records - was.records + is.counts - was.counts;
  }
  out.messages /= times;
  out.bytes /= times;
  out.records /= times;
  return out;
}

std::vector<GroupCall> calls_for(const Group& group, std::uint64_t most, bool local) {
  const auto ranks = static_cast<std::uint64_t>(group.options().ranks);
  const std::uint64_t piece = group.options().slot_bytes / 8;
  std::vector<GroupCall> calls;
  for (const CollectiveKind kind : kKinds)
    for (const Algorithm algorithm : algorithms_of(kind, group.options().per_host > 1))
      for (const std::uint64_t count : {std::uint64_t{1}, piece, piece + 1, 10 * piece, ranks * piece + 3}) {
        GroupCall call;
        call.kind = kind;
        call.algorithm = algorithm;
        call.ranks = group.options().ranks;
        call.per_host = group.options().per_host;
        call.piece = group.options().slot_bytes;
        call.count = kind == CollectiveKind::barrier ? 0 : count;
        if (kind == CollectiveKind::barrier && count != 1) continue;
        if (local && !has_root(kind)) continue;
        call.local = local;
        const bool blocks = gives_all_to_each(kind) || takes_all(kind);
        if (call.bytes() * (blocks ? ranks : 1) > most) continue;
        if (expected_sent(call, 1).messages * ranks > kMostMessages) continue;
        calls.push_back(call);
      }
  return calls;
}

std::vector<std::pair<CollectiveKind, Algorithm>> algorithms_of_calls(bool on_hosts) {
  std::vector<std::pair<CollectiveKind, Algorithm>> out;
  for (const CollectiveKind kind : kKinds)
    for (const Algorithm algorithm : algorithms_of(kind, on_hosts)) out.emplace_back(kind, algorithm);
  return out;
}

std::vector<std::string> names_of_calls() {
  std::vector<std::string> names;
  const auto add = [&names](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  for (const CollectiveKind kind : kKinds) add(to_string(kind));
  for (const CollectiveKind kind : kKinds)
    for (const Algorithm algorithm : algorithms_of(kind, true)) add(to_string(algorithm));
  return names;
}

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
  std::ranges::stable_sort(out.messages, [](const GroupMessage& a, const GroupMessage& b) {
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
