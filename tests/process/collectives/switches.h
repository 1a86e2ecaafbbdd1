#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/host/choose.h"
#include "collectives/host/schedule.h"

// The sizes at which a communicator takes another algorithm, or has a message more.
namespace fairway {

inline constexpr std::uint64_t kElement = 4, kNearPiece = 64 << 10;

// The longest element, as the communicator names it to one who asks for longer ones.
inline std::uint64_t slot_of(Communicator& communicator) {
  Collective call{.kind = CollectiveKind::all_reduce, .reduction = Reduction::custom};
  call.custom = {[](void*, const void*, const void*, std::size_t, void*) {}, nullptr, std::size_t{1} << 30};
  const std::string said = communicator.run(call).message();
  std::uint64_t piece = 0;
  const char* const number = said.data() + said.rfind(' ') + 1;
  (void)std::from_chars(number, said.data() + said.size(), piece);
  return piece;
}

// What an operation does: its algorithm, and how many messages all ranks send.
using Doing = std::pair<Algorithm, std::size_t>;

class Finder {
 public:
  // `mapped`: all ranks are of one host and have mapped each other. `most`: bytes of all, up to which it looks for
  // other algorithms.
  Finder(Communicator& communicator, CollectiveKind kind, const std::vector<int>& groups, bool mapped,
         std::uint64_t most = std::uint64_t{2} << 20)
      : communicator_(communicator),
        kind_(kind),
        groups_(groups),
        most_(most),
        piece_(mapped ? collectives::mapped_piece(communicator.size()) : slot_of(communicator)) {}

  // Elements, on both sides of each switch to another algorithm, and of the first two of each algorithm to more
  // messages: up to so many bytes in all, and to where blocks get their second or third piece.
  std::set<std::size_t> counts() {
    const auto size = static_cast<std::uint64_t>(communicator_.size());
    const bool few = piece_ > kNearPiece || size > 4;  // comparing every value takes most of the time
    const std::uint64_t parts = kind_ == CollectiveKind::all_reduce ? size : 1;
    const auto longest = static_cast<std::size_t>(((few ? 1 : 2) * piece_ + 64) * parts / kElement);
    const auto last = std::max<std::size_t>(longest, most_ / (parts == 1 ? size : 1) / kElement);
    for (std::size_t low = 1; low < last;) {
      const std::size_t high = std::min(last, low + low / 4 + 1);
      between(low, doing(low), high, doing(high));
      low = high;
    }
    std::set<std::size_t> found{0, 1};
    std::map<Algorithm, int> own;
    std::size_t before = 0;
    for (const std::size_t at : switches_) {
      const bool to_other = doing(at - 1).first != doing(at).first;
      const bool in_run = at == before + 1;  // the parts of a vector get a piece more one after the other
      before = at;
      if (!to_other && (in_run || at > longest || ++own[doing(at).first] > 2)) continue;
      found.insert({at - 1, at, at + 1});
    }
    return found;
  }

  // Of all sizes that counts() has looked at.
  [[nodiscard]] std::size_t algorithms() const { return algorithms_.size(); }

 private:
  Doing doing(std::size_t count) {
    const Algorithm algorithm = communicator_.chosen({.kind = kind_, .count = count, .type = DataType::f32});
    algorithms_.insert(algorithm);
    collectives::Shape shape{.kind = kind_, .algorithm = algorithm, .size = communicator_.size(), .count = count};
    shape.root = 1;
    shape.element_bytes = kElement;
    shape.piece_bytes = piece_;
    shape.groups = groups_;
    shape.near_piece_bytes = groups_.empty() ? 0 : std::min(piece_, kNearPiece);
    std::size_t sent = 0;
    for (shape.rank = 0; shape.rank < shape.size; ++shape.rank) {
      collectives::make_schedule(shape, schedule_);
      for (const collectives::Step& step : schedule_.steps) sent += step.kind == collectives::Step::Kind::send ? 1 : 0;
    }
    return {algorithm, sent};
  }

  void between(std::size_t low, const Doing& at_low, std::size_t high, const Doing& at_high) {
    if (at_low == at_high) return;
    if (high - low == 1) return (void)switches_.insert(high);
    const std::size_t middle = low + (high - low) / 2;
    const Doing at_middle = doing(middle);
    between(low, at_low, middle, at_middle);
    between(middle, at_middle, high, at_high);
  }

  Communicator& communicator_;
  const CollectiveKind kind_;
  const std::vector<int>& groups_;
  const std::uint64_t most_;
  const std::uint64_t piece_;
  std::set<std::size_t> switches_;  // the first count that does something else
  std::set<Algorithm> algorithms_;
  collectives::Schedule schedule_;
};

}  // namespace fairway
