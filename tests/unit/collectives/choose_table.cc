#include "unit/collectives/choose_table.h"

#include <algorithm>
#include <sstream>

namespace fairway::collectives {
namespace {

constexpr std::uint64_t kKiB = 1024;

// The longest message that a communicator of so many ranks has unless told otherwise: of 8 for each other rank 16 MiB
// have to hold all.
std::uint64_t piece_of(int size, std::uint64_t most) {
  if (most == 0) return mapped_piece(size);
  return std::min<std::uint64_t>(most, (16U << 20) / 8 / static_cast<std::uint64_t>(size - 1) / 64 * 64);
}

std::string from(std::uint64_t bytes) {
  std::ostringstream text;
  if (bytes > kKiB && bytes % kKiB == 1)
    text << ">" << bytes / kKiB << "K ";
  else
    text << bytes << " ";
  return text.str();
}

}  // namespace

std::string choices(CollectiveKind kind, int size, const Link& link) {
  constexpr std::uint64_t kMost = 64U << 20;
  const auto chosen = [&](std::uint64_t bytes) {
    return choose(kind, size, bytes, piece_of(size, link.most_piece), *link.costs);
  };
  Algorithm last = chosen(0);
  std::string text(to_string(last));
  for (std::uint64_t at = 0, next = 1; next <= kMost; at = next, next += std::max<std::uint64_t>(1, next / 512)) {
    const Algorithm now = chosen(next);
    if (now == last) continue;
    std::uint64_t low = at, high = next;  // what `last` is taken for, and what not
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      (chosen(middle) == last ? low : high) = middle;
    }
    text += ", " + from(high) + std::string(to_string(now));
    last = now;
  }
  return text;
}

std::string row(CollectiveKind kind, const Link& link) {
  std::string text = "| " + std::string(to_string(kind)) + " | " + link.name + " |";
  for (const int size : kTableRanks) text += " " + choices(kind, size, link) + " |";
  return text;
}

}  // namespace fairway::collectives
