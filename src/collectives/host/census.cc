#include "collectives/host/census.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "collectives/counter_range.h"

namespace fairway::collectives {
namespace {

constexpr Timeout kHearing{10'000};    // of waiting for one rank, before it looks at all
constexpr Timeout kSending{300'000};   // of what others wait for
constexpr Timeout kGivingUp{100'000};  // the same, of the word that this rank has given up

Status no_room() {
  return {ErrorCode::resource_exhausted,
          "the engine has no room for the messages by which ranks agree: raise EngineOptions::max_transfers"};
}

}  // namespace

Census::Census(Lanes& lanes, const std::string& name)
    : lanes_(lanes),
      tag_(tag_of(TagKind::census, name)),
      bytes_(sizeof(Said) + (lanes.members().size() + 7) / 8),
      receives_(lanes.members().size()),
      has_(lanes.members().size()),
      gone_(lanes.members().size()) {}

// Receives before anybody sends: with little room messages go a few at a time.
Status Census::open(const Alive& alive) {
  if (!region_.id) {
    auto region = lanes_.engine().allocate((receives_.size() + kRounds) * bytes_, Access::none);
    if (!region) return region.status();
    region_ = *region;
  }
  for (int other = 0; other < lanes_.size(); ++other)
    if (alive[static_cast<std::size_t>(other)] != 0 && other != lanes_.rank()) (void)has_message(other, Timeout{0});
  return {};
}

void Census::close() {
  if (!region_.id) return;
  (void)lanes_.engine().deregister(region_, std::chrono::seconds(1));  // ends them all
  region_.id = {};
  for (const auto* all : {&receives_, &sends_[0], &sends_[1], &left_})
    for (const TransferId one : *all)
      if (one) (void)lanes_.engine().wait(one, Timeout{0});
}

bool Census::has_ended(TransferId transfer) {
  const auto done = lanes_.engine().wait(transfer, Timeout{0});
  return done || done.status().code() != ErrorCode::timed_out;
}

// Who has not taken what was said two rounds ago has died, or is left out; or the attempt is over.
void Census::take_back(std::vector<TransferId>& sends) {
  for (const TransferId send : sends) {
    if (has_ended(send)) continue;
    (void)lanes_.engine().cancel(send, Timeout{1000});
    if (!has_ended(send)) left_.push_back(send);
  }
  sends.clear();
  std::erase_if(left_, [this](TransferId send) { return has_ended(send); });
}

// The room in the engine is for who comes next.
void Census::let_go(Time deadline) {
  for (auto& sends : sends_)
    for (;;) {
      std::erase_if(sends, [this](TransferId send) { return has_ended(send); });
      if (sends.empty() || until(deadline).count() == 0) break;
      lanes_.pause(Timeout{100});
    }
}

Status Census::say(const Alive& alive, bool gives_up, Time deadline) {
  auto& sends = sends_[round_ % kRounds];
  take_back(sends);
  const std::size_t place = receives_.size() + round_ % kRounds;
  std::byte* const message = message_at(place);
  std::memset(message, 0, bytes_);
  const Said said{.magic = kMagic, .attempt = attempt_, .round = round_, .gives_up = gives_up ? 1U : 0U};
  std::memcpy(message, &said, sizeof said);
  for (std::size_t i = 0; i < alive.size(); ++i)
    if (alive[i] != 0) message[sizeof said + i / 8] |= std::byte{1} << (i % 8);
  for (int other = 0; other < lanes_.size(); ++other) {
    if (alive[static_cast<std::size_t>(other)] == 0 || other == lanes_.rank()) continue;
    for (;;) {
      const auto id = lanes_.engine().send(peer(other), tag_, {region_.id, place * bytes_, bytes_});
      if (id) sends.push_back(*id);
      if (id || id.status().code() != ErrorCode::queue_full) break;  // who is gone is found by its receive
      if (until(deadline).count() == 0) return no_room();
      std::erase_if(sends, [this](TransferId send) { return has_ended(send); });
      lanes_.pause(Timeout{100});
    }
  }
  return {};
}

Census::Said Census::message_of(int rank) const {
  Said said;
  std::memcpy(&said, message_at(static_cast<std::size_t>(rank)), sizeof said);
  return said;
}

bool Census::lives(int rank, int other) const {
  const auto at = static_cast<std::size_t>(other);
  const std::byte word = message_at(static_cast<std::size_t>(rank))[sizeof(Said) + at / 8];
  return (word & std::byte{1} << (at % 8)) != std::byte{0};
}

Result<bool> Census::has_message(int rank, Timeout most) {
  const auto at = static_cast<std::size_t>(rank);
  if (has_[at] != 0) return true;
  if (!gone_[at]) return gone_[at];
  TransferId& receive = receives_[at];
  if (!receive) {
    const auto id = lanes_.engine().receive(peer(rank), tag_, {region_.id, at * bytes_, bytes_});
    if (!id && id.status().code() == ErrorCode::queue_full) {
      lanes_.pause(std::min(most, Timeout{100}));
      return false;
    }
    if (!id) return gone_[at] = id.status();
    receive = *id;
  }
  const auto done = lanes_.engine().wait(receive, most);
  if (!done && done.status().code() == ErrorCode::timed_out) return false;
  receive = {};
  if (!done) return gone_[at] = done.status();
  if (!done->status) return gone_[at] = done->status;
  if (done->bytes != bytes_ || message_of(rank).magic != kMagic)
    return gone_[at] = {ErrorCode::protocol_error, "it has said what cannot be read"};
  has_[at] = 1;
  return true;
}

Status Census::missing(const Round& round, const Alive& alive) const {
  std::string names;
  int first = -1, count = 0;
  for (int other = 0; other < lanes_.size(); ++other) {
    const auto at = static_cast<std::size_t>(other);
    if (round.heard[at] != 0 || alive[at] == 0 || other == lanes_.rank()) continue;
    if (!receives_[at]) return no_room();
    names += fmt::format("{}{}", count == 0 ? "" : ", ", name_of(other));
    if (count++ == 0) first = other;
  }
  return Status(ErrorCode::timed_out,
                fmt::format("{} {} not called shrink in time", names, count == 1 ? "has" : "have"))
      .with_peer(name_of(first));
}

// Until that rank's of this round, or one that ends the round.
Status Census::take_messages(int rank, Timeout most, Round& round, Alive& alive) {
  const auto at = static_cast<std::size_t>(rank);
  while (round.heard[at] == 0) {
    const auto has = has_message(rank, most);
    if (!has) {
      alive[at] = 0;
      round.heard[at] = 1;
      return {};
    }
    if (!*has) return {};
    const Said one = message_of(rank);
    if (std::pair(one.attempt, one.round) < std::pair(attempt_, round_)) {
      has_[at] = 0;
      continue;
    }
    if (one.gives_up == 0 && !lives(rank, lanes_.rank()))
      return {ErrorCode::cancelled, "the other ranks go on without this one"};
    if (one.attempt > attempt_) {
      attempt_ = one.attempt;
      round.is_over = true;
      return {};
    }
    has_[at] = 0;
    if (one.gives_up != 0)
      return {ErrorCode::peer_dead,
              fmt::format("{} gave up, because another rank died meanwhile: call shrink again", name_of(rank))};
    if (one.round != round_) return {ErrorCode::protocol_error, fmt::format("{} is in another round", name_of(rank))};
    round.heard[at] = 1;
    for (int other = 0; other < lanes_.size(); ++other) {
      const bool lives_there = lives(rank, other);
      round.same = round.same && lives_there == (round.said[static_cast<std::size_t>(other)] != 0);
      if (!lives_there) alive[static_cast<std::size_t>(other)] = 0;
    }
  }
  return {};
}

Status Census::hear(Round& round, Alive& alive, Time deadline) {
  for (;;) {
    bool all = true;
    Timeout most = kHearing;  // for the first that has not come; the others are looked at
    for (int other = 0; other < lanes_.size(); ++other) {
      const auto at = static_cast<std::size_t>(other);
      // Whom another rank leaves out, this one does in the next round: it may be one that never comes.
      if (alive[at] == 0 || round.heard[at] != 0 || other == lanes_.rank()) continue;
      if (Status status = take_messages(other, std::min(most, until(deadline)), round, alive); !status) return status;
      if (round.is_over) return {};
      if (round.heard[at] != 0) continue;
      all = false;
      most = Timeout{0};
    }
    if (all) return {};
    if (until(deadline).count() == 0) return missing(round, alive);
  }
}

Result<std::uint32_t> Census::take(Alive& alive, Time deadline) {
  ++attempt_;
  round_ = 0;
  if (lanes_.size() == 1) return attempt_;
  if (Status status = open(alive); !status) return status;
  for (auto& sends : sends_) take_back(sends);
  for (bool once = false;;) {
    if (Status status = say(alive, false, deadline); !status) return status;
    Round round{alive, std::vector<std::uint8_t>(alive.size())};
    if (Status status = hear(round, alive, deadline); !status) return status;
    if (round.is_over) {
      once = false;
      round_ = 0;
      for (auto& sends : sends_) take_back(sends);
      continue;
    }
    const bool same = round.same && alive == round.said;
    if (same && once) {
      let_go(std::min(deadline, after(Clock::now(), kSending)));
      return attempt_;
    }
    once = same;
    ++round_;
  }
}

void Census::give_up(const Alive& alive) {
  if (!region_.id) return;
  ++round_;
  const Time end = after(Clock::now(), kGivingUp);
  (void)say(alive, true, end);
  let_go(end);
}

}  // namespace fairway::collectives
