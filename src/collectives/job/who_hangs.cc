// Who keeps a communicator's ranks waiting, by what each tells of itself. Pure.
#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "fairway/collectives.h"

#include "collectives/gpu/plan.h"

namespace fairway {
namespace {

std::string call_of(const RankProgress& rank) {
  if (rank.stream >= 0)
    if (const auto ends = collectives::gpu::message_ends(static_cast<std::uint32_t>(rank.stream)))
      return fmt::format("message {} from rank {} to rank {}", rank.call, ends->from, ends->to);
  if (rank.stream >= 0) return fmt::format("{} {} on stream {}", to_string(rank.kind), rank.operation, rank.stream);
  return fmt::format("{} {}", to_string(rank.kind), rank.operation);
}

std::string seconds(double value) {
  return fmt::format("{:.1f} s", value);
}

// What one rank does, where `front` is the one that is furthest and waits, and `least` the operation of those that are
// furthest back: others behind the front may wait for these, where operations complete locally. Empty: it only waits.
std::string reason(const RankProgress& rank, const RankProgress& front, std::uint64_t least) {
  if (!rank.lives) return fmt::format("is gone (process {})", rank.process);
  const std::string stopped = rank.stopped ? fmt::format("; its process {} is stopped", rank.process) : "";
  if (rank.operation < front.operation && (rank.operation == least || rank.stopped)) {
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
  std::uint64_t least = front->operation;
  for (const RankProgress& rank : ranks)
    if (rank.lives) least = std::min(least, rank.operation);
  std::string causes, waits;
  std::size_t known = 0;
  for (const RankProgress& rank : ranks) {
    ++known;
    if (const std::string why = reason(rank, *front, least); !why.empty())
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

// Where a rank is that has not come to `front`, a call on a stream. `on_stream`: null, it never was there.
std::string reason_on_stream(const RankProgress& host, const RankProgress* on_stream, const RankProgress& front) {
  if (!host.lives) return fmt::format("is gone (process {})", host.process);
  if (on_stream != nullptr && static_cast<std::int32_t>(on_stream->call - front.call) >= 0) return {};
  std::string text = fmt::format("never entered {}: ", call_of(front));
  const bool message = collectives::gpu::message_ends(static_cast<std::uint32_t>(front.stream)).has_value();
  text += on_stream == nullptr ? "it has waited in none there before"
                               : fmt::format("the last there in which it waited is {} {}", to_string(on_stream->kind),
                                             message ? on_stream->call : on_stream->operation);
  if (host.inside) text += fmt::format("; its host has been in {} for {}", call_of(host), seconds(host.seconds));
  if (host.stopped) text += fmt::format("; its process {} is stopped", host.process);
  return text;
}

// Of one stream; `hosts`: what the ranks tell of themselves. Both in the order of ranks.
std::string verdict_on_stream(std::span<const RankProgress> hosts, std::span<const RankProgress> ranks,
                              double patience) {
  const RankProgress* front = nullptr;
  for (const RankProgress& rank : ranks)
    if (rank.lives && rank.inside && (front == nullptr || static_cast<std::int32_t>(rank.call - front->call) > 0))
      front = &rank;
  if (front == nullptr || front->seconds < patience) return {};
  std::string causes, waits;
  const auto ends = collectives::gpu::message_ends(static_cast<std::uint32_t>(front->stream));
  for (const RankProgress& host : hosts) {
    if (ends && host.rank != ends->from && host.rank != ends->to) continue;
    const auto found =
        std::find_if(ranks.begin(), ranks.end(), [&host](const auto& one) { return one.rank == host.rank; });
    const RankProgress* const on_stream = found == ranks.end() ? nullptr : &*found;
    if (const std::string why = reason_on_stream(host, on_stream, *front); !why.empty())
      causes += fmt::format("{}rank {} {}", causes.empty() ? "" : "; ", host.rank, why);
    else if (on_stream->inside)
      waits += fmt::format("; rank {} waits for rank {}", host.rank, on_stream->waits_for);
  }
  if (causes.empty())
    causes = fmt::format("{} has entered {}{}", ends ? "each of the two" : "every rank here", call_of(*front), waits);
  return fmt::format("\"{}\": {}; rank {} has waited in it for {}", front->name, causes, front->rank,
                     seconds(front->seconds));
}

}  // namespace

std::vector<std::string> who_hangs(const std::vector<RankProgress>& ranks, double patience_seconds) {
  std::vector<std::string> all;
  std::span<const RankProgress> hosts;  // of the communicator
  for (std::size_t from = 0, to = 0; from < ranks.size(); from = to) {
    while (to < ranks.size() && ranks[to].group == ranks[from].group && ranks[to].stream == ranks[from].stream) ++to;
    const auto part = std::span(ranks).subspan(from, to - from);
    const bool of_host = part.front().stream < 0;
    if (of_host || (!hosts.empty() && hosts.front().group != part.front().group))
      hosts = of_host ? part : std::span<const RankProgress>();
    std::string text = of_host ? verdict(part, patience_seconds) : verdict_on_stream(hosts, part, patience_seconds);
    if (!text.empty()) all.push_back(std::move(text));
  }
  return all;
}

}  // namespace fairway
