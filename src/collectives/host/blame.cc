#include "collectives/host/blame.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

namespace fairway::collectives {
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
