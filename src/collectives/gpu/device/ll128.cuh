#pragma once

#include "collectives/gpu/device/elements.h"
#include "collectives/gpu/device/rows.h"

// What a warp of a collective's kernel does by lines (NCCL: LL128) among more than two ranks. What comes from all of them is loaded
// together: one after the other, each would take the time of a load.
namespace fairway::collectives::gpu {

// kRanks: at the most.
template <class T, class H, unsigned kRanks>
class LinesWarp : RowWarp<H> {
 public:
  FAIRWAY_IN_KERNELS LinesWarp(Channel<H>& channel, unsigned warp, std::uint64_t block_bytes)
      : RowWarp<H>(channel, warp), block_bytes_(block_bytes) {}

  // False: it has failed.
  FAIRWAY_IN_KERNELS bool run(LineRound round) const {
    if constexpr (kPassesOn<T>)
      return pass_on(round);
    else
      return run_at_once(round);
  }

 private:
  using Base = RowWarp<H>;
  using Base::call_, Base::channel_, Base::lines_;

  // Rows whose loads are on their way together: of one rank, or of each.
  static constexpr unsigned kMoved = 4, kRows = kRanks <= kFewRanks ? 2 : 1;
  // Of each rank, by rank.
  template <unsigned kEach>
  using OfAll = Rows<H, kEach>[kRanks];

  FAIRWAY_IN_KERNELS bool run_at_once(LineRound round) const {
    const bool two_shot = kCombines<T> && call_.way == Way::two_shot;
    // What the ranks get lies so far apart in the input, and in the output what they send.
    const std::uint64_t apart = two_shot ? call_.part_bytes : block_bytes_;
    const std::uint64_t bytes = two_shot ? block_bytes_ : block_bytes_ * call_.size;
    const unsigned steps = two_shot ? 2 : 1;
    return exchange_lines(
        channel_, round, steps * lines_.rounds,
        [&](std::uint32_t nth, LineRound to) {
          const Span all = this->span(nth / steps, apart);
          if (nth % steps != 0) return;  // combine() has sent them
          if (two_shot || is_to_each(call_.work))
            send_to_each(all, apart, bytes, to);
          else
            send_to_all(all, to);
        },
        [&](std::uint32_t nth, LineRound from) {
          const Span all = this->span(nth / steps, apart);
          if constexpr (kCombines<T>) {
            if (nth % steps != 0) return take(all, apart, bytes, from);
            const std::uint64_t own = two_shot || is_to_each(call_.work) ? call_.rank * apart : 0;
            return combine(two_shot ? cut(all, own, bytes) : all, call_.input + own,
                           call_.output + (two_shot ? own : 0), from, two_shot);
          } else {
            if (call_.work == Work::from_root) return take_of_root(all, from);
            return take(all, apart, bytes, from);
          }
        });
  }

  FAIRWAY_IN_KERNELS unsigned peer(unsigned k) const {
    const unsigned next = call_.rank + k;
    return next < call_.size ? next : next - call_.size;
  }
  FAIRWAY_IN_KERNELS bool is_other(unsigned rank) const { return rank < call_.size && rank != call_.rank; }
  // Of a part at `at` that `bytes` of the caller's memory end: the last parts of two_shot may be shorter, or empty.
  static FAIRWAY_IN_KERNELS Span cut(const Span& all, std::uint64_t at, std::uint64_t bytes) {
    const std::uint64_t there = bytes - at_most(at, bytes);
    const std::uint64_t begin = at_most(all.begin, there), end = at_most(all.end, there);
    const auto rows = static_cast<std::uint32_t>(end - begin + kRowBytes - 1) / kRowBytes;
    return {begin, end, rows == 0 ? 1 : rows};
  }

  // ---- a round ----

