#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "soak_plan.h"
#include "soak_words.h"

namespace fairway::tool::soak {

struct Row {
  std::uint64_t steps = 0, bytes = 0, cancelled = 0;  // bytes of those that were ok
  std::uint64_t nanoseconds = 0;                      // of those, each one's together
  std::uint64_t longest = 0;                          // of any, nanoseconds
  std::map<std::string, std::uint64_t> failed;        // by cause
};

// What all parts together have done. A value.
struct Totals {
  std::map<std::tuple<std::string, std::string, std::string>, Row> rows;  // by from, to, operation
  std::uint64_t next = 0, rounds = 0, killed = 0, frozen = 0, revoked = 0;
  double seconds = 0;

  void add(const Settings& settings, const Round& round, const std::vector<std::optional<Ended>>& ended);
  [[nodiscard]] Row sum() const;
};

std::string table(const Totals& totals);
std::string json(const Totals& totals, const Settings& settings);

// The file to go on from. It is written whole or not at all, and read only for the settings that it was written with.
Status save(const std::string& path, const Totals& totals, const Settings& settings);
// not_found: there is none yet. invalid_argument: it is none, or is another soak's.
Result<Totals> load(const std::string& path, const Settings& settings);

}  // namespace fairway::tool::soak
