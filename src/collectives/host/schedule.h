#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fairway/collectives.h"

// What one rank does in a collective, step by step. Pure: a function of the call, the rank and the number of ranks.
namespace fairway::collectives {

enum class Buffer : std::uint8_t { input, output, scratch };

struct Place {
  Buffer buffer = Buffer::input;
  std::uint64_t at = 0;  // bytes
};

// Steps run in order. Messages of one rank to another arrive in the order of their sends.
struct Step {
  enum class Kind : std::uint8_t {
    send,          // `from` to the peer; what it held may change afterwards
    receive,       // the peer's next message into `into`
    reduce,        // into = from combined with the peer's next message
    reduce_first,  // into = the peer's next message combined with from
    fold,          // into = into combined with from
    copy,          // into = from
    finish,        // into = into / size: an average's end
    scale,         // into = from times this rank's factor: a premul_sum's beginning
    // Of types that are combined in f32 and rounded once. `into`, or narrow's `from`, is a f32 for each element.
    widen,         // into = from
    fold_wide,     // into = into combined with from
    receive_wide,  // into = the peer's next message
    reduce_wide,   // into = into combined with the peer's next message
    narrow,        // into = from, rounded; of an average divided first
  } kind = Kind::send;
  int peer = -1;
  Place from = {}, into = {};
  std::uint64_t bytes = 0;
  std::uint64_t of = 0;    // send, receive, reduce: bytes of the whole of which this is a piece
  bool continues = false;  // a piece behind the first one of its whole
  // receive, copy: nothing here reads `into` again, and all ranks write so much that no cache keeps it for the caller.
  bool past_caches = false;
};

// Whether a step takes a message.
constexpr bool takes(Step::Kind kind) {
  return kind == Step::Kind::receive || kind == Step::Kind::reduce || kind == Step::Kind::reduce_first ||
         kind == Step::Kind::receive_wide || kind == Step::Kind::reduce_wide;
}

struct Schedule {
  std::vector<Step> steps;
  std::uint64_t scratch_bytes = 0;
};

// A call, as a schedule needs it.
struct Shape {
  CollectiveKind kind = CollectiveKind::barrier;
  Algorithm algorithm = Algorithm::automatic;  // see has_algorithm()
  int rank = 0, size = 1, root = 0;
  std::uint64_t count = 0;  // elements, as in Collective
  std::uint64_t element_bytes = 1;
  std::uint64_t piece_bytes = 1;  // longest message; at least an element
  bool in_place = false;          // as Collective describes it
  bool average = false;
  bool premul = false;   // what is read of the input is multiplied first, and nothing else
  bool ordered = false;  // every element is combined in the order of ranks
  bool wide = false;     // and in f32
  bool local = false;    // of what has a root: no barrier behind it
  // Of each rank: which group it is of, of those that are near each other, from 0 on; empty: all are of one. Only
  // `hierarchical` looks at it.
  std::span<const int> groups = {};
  std::uint64_t near_piece_bytes = 0;  // longest message within a group; 0: as piece_bytes
  Blocks send = {}, receive = {};      // all_to_allv
};

// Writes the schedule into `out`, whose memory it reuses. The algorithm is one that has_algorithm(kind).
void make_schedule(const Shape& shape, Schedule& out);

// What `hierarchical` does with a vector of so many bytes, where no group has fewer ranks than `least`: into how many
// parts it is cut, each of which one rank of every group owns; and what the owners of a part take among themselves.
[[nodiscard]] int parts_in_levels(int least, std::uint64_t bytes);
[[nodiscard]] Algorithm algorithm_between_groups(int groups, std::uint64_t bytes, std::uint64_t piece);

// Messages that may be in flight from one rank to another before the sender has to wait. With less, two ranks could
// wait for each other.
inline constexpr unsigned kLeastRoom = 4;

}  // namespace fairway::collectives
