#include "soak_check.h"

#include <algorithm>
#include <map>
#include <thread>

#include <fmt/format.h>

namespace fairway::tool::soak {
namespace {

constexpr auto kLinger = std::chrono::milliseconds(20);
constexpr auto kPatience = std::chrono::seconds(10);

bool concerns(const Fault& fault, const Step& step) {
  if (fault.kind == Fault::Kind::none) return false;
  if (fault.kind != Fault::Kind::revoke) return step.by() == fault.process || step.with() == fault.process;
  const auto touches = [&](const Place& place) {
    return place.process == fault.process && place.memory == fault.memory;
  };
  return touches(step.to) || (!is_atomic(step.kind) && touches(step.from));
}

// The dead say nothing, and what is known of their steps is that they do no more.
bool of_the_killed(const Round& round, const Step& step) {
  return round.fault.kind == Fault::Kind::kill && round.fault.process == step.by();
}

// Of all steps that bring bytes to this process, or change its words.
template <class Call>
void each_here(Play& play, const Call& call) {
  for (const Step& step : play.round().steps)
    if (step.to.process == play.endpoint().process() && !is_read(step.kind) && !play.touches_taken(step.to)) call(step);
}

void check_signal(Play& play, const Step& step, const Ended& ended) {
  const auto word = play.endpoint().memory(step.to.memory).word(step.word);
  if (!word) return play.wrong(word.status().to_string());
  const std::uint64_t sets = mixed(play.round().number, step.index) | 1;
  if (*word != sets && *word != 0) return play.wrong(step, fmt::format("its signal is {:#x}", *word));
  if (*word == 0 && ended.ok()) return play.wrong(step, "its signal was not set");
  if (*word != 0 && !ended.ok() && !ended.may_have_landed()) play.wrong(step, "nothing of it landed, but its signal");
  if (*word == 0) return;
  if (const std::string what = play.mixture(step, false, true); !what.empty())
    play.wrong(step, "its signal was set before its bytes: " + what);
}

void check_write(Play& play, const Step& step) {
  const Ended& ended = *play.ended(step);
  if (step.notify == NotifyKind::signal) check_signal(play, step, ended);
  if (step.notify == NotifyKind::event) {
    if (ended.ok() && play.told(step) == 0) play.wrong(step, "it is done, but its notification did not come");
    if (!ended.ok() && !ended.may_have_landed() && play.told(step) != 0)
      play.wrong(step, "nothing of it landed, but its notification came");
  }
  const bool all = ended.ok() || ended.far == Cancelled::Far::all;
  if (const std::string what = play.mixture(step, !all, ended.ok() || ended.may_have_landed()); !what.empty())
    play.wrong(step, fmt::format("it ended with {}: {}", ended.ok() ? "ok" : ended.words, what));
  play.close(step, ended.is_final() || of_the_killed(play.round(), step));
}

void check_send(Play& play, const Step& step) {
  const Ended& sent = *play.ended(step);
  const auto& received = play.received(step);
  if (!received) return play.wrong(step, "its receive has not ended");
  if (sent.ok() && !received->ok()) play.wrong(step, "sent, but its receive ended with " + received->words);
  if (received->ok() && !sent.ok() && !sent.may_have_landed())
    play.wrong(step, "received, but its sender was told that nothing of it landed");
}

// Of one word: how often it was added to, and what who added was told.
void check_sum(Play& play, unsigned memory, std::uint64_t at, const std::vector<const Step*>& steps) {
  const auto value = play.endpoint().memory(memory).word(at);
  if (!value) return play.wrong(value.status().to_string());
  std::uint64_t done = 0, perhaps = 0;
  std::map<std::uint64_t, const Step*> before;
  for (const Step* step : steps) {
    const Ended& ended = *play.ended(*step);
    if (!ended.ok()) {
      perhaps += ended.may_have_landed() ? 1 : 0;
      continue;
    }
    ++done;
    if (!before.emplace(ended.old_value, step).second || ended.old_value >= *value)
      play.wrong(*step, fmt::format("it found {}, as another did or beyond the last, {}", ended.old_value, *value));
  }
  if (*value < done || *value > done + perhaps)
    play.wrong(*steps.front(), fmt::format("{} to {} ones were added to the word at {}, which is {}", done,
                                           done + perhaps, at, *value));
}

// Of one word: who swapped it away from zero is in it, and all others found that one.
void check_swap(Play& play, unsigned memory, std::uint64_t at, const std::vector<const Step*>& steps) {
  const auto value = play.endpoint().memory(memory).word(at);
  if (!value) return play.wrong(value.status().to_string());
  bool may_be = *value == 0;
  for (const Step* step : steps) {
    const Ended& ended = *play.ended(*step);
    if (ended.ok() && ended.old_value == 0 && *value != step->index + 1)
      play.wrong(*step, fmt::format("it found zero, but the word is {}", *value));
    if (ended.ok() && ended.old_value != 0 && ended.old_value != *value)
      play.wrong(*step, fmt::format("it found {}, but the word is {}", ended.old_value, *value));
    may_be |= *value == step->index + 1 && (ended.ok() ? ended.old_value == 0 : ended.may_have_landed());
    if (ended.ok() && *value == 0) may_be = false;
  }
  if (!may_be) play.wrong(*steps.front(), fmt::format("nobody put {} into the word at {}", *value, at));
}

void check_words(Play& play) {
  std::map<std::pair<unsigned, std::uint64_t>, std::vector<const Step*>> words;
  each_here(play, [&](const Step& step) {
    if (is_atomic(step.kind)) words[{step.to.memory, step.to.at}].push_back(&step);
  });
  for (const auto& [word, steps] : words)
    (steps.front()->kind == Kind::fetch_add ? check_sum : check_swap)(play, word.first, word.second, steps);
}

void check_counters(Play& play) {
  std::map<unsigned, std::pair<std::uint64_t, std::uint64_t>> wanted;  // by process: at least, at most
  for (const Step& step : play.round().steps) {
    if (step.notify != NotifyKind::counter || step.to.process != play.endpoint().process()) continue;
    const Ended& ended = *play.ended(step);
    wanted[step.from.process].first += ended.ok() ? 1 : 0;
    wanted[step.from.process].second += ended.ok() || ended.may_have_landed() ? 1 : 0;
  }
  for (const auto& [process, range] : wanted)
    if (const std::uint64_t count = play.counted(process); count < range.first || count > range.second)
      play.wrong(
          fmt::format("process {} was counted {} times, not {} to {}", process, count, range.first, range.second));
}

void turn_until(Play& play, const std::function<bool()>& done, Clock::duration patience) {
  for (const auto until = Clock::now() + patience; !done() && Clock::now() < until;)
    if (!play.turn()) std::this_thread::sleep_for(microseconds(50));
}

}  // namespace

Ended of_the_dead() {
  Ended ended;
  ended.code = ErrorCode::peer_dead;
  ended.words = "the death of its process";
  return ended;
}

std::string unexpected(const Round& round, const Step& step, const Ended& ended) {
  switch (ended.code) {
    case ErrorCode::ok: return {};
    case ErrorCode::cancelled:
      if (step.cancel.count() >= 0) return {};
      break;
    case ErrorCode::deadline_exceeded:
      if (step.deadline.count() > 0) return {};
      break;
    default: break;
  }
  // A write whose memory was taken back may cost its link, and of an atomic that this link had on its way nobody knows:
  // it is never done twice (docs/ARCHITECTURE.md).
  const bool beside = step.by() == round.fault.process || step.with() == round.fault.process;
  if (round.fault.kind == Fault::Kind::revoke && beside && is_atomic(step.kind) &&
      ended.code == ErrorCode::link_failed && ended.effect == Effect::unknown)
    return {};
  if (concerns(round.fault, step)) {
    if (round.fault.kind == Fault::Kind::revoke) {
      if (ended.code == ErrorCode::revoked || ended.code == ErrorCode::cancelled) return {};
    } else if (ended.code == ErrorCode::peer_dead || ended.code == ErrorCode::stale_incarnation ||
               ended.code == ErrorCode::link_failed) {
      return {};
    }
  }
  return "ended with " + ended.words;
}

bool settled(const Play& play) {
  const Fault& fault = play.round().fault;
  const unsigned me = play.endpoint().process();
  if (fault.kind == Fault::Kind::kill && fault.process != me && !play.knows_gone(fault.process)) return false;
  if (!play.has_asked()) return false;  // of a send that was cancelled the receive may be due later
  std::map<unsigned, std::uint64_t> counts;
  for (const Step& step : play.round().steps) {
    if (step.to.process != me || is_read(step.kind) || !play.ended(step)->ok() || play.touches_taken(step.to)) continue;
    if (step.kind == Kind::send && !play.received(step)) return false;
    if (step.notify == NotifyKind::event && play.told(step) == 0) return false;
    if (step.notify == NotifyKind::counter) ++counts[step.from.process];
  }
  return std::all_of(counts.begin(), counts.end(),
                     [&](const auto& each) { return play.counted(each.first) >= each.second; });
}

Status conclude(Play& play) {
  turn_until(
      play, [&] { return settled(play); }, kPatience);
  const Fault& fault = play.round().fault;
  if (fault.kind == Fault::Kind::kill && fault.process != play.endpoint().process() && !play.knows_gone(fault.process))
    play.wrong(fmt::format("process {} was killed, and nobody said so for 10 s", fault.process));
  play.stop_receiving();
  turn_until(
      play, [&] { return !play.receives(); }, kPatience);
  each_here(play, [&](const Step& step) {
    if (step.kind == Kind::send)
      check_send(play, step);
    else if (!is_atomic(step.kind))
      check_write(play, step);
  });
  turn_until(
      play, [] { return false; }, kLinger);
  check_words(play);
  check_counters(play);
  for (auto& memory : play.endpoint().memories()) {
    const auto where = memory->compare();
    if (!where) return where.status();
    if (!where->empty()) play.wrong(memory->name() + " at the end: " + *where);
  }
  for (unsigned i = 0; i < play.endpoint().memories().size(); ++i) {
    if (!play.endpoint().memory(i).taken()) continue;
    if (Status status = play.endpoint().memory(i).give(play.endpoint().engine()); !status) return status;
    if (Status status = play.endpoint().publish(i); !status) return status;
  }
  return {};
}

}  // namespace fairway::tool::soak
