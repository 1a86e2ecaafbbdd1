#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/collectives.h"
#include "fairway/status.h"

// A machine's table of ways (way_table.h, host/ways.h) as a file: where it is kept, and what frames it.
namespace fairway::collectives {

// In $XDG_CACHE_HOME/fairway or ~/.cache/fairway, named after the key. Error: neither variable is set.
Result<std::string> way_file_path(const std::string& key);
// Errors: not_found; access_denied: others could have written it; resource_exhausted: it is too long for a table.
Result<std::string> read_way_file(const std::string& path);
// All of it or nothing; makes the folder. Only this user may write it afterwards.
Status write_way_file(const std::string& path, const std::string& text);

// The frame of a table that is kept in a file: what it is and its format, of which machine, rows, and a sum of all.
// Pure.

// `what`: "fairway: ways of collectives on streams". `rows`: lines.
[[nodiscard]] std::string framed(std::string_view what, int format, const std::string& key, const std::string& rows);
// Its rows. Errors say why it cannot be used: it is no such table, of another format, cut or damaged, or of another
// machine (`key`).
[[nodiscard]] Result<std::vector<std::string>> rows_in(const std::string& text, std::string_view what, int format,
                                                       const std::string& key);
[[nodiscard]] inline Status unusable(const std::string& why) {
  return {ErrorCode::protocol_error, why};
}

// Collective: the time of one of `many` operations at the slowest rank, of which each rank gives how long all took.
inline Status slowest(Communicator& group, std::chrono::steady_clock::duration took, std::uint64_t many,
                      std::uint64_t& ns) {
  constexpr std::uint64_t kLongest = 10'000'000'000;
  const auto own = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  std::uint64_t mine = std::clamp<std::uint64_t>(own / many, 1, kLongest);
  return group.run({.kind = CollectiveKind::all_reduce,
                    .input = &mine,
                    .output = &ns,
                    .count = 1,
                    .type = DataType::u64,
                    .reduction = Reduction::max});
}

}  // namespace fairway::collectives
