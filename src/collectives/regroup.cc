// Communicators made of communicators.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

Result<Communicator> Communicator::split(int color, int key) {
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

namespace {

// Which ranks of the old communicator go on, as one of them sees it.
using Alive = std::vector<std::uint8_t>;

// Sends what it knows to everybody it knows of, and hears the same of them, until all know the same. A rank that goes
// meanwhile is left out. Between two calls of it the tags differ by `round`.
class Census {
 public:
  Census(Engine& engine, const std::vector<Member>& members, int rank, std::string name, Time deadline)
      : engine_(engine), members_(members), rank_(rank), name_(std::move(name)), deadline_(deadline) {}

  Status take(Alive& alive) {
    auto memory = engine_.allocate((members_.size() + 1) * alive.size(), Access::none);
    if (!memory) return memory.status();
    Status status;
    for (; status; ++round_) {
      const auto same = exchange(*memory, alive, round_);
      if (same && *same) break;
      status = same.status();
    }
    const Status freed = engine_.deregister(*memory);
    return status ? freed : status;
  }

  // A rank may have heard the same of all, and go on, while others have missed one that died, and ask it once more.
  // When it cannot go on, it tells them, by a message of another size.
  void give_up(const Alive& alive) {
    auto memory = engine_.allocate(1, Access::none);
    if (!memory) return;
    std::vector<TransferId> sends;
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (alive[i] != 0 && static_cast<int>(i) != rank_)
        if (const auto id = engine_.send(members_[i].peer, tag_of(name_, round_ + 1), {memory->id, 0, 1}))
          sends.push_back(*id);
    const Time end = Clock::now() + std::chrono::milliseconds(100);
    for (const TransferId send : sends) (void)engine_.wait(send, until(end));
    (void)engine_.deregister(*memory, std::chrono::seconds(1));  // ends those that have not gone
    for (const TransferId send : sends) (void)engine_.wait(send, Timeout{0});
  }

 private:
  // True: everybody in `alive` has said the same.
  Result<bool> exchange(const Region& memory, Alive& alive, std::uint32_t round) {
    const std::size_t bytes = alive.size();
    const Alive said = alive;
    std::copy(said.begin(), said.end(), reinterpret_cast<std::uint8_t*>(memory.address) + members_.size() * bytes);
    std::vector<std::pair<std::size_t, TransferId>> sends, receives;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (said[i] == 0 || static_cast<int>(i) == rank_) continue;
      const std::uint64_t tag = tag_of(name_, round);
      const auto in = engine_.receive(members_[i].peer, tag, {memory.id, i * bytes, bytes});
      const auto out = in ? engine_.send(members_[i].peer, tag, {memory.id, members_.size() * bytes, bytes}) : in;
      if (in) receives.emplace_back(i, *in);
      if (out) sends.emplace_back(i, *out);
      if (!out) alive[i] = 0;
    }
    bool same = true;
    Status late;
    for (const auto& [i, id] : receives) {
      const auto done = engine_.wait(id, until(deadline_));
      if (!done) {
        (void)engine_.cancel(id, Timeout{100'000});
        (void)engine_.wait(id, Timeout{0});
        late = Status(ErrorCode::timed_out, fmt::format("{} has not called shrink in time", members_[i].name))
                   .with_peer(members_[i].name);
        continue;
      }
      if (done->status && done->bytes == 1 && late)
        late =
            Status(ErrorCode::peer_dead,
                   fmt::format("{} gave up, because another rank died meanwhile: call shrink again", members_[i].name));
      if (!done->status || done->bytes != bytes) {
        alive[i] = 0;
        continue;
      }
      const auto* const theirs = reinterpret_cast<const std::uint8_t*>(memory.address) + i * bytes;
      for (std::size_t k = 0; k < bytes; ++k) {
        same = same && theirs[k] == said[k];
        if (theirs[k] == 0) alive[k] = 0;
      }
    }
    // Who gave up takes none; the others may still need theirs.
    const Time end = late ? deadline_ : std::min(deadline_, after(Clock::now(), std::chrono::milliseconds(300)));
    for (const auto& [i, id] : sends) {
      if (engine_.wait(id, until(end))) continue;
      (void)engine_.cancel(id, Timeout{100'000});
      (void)engine_.wait(id, Timeout{0});
    }
    if (!late) return late;
    if (alive[static_cast<std::size_t>(rank_)] == 0)
      return Status(ErrorCode::cancelled, "the other ranks go on without this one");
    return same && alive == said;
  }

  Engine& engine_;
  const std::vector<Member>& members_;
  const int rank_;
  const std::string name_;
  const Time deadline_;
  std::uint32_t round_ = 0;
};

}  // namespace

Result<Communicator> Communicator::shrink(std::span<const int> without) {
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
  options.name += fmt::format("#{}", ++state.shrinks);
  Census census(state.engine, state.lanes.members(), rank(), options.name, after(Clock::now(), options.timeout));
  if (Status status = census.take(alive); !status) return status.with_context("shrink");
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
    census.give_up(alive);
    return made.status().with_context("shrink");
  }
  return Communicator(std::move(*made));
}

}  // namespace fairway
