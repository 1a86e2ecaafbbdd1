#include "collectives/host/alarms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "collectives/counter_range.h"

namespace fairway::collectives {
namespace {

constexpr std::uint8_t kLeaves = 1, kAborts = 2;

struct AlarmFrame {
  std::uint64_t magic = 0;
  std::uint64_t operation = 0;
  std::int32_t rank = -1, by = -1;
  std::uint8_t code = 0;
  std::uint8_t leaves = 0;
  std::uint16_t text_bytes = 0;
  char phase[72] = {};
  char text[400] = {};
};

Status no_room(Lanes& lanes) {
  return {
      ErrorCode::resource_exhausted,
      fmt::format("a communicator of {} ranks holds {} of the engine's transfers, and needs room for {} more; {} are "
                  "in use: raise EngineOptions::max_transfers",
                  lanes.size(), lanes.size() - 1, Lanes::kOutgoing, lanes.engine().metrics().transfers_in_use)};
}

}  // namespace

Alarms::Alarms(Lanes& lanes, const std::string& name)
    : lanes_(lanes),
      tag_(tag_of(TagKind::alarm, name)),
      spare_tag_(tag_of(TagKind::spare, name)),
      receives_(lanes.members().size()),
      gone_(lanes.members().size()) {
  static_assert(sizeof(AlarmFrame) <= kBytes);
}

Status Alarms::open() {
  if (lanes_.size() == 1) return {};
  auto region = lanes_.engine().allocate(kBytes * (receives_.size() + 1), Access::none);
  if (!region) return region.status().with_context("the communicator's alarms");
  region_ = *region;
  for (int rank = 0; rank < lanes_.size(); ++rank) {
    if (rank == lanes_.rank()) continue;
    const auto at = static_cast<std::size_t>(rank);
    const auto id = lanes_.engine().receive(peer(rank), tag_, {region_.id, at * kBytes, kBytes});
    if (!id && id.status().code() == ErrorCode::queue_full && !lanes_.engine().writable()) return no_room(lanes_);
    if (id)
      receives_[at] = *id;
    else
      set_gone(rank, id.status());
  }
  return check_room();
}

// With less, each operation would wait for the engine's table, and take several times as long without a word. These
// receives match nothing, and are cancelled.
Status Alarms::check_room() {
  std::array<TransferId, Lanes::kOutgoing> spare{};
  Status status;
  const auto at = static_cast<std::size_t>(lanes_.rank()) * kBytes;
  for (TransferId& one : spare) {
    const auto id = lanes_.engine().receive(peer(lanes_.rank() == 0 ? 1 : 0), spare_tag_, {region_.id, at, kBytes});
    if (id) one = *id;
    if (!id && id.status().code() == ErrorCode::queue_full) status = no_room(lanes_);
  }
  for (const TransferId one : spare) {
    if (!one) continue;
    (void)lanes_.engine().cancel(one, std::chrono::seconds(1));
    (void)lanes_.engine().wait(one, Timeout{0});
  }
  return status;
}

void Alarms::close() {
  if (!region_.id) return;
  (void)lanes_.engine().deregister(region_, std::chrono::seconds(1));  // ends the receives
  region_.id = {};
  for (TransferId& receive : receives_)
    if (receive) (void)lanes_.engine().wait(std::exchange(receive, {}), Timeout{0});
  for (const auto* left : {&left_, &left_beside_})
    for (const TransferId send : *left) (void)lanes_.engine().wait(send, Timeout{0});
}

void Alarms::set_gone(int rank, const Status& why) {
  Status& status = gone_[static_cast<std::size_t>(rank)];
  if (status) status = why;
}

std::optional<Alarm> Alarms::look() {
  std::optional<Alarm> first;
  for (int rank = 0; rank < lanes_.size(); ++rank) {
    TransferId& receive = receives_[static_cast<std::size_t>(rank)];
    if (!receive) continue;
    const auto done = lanes_.engine().wait(receive, Timeout{0});
    if (!done && done.status().code() == ErrorCode::timed_out) continue;
    receive = {};
    if (!done) {
      set_gone(rank, done.status());
      continue;
    }
    auto alarm = arrived(rank, *done);
    if (alarm && (!first || alarm->operation < first->operation)) first = std::move(alarm);
  }
  return first;
}

std::optional<Alarm> Alarms::arrived(int rank, const Completion& completion) {
  if (!completion.status) {
    set_gone(rank, completion.status);
    return {};
  }
  AlarmFrame frame;
  std::memcpy(&frame, region_.address + static_cast<std::size_t>(rank) * kBytes,
              std::min<std::size_t>(sizeof frame, completion.bytes));
  Alarm alarm;
  if (completion.bytes != sizeof frame || frame.magic != kMagic || frame.text_bytes > sizeof frame.text ||
      frame.code > static_cast<std::uint8_t>(ErrorCode::system_error)) {
    set_gone(rank, {ErrorCode::protocol_error, "it sent an alarm that cannot be read"});
    return {};
  }
  if (frame.leaves == kLeaves) {
    set_gone(rank, {ErrorCode::closed, "it has left the communicator"});
    if (frame.code == static_cast<std::uint8_t>(ErrorCode::ok)) return {};
  }
  alarm.aborts = frame.leaves == kAborts;
  alarm.rank = frame.rank >= 0 && frame.rank < lanes_.size() ? frame.rank : -1;
  alarm.by = frame.by >= 0 && frame.by < lanes_.size() ? frame.by : rank;
  alarm.operation = frame.operation;
  alarm.code = static_cast<ErrorCode>(frame.code);
  alarm.phase.assign(frame.phase, strnlen(frame.phase, sizeof frame.phase));
  alarm.text.assign(frame.text, frame.text_bytes);
  if (alarm.aborts) set_gone(rank, {ErrorCode::cancelled, "it has aborted the communicator"});
  return alarm;
}

void Alarms::raise(const Alarm& alarm) {
  std::vector<int> to;
  for (int rank = 0; rank < lanes_.size(); ++rank)
    if (rank != lanes_.rank() && gone(rank)) to.push_back(rank);
  send(alarm, static_cast<std::size_t>(lanes_.rank()), to, left_);
}

void Alarms::raise_beside(const Alarm& alarm) {
  std::vector<int> to;  // who is gone belongs to the other thread; a send to those fails at once
  for (int rank = 0; rank < lanes_.size(); ++rank)
    if (rank != lanes_.rank()) to.push_back(rank);
  send(alarm, receives_.size(), to, left_beside_);
}

void Alarms::pass_on(const Alarm& alarm, int rank) {
  if (!region_.id) return;
  const auto slot = static_cast<std::size_t>(lanes_.rank());
  write(alarm, slot);
  const auto id = lanes_.engine().send(peer(rank), tag_, {region_.id, slot * kBytes, sizeof(AlarmFrame)});
  if (id) left_.push_back(*id);
  (void)lanes_.engine().poll({});
}

void Alarms::write(const Alarm& alarm, std::size_t slot) {
  AlarmFrame frame;
  frame.magic = kMagic;
  frame.operation = alarm.operation;
  frame.rank = alarm.rank;
  frame.by = alarm.by >= 0 ? alarm.by : lanes_.rank();
  frame.code = static_cast<std::uint8_t>(alarm.code);
  frame.leaves = alarm.aborts ? kAborts : alarm.leaves ? kLeaves : 0;
  frame.text_bytes = static_cast<std::uint16_t>(std::min(alarm.text.size(), sizeof frame.text));
  std::memcpy(frame.text, alarm.text.data(), frame.text_bytes);
  std::memcpy(frame.phase, alarm.phase.data(), std::min(alarm.phase.size(), sizeof frame.phase));
  std::memcpy(region_.address + slot * kBytes, &frame, sizeof frame);
}

void Alarms::send(const Alarm& alarm, std::size_t slot, const std::vector<int>& to, std::vector<TransferId>& left) {
  if (!region_.id) return;
  write(alarm, slot);
  const std::uint64_t at = slot * kBytes;
  const Time end = Clock::now() + std::chrono::milliseconds(100);
  std::deque<TransferId> sends;
  const auto end_first = [&] {
    const TransferId send = sends.front();
    sends.pop_front();
    if (lanes_.engine().wait(send, until(end))) return;
    (void)lanes_.engine().cancel(send, Timeout{1000});
    if (lanes_.engine().wait(send, Timeout{0}).status().code() == ErrorCode::timed_out) left.push_back(send);
  };
  for (const int rank : to) {
    auto id = lanes_.engine().send(peer(rank), tag_, {region_.id, at, sizeof(AlarmFrame)});
    // The engine has room for fewer at a time than there are ranks: the next one takes the place of the first.
    while (!id && id.status().code() == ErrorCode::queue_full && !sends.empty()) {
      end_first();
      id = lanes_.engine().send(peer(rank), tag_, {region_.id, at, sizeof(AlarmFrame)});
    }
    if (id) sends.push_back(*id);
  }
  while (!sends.empty()) end_first();
}

namespace {

std::string never_entered(const Observed& rank) {
  return rank.operation == 0 ? std::string("never entered it, nor any before")
                             : fmt::format("never entered it; it was last in operation {}", rank.operation);
}

std::string does_not_answer(const Observed& /*rank*/) {
  return "does not answer";
}

// As far back as the one that is waited for, if it is one of them.
void keep_those_behind(const std::vector<Observed>& ranks, int waits_for, std::vector<std::size_t>& those) {
  std::uint64_t at = ~std::uint64_t{0};
  for (const std::size_t i : those) at = std::min(at, ranks[i].operation);
  for (const std::size_t i : those)
    if (static_cast<int>(i) == waits_for) at = ranks[i].operation;
  std::erase_if(those, [&](std::size_t i) { return ranks[i].operation != at; });
}

}  // namespace

Blame blame(const std::vector<Observed>& ranks, const std::vector<std::string>& names, int self,
            std::uint64_t operation, int waits_for) {
  const auto is_gone = [](const Observed&) { return std::string("is gone"); };
  // The surest first: who left before it, who never came, who is gone, who says nothing, who stands still. One that was
  // in it and is gone has most likely met its own deadline a moment ago, and gone home: it is not why nobody came on.
  struct Reason {
    bool (*is)(const Observed&, std::uint64_t);
    std::string (*text)(const Observed&);
  };
  const Reason reasons[] = {
      {[](const Observed& rank, std::uint64_t entered) { return rank.gone && rank.operation < entered; }, is_gone},
      // One that moves is in an earlier operation, and waits there for the one that does not.
      {[](const Observed& rank, std::uint64_t entered) {
         return rank.answers && rank.operation < entered && !rank.moves;
       },
       never_entered},
      {[](const Observed& rank, std::uint64_t entered) { return rank.answers && rank.operation < entered; },
       never_entered},
      {[](const Observed& rank, std::uint64_t) { return rank.gone; }, is_gone},
      {[](const Observed& rank, std::uint64_t) { return rank.asked && !rank.answers; }, does_not_answer},
      {[](const Observed& rank, std::uint64_t) { return rank.answers && !rank.moves; },
       [](const Observed&) {
         return std::string("entered it, and does nothing: it is frozen, or its caller is away");
       }},
  };
  for (const Reason& reason : reasons) {
    std::vector<std::size_t> those;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (static_cast<int>(i) != self && reason.is(ranks[i], operation)) those.push_back(i);
    if (those.empty()) continue;
    if (reason.text == never_entered) keep_those_behind(ranks, waits_for, those);
    Blame found;
    if (reason.text == does_not_answer && those.size() > 1 && those.size() + 1 == ranks.size()) {
      found.text = "no other rank answers: this one is cut off from them, or they are all away";
      return found;
    }
    found.rank = static_cast<int>(those.front());
    for (const std::size_t i : those)
      found.text += fmt::format("{}{} {}", found.text.empty() ? "" : ", ", names[i], reason.text(ranks[i]));
    return found;
  }
  Blame nobody;
  if (std::none_of(ranks.begin(), ranks.end(), [](const Observed& rank) { return rank.asked; })) {
    nobody.text = "it was too short to ask the other ranks where they are";
    if (waits_for >= 0)
      nobody.text += fmt::format("; this one waits for {}", names[static_cast<std::size_t>(waits_for)]);
    return nobody;
  }
  nobody.text = "every rank is in it and works: it takes longer than its timeout";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (static_cast<int>(i) != self && ranks[i].waits_for >= 0)
      nobody.text += fmt::format(", {} waits for rank {}", names[i], ranks[i].waits_for);
  return nobody;
}

std::optional<Blame> blame_lost(const std::vector<Hearing>& ranks, const std::vector<std::string>& names, int self,
                                int lost, bool is_over) {
  std::array<int, 5> count{};
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (static_cast<int>(i) != self) ++count[static_cast<std::size_t>(ranks[i])];
  const auto of = [&count](Hearing one) { return count[static_cast<std::size_t>(one)]; };
  const bool lost_us = ranks[static_cast<std::size_t>(lost)] == Hearing::lost_us;
  if (of(Hearing::answers) + of(Hearing::nothing_yet) == 0) {  // there is none left to ask
    const bool alone = of(Hearing::lost) + of(Hearing::lost_us) == 1;
    if (of(Hearing::lost_us) != 0)
      return Blame{self, fmt::format("this rank lives, but {} it: what it sends does not arrive",
                                     alone ? names[static_cast<std::size_t>(lost)] + " hears nothing of"
                                           : "no other rank hears")};
    if (!alone) return Blame{-1, "this rank hears none of the others: it is cut off from them, or they have all died"};
    return Blame{lost, ""};
  }
  // Who has lost this rank tells the others, who tell this one, unless it hears nobody: then it is the one.
  if (is_over || (!lost_us && of(Hearing::answers) != 0)) return Blame{lost, ""};
  return {};
}

}  // namespace fairway::collectives
