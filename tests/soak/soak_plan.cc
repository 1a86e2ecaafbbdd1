#include "soak_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace fairway::tool::soak {
namespace {

struct Word {
  const char* name;
  bool Faults::*field;
};
constexpr Word kFaultWords[] = {{"kill", &Faults::kill},
                                {"freeze", &Faults::freeze},
                                {"revoke", &Faults::revoke},
                                {"cancel", &Faults::cancel},
                                {"deadline", &Faults::deadline}};

// Sizes as likely small as large: each power of two as often as the next.
std::uint64_t some_size(Random& random, std::uint64_t least, std::uint64_t most) {
  std::uint64_t size = least;
  while (size * 2 <= most && !random.one_in(12)) size *= 2;
  if (random.one_in(2)) size = least << random.below(64 - static_cast<unsigned>(__builtin_clzll(most / least)));
  if (random.one_in(2)) size += random.below(size);  // and not only powers
  return std::clamp(size, least, most);
}

microseconds some_time(Random& random, std::uint64_t most) {
  return microseconds(random.below(some_size(random, 8, most) + 1));
}

Kind some_kind(Random& random) {
  switch (random.below(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: return Kind::write;
    case 5:
    case 6:
    case 7: return Kind::read;
    case 8:
    case 9: return Kind::pages_out;
    case 10: return Kind::pages_in;
    case 11:
    case 12:
    case 13: return Kind::send;
    case 14: return Kind::fetch_add;
    default: return Kind::compare_swap;
  }
}

// Fills one round: bytes of each memory are given away once.
class Planner {
 public:
  Planner(const Settings& settings, std::uint64_t number)
      : settings_(settings),
        random_(mixed(settings.seed, number)),
        bytes_(memory_bytes(settings)),
        next_(settings.engines, std::vector<std::uint64_t>(settings.memories.size(), kWordBytes)),
        words_(settings.engines, std::vector<std::uint64_t>(settings.memories.size(), kSwapped)) {
    round_.number = number;
  }

  Round plan() {
    const std::uint64_t steps = 16 + random_.below(40) * settings_.engines;
    const std::uint64_t spread = random_.one_in(2) ? 0 : 2000 + random_.below(20000);  // microseconds
    for (std::uint64_t i = 0; i < steps; ++i)
      if (auto step = some_step(spread)) round_.steps.push_back(*step);
    for (unsigned i = 0; i < round_.steps.size(); ++i) round_.steps[i].index = i;
    round_.fault = some_fault();
    return std::move(round_);
  }

 private:
  std::optional<Step> some_step(std::uint64_t spread) {
    Step step;
    step.kind = some_kind(random_);
    step.from.process = static_cast<unsigned>(random_.below(settings_.engines));
    step.to.process = static_cast<unsigned>(random_.below(settings_.engines - 1));
    if (step.to.process >= step.from.process) ++step.to.process;
    step.from.memory = static_cast<unsigned>(random_.below(settings_.memories.size()));
    step.to.memory = static_cast<unsigned>(random_.below(settings_.memories.size()));
    step.start = microseconds(spread == 0 ? 0 : random_.below(spread));
    step.priority = static_cast<Priority>(random_.below(3));
    if (settings_.faults.cancel && random_.one_in(10)) step.cancel = some_time(random_, 4000);
    if (settings_.faults.deadline && random_.one_in(12)) step.deadline = some_time(random_, 8000) + microseconds(1);
    if (is_atomic(step.kind)) {
      step.to.at = 8 * (random_.below(kAdded) + (step.kind == Kind::compare_swap ? kAdded : 0));
      step.piece = 8;
      return step;
    }
    const bool paged = step.kind == Kind::pages_out || step.kind == Kind::pages_in;
    if (paged) {
      step.piece = some_size(random_, 8, std::min<std::uint64_t>(settings_.largest, 128 << 10));
      step.count =
          1 + random_.below(std::min<std::uint64_t>(1024, std::max<std::uint64_t>(1, settings_.largest / step.piece)));
      step.shuffle = random_.next();
    } else {
      step.piece = some_size(random_, 8, settings_.largest);
    }
    for (Place* place : {&step.from, &step.to})
      place->stride = step.piece + (paged && random_.one_in(2) ? random_.below(300) : 0);
    if (!give(step.from, step) || !give(step.to, step)) return std::nullopt;
    step.checksum = random_.one_in(12);
    step.receive = some_time(random_, 3000);
    if (step.kind == Kind::write || step.kind == Kind::pages_out) some_notification(step);
    return step;
  }

  void some_notification(Step& step) {
    switch (random_.below(5)) {
      case 0: step.notify = NotifyKind::event; break;
      case 1: step.notify = NotifyKind::counter; break;
      case 2: {
        std::uint64_t& word = words_[step.to.process][step.to.memory];
        if (word == kWords) break;
        step.notify = NotifyKind::signal;
        step.adds = random_.one_in(2);
        step.word = 8 * word++;
        break;
      }
      default: break;
    }
  }

  // Room for the pieces at some alignment. False: there is none.
  bool give(Place& place, const Step& step) {
    std::uint64_t& next = next_[place.process][place.memory];
    const std::uint64_t alignment = std::uint64_t{1} << random_.below(13);
    const std::uint64_t at =
        (next + alignment - 1) / alignment * alignment + (random_.one_in(4) ? random_.below(8) : 0);
    const std::uint64_t size = place.stride * (step.count - 1) + step.piece;
    if (at + size + 8 > bytes_) return false;
    place.at = at;
    next = at + size + random_.below(64);
    return true;
  }

  Fault some_fault() {
    Fault fault;
    const std::uint64_t which = random_.below(24);
    fault.process = static_cast<unsigned>(random_.below(settings_.engines));
    fault.memory = static_cast<unsigned>(random_.below(settings_.memories.size()));
    fault.at = some_time(random_, 20000);
    if (which < 3 && settings_.faults.kill) fault.kind = Fault::Kind::kill;
    if (which >= 3 && which < 6 && settings_.faults.freeze) {
      fault.kind = Fault::Kind::freeze;  // mostly it comes back in time, sometimes it is given up meanwhile
      fault.lasts = random_.one_in(8) ? kPeerTimeout * 5 / 4 : microseconds(random_.below(300'000));
    }
    if (which >= 6 && which < 9 && settings_.faults.revoke) fault.kind = Fault::Kind::revoke;
    return fault;
  }

  const Settings& settings_;
  Random random_;
  const std::uint64_t bytes_;
  std::vector<std::vector<std::uint64_t>> next_, words_;  // by process and memory: what is still free
  Round round_;
};

}  // namespace

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  return Random(a ^ Random(b).next()).next();
}

std::vector<std::uint64_t> pieces_of(const Step& step, Side side) {
  const Place& place = side == Side::from ? step.from : step.to;
  std::vector<std::uint64_t> at(step.count);
  std::iota(at.begin(), at.end(), 0);
  Random random(mixed(step.shuffle, side == Side::from ? 1 : 2));
  for (std::uint64_t i = step.count; step.shuffle != 0 && i > 1; --i) std::swap(at[i - 1], at[random.below(i)]);
  for (std::uint64_t& each : at) each = place.at + each * place.stride;
  return at;
}

std::uint64_t memory_bytes(const Settings& settings) {
  return std::max<std::uint64_t>(4 * settings.largest + kWordBytes, 1 << 20);
}

std::string Step::what() const {
  constexpr const char* kNames[] = {"write", "read", "pages out", "pages in", "send", "fetch_add", "compare_swap"};
  constexpr const char* kTold[] = {"", "+event", "+counter", "+signal"};
  return std::string(kNames[static_cast<int>(kind)]) + kTold[static_cast<int>(notify)];
}

Round plan_of(const Settings& settings, std::uint64_t number) {
  return Planner(settings, number).plan();
}

Result<Faults> faults_of(const std::vector<std::string>& words) {
  Faults faults{false, false, false, false, false};
  for (const std::string& word : words) {
    const auto known = std::find_if(std::begin(kFaultWords), std::end(kFaultWords),
                                    [&](const Word& each) { return word == each.name; });
    if (known != std::end(kFaultWords))
      faults.*known->field = true;
    else if (word != "none" || words.size() > 1)
      return Status(ErrorCode::invalid_argument,
                    "--faults: '" + word + "' is none of kill, freeze, revoke, cancel, deadline, or none alone");
  }
  return faults;
}

std::vector<std::string> words_of(const Faults& faults) {
  std::vector<std::string> words;
  for (const Word& each : kFaultWords)
    if (faults.*each.field) words.emplace_back(each.name);
  if (words.empty()) words.emplace_back("none");
  return words;
}

}  // namespace fairway::tool::soak
