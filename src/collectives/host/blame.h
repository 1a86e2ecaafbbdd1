#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Who is at fault when an operation's deadline passes, or a rank is lost. Pure.
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

// What is known of a rank when one is lost.
enum class Hearing : std::uint8_t {
  nothing_yet,  // it was asked, and has not answered
  answers,
  lost,     // nothing is heard of it
  lost_us,  // it hears nothing of this rank, and has said so
  left,     // the communicator
};

// `lost`: the rank that this one has lost, or that has lost this one. Either may be cut off; and if this one is, the
// others that it loses live. Nothing: it is not known yet. It is known once another rank answers, or none is left that
// could; or it `is_over`: those that are not lost by then are heard. An empty text: what is known of the lost one.
[[nodiscard]] std::optional<Blame> blame_lost(const std::vector<Hearing>& ranks, const std::vector<std::string>& names,
                                              int self, int lost, bool is_over);

}  // namespace fairway::collectives
