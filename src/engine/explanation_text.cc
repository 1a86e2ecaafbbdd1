#include <fmt/format.h>

#include "fairway/explain.h"

namespace fairway {
namespace {

std::string rate(double bytes_per_second) {
  if (bytes_per_second <= 0) return "unknown";
  return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
}

// The expected rate, and what limits it.
std::string expected(const ExplainedLink& link) {
  const std::string bound = link.bound.empty() ? "" : " (" + link.bound + ")";
  if (link.expected_high <= 0) return ", expected: unknown" + bound;
  if (link.expected_low <= 0) return fmt::format(", expected: at most {:.2f} GB/s", link.expected_high / 1e9) + bound;
  return fmt::format(", expected: {:.1f} to {:.1f} GB/s", link.expected_low / 1e9, link.expected_high / 1e9) + bound;
}

}  // namespace

std::string Explanation::text() const {
  std::string text = fmt::format("{} to {}: {}\n", operation, peer.empty() ? "a peer that is gone" : peer, state);
  for (const ExplainedLink& link : links) {
    text += fmt::format("  {} {}", link.taken ? "used:    " : "not used:", link.name);
    if (link.share > 0 && link.share < 1) text += fmt::format(", {:.0f} % of the bytes", link.share * 100);
    if (link.taken) text += expected(link);
    if (!link.reason.empty()) text += ": " + link.reason;
    text += '\n';
  }
  if (seconds > 0) text += fmt::format("  {} bytes in {:.1f} us: {}\n", bytes_done, seconds * 1e6, rate(reached));
  if (retried_slices > 0) text += fmt::format("  {} slices moved to another link\n", retried_slices);
  for (const std::string& note : notes) text += "  " + note + '\n';
  return text;
}

}  // namespace fairway
