// Who keeps a communicator's ranks waiting, by what each tells of itself. Pure.
#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "fairway/collectives.h"

namespace fairway {
namespace {

std::string call_of(const RankProgress& rank) {
  return fmt::format("{} {}", to_string(rank.kind), rank.operation);
}

std::string seconds(double value) {
  return fmt::format("{:.1f} s", value);
}

// What one rank does, where `front` is the one that is furthest and waits. Empty: it only waits.
std::string reason(const RankProgress& rank, const RankProgress& front) {
  if (!rank.lives) return fmt::format("is gone (process {})", rank.process);
  const std::string stopped = rank.stopped ? fmt::format("; its process {} is stopped", rank.process) : "";
  if (rank.operation < front.operation) {
    const std::string last = rank.operation == 0 ? std::string("it was in none before")
                             : rank.inside
                                 ? fmt::format("it has been in {} for {}", call_of(rank), seconds(rank.seconds))
                                 : fmt::format("it ended {} {} ago", call_of(rank), seconds(rank.seconds));
    return fmt::format("never entered {}: {}{}", call_of(front), last, stopped);
  }
  if (rank.stopped) return fmt::format("is in {}{}", call_of(rank), stopped);
  return {};
}

// Of one communicator, in the order of ranks.
std::string verdict(std::span<const RankProgress> ranks, double patience) {
  const RankProgress* front = nullptr;
  for (const RankProgress& rank : ranks)
    if (rank.lives && rank.inside && (front == nullptr || rank.operation > front->operation)) front = &rank;
  if (front == nullptr || front->seconds < patience) return {};
  std::string causes, waits;
  std::size_t known = 0;
  for (const RankProgress& rank : ranks) {
    ++known;
    if (const std::string why = reason(rank, *front); !why.empty())
      causes += fmt::format("{}rank {} {}", causes.empty() ? "" : "; ", rank.rank, why);
    else if (rank.inside && rank.waits_for >= 0)
      waits += fmt::format("; rank {} waits for rank {} ({})", rank.rank, rank.waits_for, rank.phase);
  }
  if (causes.empty()) causes = fmt::format("every rank here is in {}{}", call_of(*front), waits);
  std::string text = fmt::format("\"{}\": {}; rank {} has been in it for {}", front->name, causes, front->rank,
                                 seconds(front->seconds));
  if (known < static_cast<std::size_t>(front->size))
    text += fmt::format("; of its {} ranks {} are not on this host, or of another user", front->size,
                        static_cast<std::size_t>(front->size) - known);
  return text;
}

}  // namespace

std::vector<std::string> who_hangs(const std::vector<RankProgress>& ranks, double patience_seconds) {
  std::vector<std::string> all;
  for (std::size_t from = 0, to = 0; from < ranks.size(); from = to) {
    while (to < ranks.size() && ranks[to].group == ranks[from].group) ++to;
    std::string text = verdict(std::span(ranks).subspan(from, to - from), patience_seconds);
    if (!text.empty()) all.push_back(std::move(text));
  }
  return all;
}

}  // namespace fairway
