#include "group_acts.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace fairway::tool::soak::groups {
namespace {

std::byte byte_of(std::uint64_t salt, std::size_t at) {
  return static_cast<std::byte>(mix(salt + at / 8) >> 8 * (at % 8));
}

}  // namespace

Outcome Acts::ended(const Status& status, const Call& call) {
  if (!status) {
    ++board_.failed;
    return {status, {}};
  }
  ++board_.operations[static_cast<std::size_t>(call.collective().kind)];
  board_.bytes += call.bytes();
  return {{}, call.wrong()};
}

Outcome Acts::run_one(Communicator& group, Draws& draws) {
  const Drawn drawn = draw_call(draws, group, largest_);
  const Call call(drawn, group.rank(), group.size());
  return ended(group.run(call.collective()), call);
}

Outcome Acts::run_together(Communicator& group, Draws& draws) {
  std::vector<Call> calls;
  Drawn drawn;
  for (std::uint64_t left = 1 + draws.below(12); left > 0; --left) {
    const bool alike = draws.one_in(3) || calls.empty();
    if (alike) drawn = draw_call(draws, group, std::min<std::uint64_t>(largest_, 8192));
    drawn.salt = draws.next();
    if (draws.one_in(2)) drawn.kind = CollectiveKind::all_reduce, drawn.algorithm = Algorithm::automatic;
    calls.emplace_back(drawn, group.rank(), group.size());
  }
  std::vector<Collective> all;
  for (const Call& call : calls) all.push_back(call.collective());
  const Status status = group.run_all(all);
  for (const Call& call : calls)
    if (Outcome outcome = ended(status, call); !outcome.status || !outcome.wrong.empty()) return outcome;
  return {};
}

Outcome Acts::run_started(Communicator& group, Draws& draws) {
  std::vector<Call> calls;
  for (std::uint64_t left = 2 + draws.below(4); left > 0; --left)
    calls.emplace_back(draw_call(draws, group, std::min<std::uint64_t>(largest_, 64 << 10)), group.rank(),
                       group.size());
  std::vector<OperationId> ids;
  Outcome first;
  for (const Call& call : calls) {
    const auto id = group.start(call.collective());
    if (!id) {
      first.status = id.status();
      break;
    }
    ids.push_back(*id);
  }
  // Collected in any order, which is each rank's own matter.
  std::vector<std::size_t> order(ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Draws own(draws.next() + static_cast<std::uint64_t>(group.rank()));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[own.below(i)]);
  for (const std::size_t i : order) {
    for (std::uint64_t polls = own.below(3) * own.below(50); polls > 0 && !group.test(ids[i]); --polls)
      ++board_.seats[0].steps;
    Outcome outcome = ended(group.wait(ids[i]), calls[i]);
    if (first.status) first.status = outcome.status;
    if (first.wrong.empty()) first.wrong = std::move(outcome.wrong);
  }
  return first;
}

// Each pair of ranks sends a message to and fro.
Outcome Acts::exchange(Communicator& group, Draws& draws) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (std::size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[draws.below(i)]);
  const std::uint64_t salt = draws.next();
  const auto tag = static_cast<std::uint32_t>(draws.below(3));
  const std::uint64_t most = draws.one_in(8) ? largest_ : 6000;
  const std::size_t sizes[] = {static_cast<std::size_t>(draws.below(most)),
                               static_cast<std::size_t>(draws.below(most))};
  const auto place = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), group.rank()) - ranks.begin());
  const std::size_t other = place ^ 1;
  if (other >= ranks.size()) return {};
  std::vector<std::byte> out(sizes[place % 2]), in(sizes[other % 2] + 16);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = byte_of(salt + 1'000'003 * place, i);
  std::size_t received = 0;
  const auto send = [&] { return group.send(out.data(), out.size(), ranks[other], tag); };
  const auto receive = [&] { return group.receive(in.data(), in.size(), ranks[other], tag, &received); };
  Status status = place % 2 == 0 ? send() : receive();
  if (status) status = place % 2 == 0 ? receive() : send();
  if (!status) {
    ++board_.failed;
    return {status, {}};
  }
  ++board_.messages;
  board_.bytes += received;
  if (received != sizes[other % 2])
    return {{}, fmt::format("a message of {} bytes came as {} at rank {}", sizes[other % 2], received, group.rank())};
  for (std::size_t i = 0; i < received; ++i)
    if (in[i] != byte_of(salt + 1'000'003 * other, i))
      return {{}, fmt::format("byte {} of a message of {} at rank {} is wrong", i, received, group.rank())};
  return {};
}

Outcome Acts::split(Communicator& group, Draws& draws) {
  const std::uint64_t colors = 1 + draws.below(3), salt = draws.next();
  const auto chosen = [&](int rank) {
    const std::uint64_t bits = mix(salt + static_cast<std::uint64_t>(rank));
    return bits % 7 == 0 ? -1 : static_cast<int>((bits >> 8) % colors);
  };
  const int color = chosen(group.rank());
  const int key = static_cast<int>(mix(salt + 99 + static_cast<std::uint64_t>(group.rank())) % 3);
  auto part = group.split(color, key);
  if (color < 0) {
    if (!part && part.status().code() == ErrorCode::not_found) return {};
    return {part.status(), part ? "a negative color is in a group" : ""};
  }
  if (!part) return {part.status(), {}};
  ++board_.groups;
  int members = 0;
  for (int rank = 0; rank < group.size(); ++rank) members += chosen(rank) == color ? 1 : 0;
  if (part->size() != members) return {{}, fmt::format("a group of {} has {} ranks", members, part->size())};
  Draws theirs(salt + static_cast<std::uint64_t>(color));
  return run_one(*part, theirs);
}

Outcome Acts::play(Communicator& group, Draws draws, unsigned most) {
  for (std::uint64_t left = 1 + draws.below(most); left > 0; --left) {
    Outcome outcome;
    switch (draws.below(8)) {
      case 0: outcome = run_together(group, draws); break;
      case 1: outcome = run_started(group, draws); break;
      case 2: outcome = exchange(group, draws); break;
      default: outcome = run_one(group, draws); break;
    }
    if (!outcome.status || !outcome.wrong.empty()) return outcome;
  }
  return {};
}

}  // namespace fairway::tool::soak::groups
