#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/host/wire.h"

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

// Rings, chains and trees along hosts and NUMA nodes, whatever the order in which the launcher has numbered the ranks.

// Ranks by their places: those of a host beside each other, in it those of a NUMA node, and there by number. Hosts and
// nodes come in the order of their first ranks. Every rank computes the same. Empty: they are numbered so already.
[[nodiscard]] std::vector<int> order_of(const std::vector<Words>& words);

// The group of each rank, from 0 on in the order of their first ranks: those of a host, or, where all are of one host,
// those of a NUMA node. Empty: there is one group, or no two ranks share one.
[[nodiscard]] std::vector<int> groups_of(const std::vector<Words>& words);

// make_schedule() with the ranks in those places, where the collective lets any rank take any: all_reduce, broadcast,
// reduce and barrier that combine in no order of ranks, and all_gather and reduce_scatter by ring.
void make_schedule_along(std::span<const int> order, const Shape& shape, Schedule& out);

// Writes the steps of one schedule. Shared by the files of the algorithms. Owner: make_schedule().
class ScheduleWriter {
 public:
  ScheduleWriter(const Shape& shape, Schedule& out)
      : shape_(shape), out_(out), piece_(shape.piece_bytes / shape.element_bytes * shape.element_bytes) {
    out_.steps.clear();
    out_.scratch_bytes = 0;
  }

  // direction: of the ranks that a rank sends to first, one further or one back.
  void barrier(int direction = 1);
  // Behind what has a root, so that all hear of one that is not there.
  void hear_all(int direction = 1) {
    if (!shape_.local) barrier(direction);
  }
  void all_reduce();
  void reduce();
  void broadcast();
  void all_gather();
  void gather();
  void scatter();
  void reduce_scatter();
  void all_to_all();
  void all_to_allv();
  // Of a whole schedule: multiplies the input wherever a step reads it.
  void scale_input();

 private:
  // A block of bytes, that travels in pieces.
  struct Block {
    Place place;
    std::uint64_t bytes = 0;
  };
  using Kind = Step::Kind;

  [[nodiscard]] int rank() const { return shape_.rank; }
  [[nodiscard]] int size() const { return shape_.size; }
  [[nodiscard]] int wrap(int rank) const { return (rank % shape_.size + shape_.size) % shape_.size; }
  [[nodiscard]] std::uint64_t bytes() const { return shape_.count * shape_.element_bytes; }
  [[nodiscard]] Place own_input() const { return {Buffer::input, 0}; }
  [[nodiscard]] Place own_output() const { return {Buffer::output, 0}; }
  // Block `index` of a buffer of `size` equal ones.
  [[nodiscard]] Block equal(Buffer buffer, int index) const {
    return {{buffer, bytes() * static_cast<std::uint64_t>(index)}, bytes()};
  }
  // Block `index` of one vector that is cut into so many blocks, whose lengths differ by an element at most.
  [[nodiscard]] Block part(Buffer buffer, int index) const { return part(buffer, index, shape_.size); }
  [[nodiscard]] Block part(Buffer buffer, int index, int parts) const {
    const auto start = [this, parts](int i) {
      return shape_.count / parts * i + std::min<std::uint64_t>(shape_.count % parts, i);
    };
    return {{buffer, start(index) * shape_.element_bytes}, (start(index + 1) - start(index)) * shape_.element_bytes};
  }

  // An empty block is one empty message: its arrival says that the peer takes part.
  [[nodiscard]] std::uint64_t pieces(std::uint64_t of) const { return of == 0 ? 1 : (of + piece_ - 1) / piece_; }
  static Place moved(Place place, std::uint64_t by) { return {place.buffer, place.at + by}; }

  void add(Kind kind, int peer, Place from, Place into, std::uint64_t length, std::uint64_t of,
           std::uint64_t index = 0) {
    out_.steps.push_back({kind, peer, from, into, length, of, index > 0});
  }
  // Piece `index` of a block, if it has so many.
  void send(int peer, const Block& block, std::uint64_t index);
  void receive(int peer, const Block& block, std::uint64_t index);
  // The same, and a copy, of what stays as it is: no later step reads it there.
  void land(int peer, const Block& block, std::uint64_t index);
  void keep(Place from, Place into, std::uint64_t length);
  // Of the own values, to where they belong: piece `index`, once it was sent, so that memory is read once.
  void keep_piece(const Block& into, std::uint64_t index);
  [[nodiscard]] bool outgrows_caches() const;
  void reduce_into(const Block& into, const Place& with, int peer, std::uint64_t index, Kind kind = Kind::reduce);
  void copy(Place from, Place into, std::uint64_t length);
  void finish(Place into, std::uint64_t length);
  // The input into the output, if that is another place or another value.
  void begin_in_output() {
    if (!shape_.in_place || shape_.premul) copy(own_input(), own_output(), bytes());
  }
  void use_scratch(std::uint64_t length) { out_.scratch_bytes = std::max(out_.scratch_bytes, length); }

  // Calls post(index) for all pieces, each at least one ahead of take(index).
  template <class Post, class Take>
  static void ahead(std::uint64_t count, Post post, Take take) {
    post(std::uint64_t{0});
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i + 1 < count) post(i + 1);
      take(i);
    }
  }
  // Sends one block and receives another, piece by piece in turns.
  void swap(int to, const Block& out, int from, const Block& in);
  void swap_reduce(int to, const Block& out, int from, const Block& in, const Place& with);

  // Piece `index` of a block: own values, and one message from each other rank, combined in the order of ranks. Uses
  // scratch memory from `scratch` on.
  void combine_in_order(const Place& own, const Block& into, std::uint64_t index, std::uint64_t scratch);
  void all_reduce_one_shot();
  void all_reduce_direct();
  void all_reduce_recursive_doubling();
  void all_reduce_ring();

  // schedule_reduce.cc: ranks in groups, and this one's place.
  struct Levels {
    std::vector<std::vector<int>> ranks;  // by group
    int group = 0, place = 0;
    int parts = 1;
    [[nodiscard]] const std::vector<int>& here() const { return ranks[static_cast<std::size_t>(group)]; }
  };
  [[nodiscard]] Levels levels() const;
  void all_reduce_in_levels();
  void all_reduce_between_owners(const Levels& levels, const Block& block);

  void all_gather_direct();
  void all_gather_bruck();
  void all_to_all_in_place();
  void all_to_all_bruck();

  const Shape& shape_;
  Schedule& out_;
  std::uint64_t piece_;
};

}  // namespace fairway::collectives