  // All of the input, which the own part of the output gets, too.
  FAIRWAY_IN_KERNELS void send_to_all(const Span& all, LineRound round) const {
    if (!kCombines<T> && !sends(call_, call_.rank)) {  // only that it is there
      const Rows<H, 1> none = {};
      for (unsigned k = 1; k < call_.size; ++k) Base::template store<1>(peer(k), round, 0, none);
      return;
    }
    unsigned char* own = kCombines<T> ? nullptr : output_from(call_, call_.rank, block_bytes_);
    if (own == call_.input) own = nullptr;
    (void)Base::template each_row<kMoved>(
        all.rows, all.whole(), place_of(call_.input) | place_of(own),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          read_rows<H, kMoved>(call_.input + all.at(first), rows);
          FAIRWAY_NOT_UNROLLED
          for (unsigned k = 1; k < call_.size; ++k)  // each begins with another, so that not all send to one
            Base::template store<kMoved>(peer(k), round, first, rows);
          if (own != nullptr) write_rows<H, kMoved>(own + all.at(first), rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          read_row<H>(call_.input + all.at(row), all.left(row), rows[0]);
          FAIRWAY_NOT_UNROLLED
          for (unsigned k = 1; k < call_.size; ++k) Base::template store<1>(peer(k), round, row, rows);
          if (own != nullptr) write_row<H>(own + all.at(row), all.left(row), rows[0]);
          return true;
        });
  }
  // To each rank what is so far apart for it in the input, of which there are `bytes`. What a rank has for itself goes
  // to the output of an all_to_all. `without`: has no part; what the others get goes to its output, too.
  FAIRWAY_IN_KERNELS void send_to_each(const Span& all, std::uint64_t apart, std::uint64_t bytes, LineRound round,
                                       unsigned without = kMostRanks) const {
    const bool keeps = !kCombines<T> && call_.output != call_.input, keeps_all = keeps && without < call_.size;
    const auto needs = [&](unsigned rank) { return is_other(rank) || (keeps && !keeps_all && rank == call_.rank); };
    const auto kept = [&](unsigned rank) { return keeps && (rank == call_.rank) != keeps_all && rank < call_.size; };
    const auto at = [&](unsigned rank) { return (rank - (rank > without ? 1 : 0)) * apart; };
    const auto of = [&](unsigned rank) { return cut(all, at(rank), bytes); };
    (void)Base::template each_row<kRows>(
        all.rows, cut(all, last_part(without) * apart, bytes).whole(),
        place_of(call_.input) | apart | (keeps ? place_of(call_.output) : 0),
        [&](std::uint32_t first) {
          OfAll<kRows> rows;
          FAIRWAY_UNROLL
          for (unsigned to = 0; to < kRanks; ++to)
            if (needs(to)) read_rows<H, kRows>(call_.input + at(to) + all.at(first), rows[to]);
          store_to_each<kRows>(round, first, rows, [](unsigned) { return true; });
          FAIRWAY_UNROLL
          for (unsigned to = 0; to < kRanks; ++to)
            if (kept(to)) write_rows<H, kRows>(call_.output + at(to) + all.at(first), rows[to]);
          return true;
        },
        [&](std::uint32_t row) {
          OfAll<1> rows;
          FAIRWAY_UNROLL
          for (unsigned to = 0; to < kRanks; ++to)
            if (needs(to)) read_row<H>(call_.input + at(to) + all.at(row), of(to).left(row), rows[to][0]);
          store_to_each<1>(round, row, rows, [&](unsigned to) { return row < of(to).rows; });
          FAIRWAY_UNROLL
          for (unsigned to = 0; to < kRanks; ++to)
            if (kept(to)) write_row<H>(call_.output + at(to) + all.at(row), of(to).left(row), rows[to][0]);
          return true;
        });
  }
  FAIRWAY_IN_KERNELS unsigned last_part(unsigned without) const { return call_.size - (without < call_.size ? 2 : 1); }
  template <unsigned kEach, class Has>
  FAIRWAY_IN_KERNELS void store_to_each(LineRound round, std::uint32_t first, const OfAll<kEach>& rows, Has has) const {
    FAIRWAY_UNROLL
    for (unsigned turn = 0; turn < 2; ++turn) FAIRWAY_UNROLL
    for (unsigned to = 0; to < kRanks; ++to)  // first to those behind this one, as in send_to_all()
      if (is_other(to) && (to > call_.rank) == (turn == 0) && has(to))
        Base::template store<kEach>(to, round, first, rows[to]);
  }

