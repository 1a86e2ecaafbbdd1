// Communicators made of communicators.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

Result<Communicator> Communicator::split(int color, int key) {
  if (state_ == nullptr) return State::moved();
  if (Status status = state_->check_open(); !status) return status.with_context("split");
  State& state = *state_;
  struct Choice {
    std::int32_t color, key;
  };
  const Choice mine{color, key};
  std::vector<Choice> all(static_cast<std::size_t>(size()));
  Collective gather;
  gather.kind = CollectiveKind::all_gather;
  gather.input = &mine;
  gather.output = all.data();
  gather.count = 2;
  gather.type = DataType::i32;
  if (Status status = run(gather); !status) return status.with_context("split");
  if (color < 0) return Status(ErrorCode::not_found, "split: a negative color is in no group");
  std::vector<int> group;
  for (int i = 0; i < size(); ++i)
    if (all[static_cast<std::size_t>(i)].color == color) group.push_back(i);
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  std::vector<Member> members;
  int place = 0;
  for (const int old : group) {
    if (old == rank()) place = static_cast<int>(members.size());
    members.push_back(state.lanes.members()[static_cast<std::size_t>(old)]);
  }
  CommunicatorOptions options = state.options;
  options.name += fmt::format("/{}.{}", state.started, color);
  const Time deadline = after(Clock::now(), options.timeout);
  auto made = State::join(state.engine, std::move(members), place, options, state.family, deadline, &state);
  if (!made) return made.status().with_context("split");
  return Communicator(std::move(*made));
}

Result<Communicator> Communicator::shrink(std::span<const int> without) {
  if (state_ == nullptr) return State::moved();
  if (Status status = state_->check_open(); !status) return status.with_context("shrink");
  State& state = *state_;
  Alive alive(static_cast<std::size_t>(size()), 1);
  for (const int rank : without) {
    if (rank < 0 || rank >= size() || rank == this->rank())
      return Status(ErrorCode::invalid_argument, fmt::format("shrink: without {}: not another rank", rank));
    alive[static_cast<std::size_t>(rank)] = 0;
  }
  (void)state.alarms.look();
  for (int rank = 0; rank < size(); ++rank)
    if (rank != this->rank() && !state.alarms.gone(rank)) alive[static_cast<std::size_t>(rank)] = 0;
  CommunicatorOptions options = state.options;
  const auto agreed = state.census.take(alive, after(Clock::now(), options.timeout));
  if (!agreed) return agreed.status().with_context("shrink");
  options.name += fmt::format("#{}", *agreed);
  std::vector<Member> members;
  int place = 0;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    if (alive[i] == 0) continue;
    if (static_cast<int>(i) == rank()) place = static_cast<int>(members.size());
    members.push_back(state.lanes.members()[i]);
  }
  const Time deadline = after(Clock::now(), options.timeout);
  auto made = State::join(state.engine, std::move(members), place, options, state.family, deadline);
  if (!made) {
    state.census.give_up(alive);
    return made.status().with_context("shrink");
  }
  return Communicator(std::move(*made));
}

}  // namespace fairway
