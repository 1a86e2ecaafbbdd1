#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Who is at fault when an operation's deadline passes. Pure.
namespace fairway::collectives {

// What is known of a rank.
struct Observed {
  bool asked = false;           // for its words
  bool answers = false;         // they could be read
  bool gone = false;            // its engine is, or it left
  std::uint64_t operation = 0;  // the newest that it has entered
  bool moves = false;           // its steps grew between two looks
  int waits_for = -1;
};

struct Blame {
  int rank = -1;  // -1: nobody alone
  std::string text;
};

// `names`: of the ranks, as errors show them. `waits_for`: the rank that `self` waits for, -1: none. Who has not come
// is that one and those that are as far back as it; else those that are furthest back: with local completion others
// lag, too, and are not why.
[[nodiscard]] Blame blame(const std::vector<Observed>& ranks, const std::vector<std::string>& names, int self,
                          std::uint64_t operation, int waits_for = -1);

}  // namespace fairway::collectives