  // Waits for rows of each other rank but `without`: the first of them is row_of(rank). False: it has failed.
  template <unsigned kEach, class RowOf>
  FAIRWAY_IN_KERNELS bool load_of_all(LineRound round, RowOf row_of, OfAll<kEach>& out,
                                      unsigned without = kMostRanks) const {
    const std::uint64_t flag = line_flag_of(round, call_.digest);
    const auto has = [&](unsigned rank) { return is_other(rank) && rank != without; };
    for (;;) {
      FAIRWAY_UNROLL
      for (unsigned from = 0; from < kRanks; ++from)
        if (has(from)) Base::template look<kEach>(from, round, row_of(from), out[from]);
      unsigned missing = kMostRanks;
      FAIRWAY_UNROLL
      for (unsigned from = kRanks; from-- > 0;)
        if (has(from) && !Base::template has_come<kEach>(flag, out[from])) missing = from;
      if (H::all_of_row(missing == kMostRanks)) return true;
      unsigned from = 0;
      while (H::all_of_row(missing != from)) ++from;
      if (!H::all_of_row(!channel_.gives_up(from, Waits::lines))) return false;
    }
  }
  // From each rank what goes so far apart into the output, of which there are `bytes`. `without`: sends but a line.
  FAIRWAY_IN_KERNELS bool take(const Span& all, std::uint64_t apart, std::uint64_t bytes, LineRound round,
                               unsigned without = kMostRanks) const {
    const auto at = [&](unsigned rank) { return (rank - (rank > without ? 1 : 0)) * apart; };
    const auto of = [&](unsigned rank) { return cut(all, at(rank), bytes); };
    const auto has = [&](unsigned rank) { return is_other(rank) && rank != without; };
    return Base::template each_row<kRows>(
        all.rows, cut(all, last_part(without) * apart, bytes).whole(), place_of(call_.output) | apart,
        [&](std::uint32_t first) {
          OfAll<kRows> rows;
          if (!load_of_all<kRows>(
                  round, [&](unsigned) { return first; }, rows, without))
            return false;
          FAIRWAY_UNROLL
          for (unsigned from = 0; from < kRanks; ++from)
            if (has(from)) write_rows<H, kRows>(call_.output + at(from) + all.at(first), rows[from]);
          return true;
        },
        [&](std::uint32_t row) {
          OfAll<1> rows;
          const auto row_of = [&](unsigned from) { return row < of(from).rows ? row : of(from).rows - 1; };
          if (!load_of_all<1>(round, row_of, rows, without)) return false;
          FAIRWAY_UNROLL
          for (unsigned from = 0; from < kRanks; ++from)
            if (has(from) && row < of(from).rows)
              write_row<H>(call_.output + at(from) + all.at(row), of(from).left(row), rows[from][0]);
          return true;
        });
  }
  // One line of each other rank, and all of the root's.
  FAIRWAY_IN_KERNELS bool take_of_root(const Span& all, LineRound round) const {
    OfAll<1> lines;
    if (!load_of_all<1>(
            round, [](unsigned) { return 0U; }, lines))
      return false;
    if (call_.rank == call_.root) return true;
    return Base::template each_row<kMoved>(
        all.rows, all.whole(), place_of(call_.output),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          if (!Base::template load<kMoved>(call_.root, round, first, rows)) return false;
          write_rows<H, kMoved>(call_.output + all.at(first), rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          if (!Base::template load<1>(call_.root, round, row, rows)) return false;
          write_row<H>(call_.output + all.at(row), all.left(row), rows[0]);
          return true;
        });
  }
  // A long broadcast: each rank but the root gets a part from it, which it passes on to the others in the next round,
  // batch by batch, once it has a line of each in this one (see combine()). Each link carries what the root has once.
  FAIRWAY_IN_KERNELS bool pass_on(LineRound round) const {
    const std::uint64_t part = call_.part_bytes;
    const unsigned root = call_.root;
    const bool is_root = call_.rank == root;
    const Rows<H, 1> none = {};
    return exchange_lines(
        channel_, round, 2 * lines_.rounds,
        [&](std::uint32_t nth, LineRound to) {
          if (is_root && nth % 2 == 0) return send_to_each(this->span(nth / 2, part), part, block_bytes_, to, root);
          for (unsigned k = 1; k < call_.size; ++k)  // who passes on has sent the others theirs
            if (nth % 2 == 0 || is_root || peer(k) == root) Base::template store<1>(peer(k), to, 0, none);
        },
        [&](std::uint32_t nth, LineRound from) {
          const Span all = this->span(nth / 2, part);
          OfAll<1> lines;
          if (is_root || nth % 2 == 0) {
            if (!load_of_all<1>(
                    from, [](unsigned) { return 0U; }, lines))
              return false;
            return is_root || pass_part_on(all, from);
          }
          Rows<H, 1> line;
          return Base::template load<1>(root, from, 0, line) && take(all, part, block_bytes_, from, root);
        });
  }
  FAIRWAY_IN_KERNELS bool pass_part_on(const Span& all, LineRound round) const {
    const std::uint64_t at = (call_.rank - (call_.rank > call_.root ? 1 : 0)) * call_.part_bytes;
    const Span own = cut(all, at, block_bytes_);
    unsigned char* const to = call_.output + at;
    return Base::template each_row<kMoved>(
        own.rows, own.whole(), place_of(to),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          if (!Base::template load<kMoved>(call_.root, round, first, rows)) return false;
          FAIRWAY_NOT_UNROLLED
          for (unsigned k = 1; k < call_.size; ++k)
            if (peer(k) != call_.root) Base::template store<kMoved>(peer(k), round + 1, first, rows);
          write_rows<H, kMoved>(to + own.at(first), rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          if (!Base::template load<1>(call_.root, round, row, rows)) return false;
          FAIRWAY_NOT_UNROLLED
          for (unsigned k = 1; k < call_.size; ++k)
            if (peer(k) != call_.root) Base::template store<1>(peer(k), round + 1, row, rows);
          write_row<H>(to + own.at(row), own.left(row), rows[0]);
          return true;
        });
  }
  // `passes_on`: the sums go to all in the next round, too, batch by batch. Who has another's lines of a round knows
  // that it has taken all of the round before, in whose place they go.
  FAIRWAY_IN_KERNELS bool combine(const Span& all, const unsigned char* own, unsigned char* to, LineRound round,
                                  bool passes_on) const {
    return Base::template each_row<kRows>(
        all.rows, all.whole(), place_of(own) | place_of(to),
        [&](std::uint32_t first) {
          Rows<H, kRows> mine;
          OfAll<kRows> rows;
          read_rows<H, kRows>(own + all.at(first), mine);
          if (!load_of_all<kRows>(
                  round, [&](unsigned) { return first; }, rows))
            return false;
          add_up<kRows>(mine, rows);
          FAIRWAY_NOT_UNROLLED
          for (unsigned k = 1; passes_on && k < call_.size; ++k)
            Base::template store<kRows>(peer(k), round + 1, first, mine);
          write_rows<H, kRows>(to + all.at(first), mine);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> mine;
          OfAll<1> rows;
          read_row<H>(own + all.at(row), all.left(row), mine[0]);
          if (!load_of_all<1>(
                  round, [&](unsigned) { return row; }, rows))
            return false;
          add_up<1>(mine, rows);
          FAIRWAY_NOT_UNROLLED
          for (unsigned k = 1; passes_on && k < call_.size; ++k) Base::template store<1>(peer(k), round + 1, row, mine);
          write_row<H>(to + all.at(row), all.left(row), mine[0]);
          return true;
        });
  }
  template <unsigned kEach>
  FAIRWAY_IN_KERNELS void add_up(Rows<H, kEach>& mine, const OfAll<kEach>& rows) const {
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kEach; ++k) FAIRWAY_UNROLL
    for (unsigned i = 0; i < H::kLanesHere; ++i) {
      Sums<T, 16> sums;
      sums.template add_all<kRanks>(call_.combine, call_.size, [&](unsigned rank) {
        Elements<T, 16> next;
        next.words[0] = rank == call_.rank ? mine[k].words[i][0] : rows[rank][k].words[i][0];
        next.words[1] = rank == call_.rank ? mine[k].words[i][1] : rows[rank][k].words[i][1];
        return next;
      });
      const auto sum = sums.end(call_.combine, call_.size);
      mine[k].words[i][0] = sum.words[0];
      mine[k].words[i][1] = sum.words[1];
    }
  }

  const std::uint64_t block_bytes_;
};

}  // namespace fairway::collectives::gpu
