#pragma once

#include "collectives/gpu/device/elements.h"
#include "collectives/gpu/device/rows.h"

// What a warp of a collective's kernel does by lines (NCCL: LL128) between two ranks.
namespace fairway::collectives::gpu {

template <class T, class H>
class PairWarp : RowWarp<H> {
 public:
  FAIRWAY_IN_KERNELS PairWarp(Channel<H>& channel, unsigned warp, std::uint64_t block_bytes)
      : RowWarp<H>(channel, warp), block_bytes_(block_bytes) {}

  // False: it has failed.
  FAIRWAY_IN_KERNELS bool run(LineRound round) const {
    return exchange_lines(
        channel_, round, lines_.rounds,
        [&](std::uint32_t nth, LineRound to) { send(this->span(nth, block_bytes_), to); },
        [&](std::uint32_t nth, LineRound from) {
          const Span all = this->span(nth, block_bytes_);
          if constexpr (kCombines<T>)
            return combine(all, from);
          else
            return take(all, from);
        });
  }

 private:
  using Base = RowWarp<H>;
  using Base::call_, Base::channel_, Base::lines_;

  // Rows whose loads are on their way together; sums take more registers.
  static constexpr unsigned kMoved = 4, kCombined = sizeof(T) < 4 ? 2 : 4;

  FAIRWAY_IN_KERNELS unsigned other() const { return 1 - call_.rank; }

  // What the other gets, and where this rank keeps a block for itself, that one.
  FAIRWAY_IN_KERNELS void send(const Span& all, LineRound round) const {
    if (!kCombines<T> && !sends(call_, call_.rank)) {  // only that it is there
      const Rows<H, 1> none = {};
      return Base::template store<1>(other(), round, 0, none);
    }
    const unsigned char* const from = input_for(call_, other(), block_bytes_);
    (void)Base::template each_row<kMoved>(
        all.rows, all.whole(), place_of(from),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          read_rows<H, kMoved>(from + all.at(first), rows);
          Base::template store<kMoved>(other(), round, first, rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          read_row<H>(from + all.at(row), all.left(row), rows[0]);
          Base::template store<1>(other(), round, row, rows);
          return true;
        });
  }

  FAIRWAY_IN_KERNELS void keep_own(const Span& all) const {
    const unsigned char* const own = input_for(call_, call_.rank, block_bytes_);
    unsigned char* const to = output_from(call_, call_.rank, block_bytes_);
    if (!sends(call_, call_.rank) || to == own) return;
    (void)Base::template each_row<kMoved>(
        all.rows, all.whole(), place_of(own) | place_of(to),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          read_rows<H, kMoved>(own + all.at(first), rows);
          write_rows<H, kMoved>(to + all.at(first), rows);
          return true;
        },
        [&](std::uint32_t row) {
          Row<H> one;
          read_row<H>(own + all.at(row), all.left(row), one);
          write_row<H>(to + all.at(row), all.left(row), one);
          return true;
        });
  }
  FAIRWAY_IN_KERNELS bool take(const Span& all, LineRound round) const {
    keep_own(all);
    Rows<H, 1> none;
    if (!sends(call_, other())) return Base::template load<1>(other(), round, 0, none);
    unsigned char* const to = output_from(call_, other(), block_bytes_);
    return Base::template each_row<kMoved>(
        all.rows, all.whole(), place_of(to),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          if (!Base::template load<kMoved>(other(), round, first, rows)) return false;
          write_rows<H, kMoved>(to + all.at(first), rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          if (!Base::template load<1>(other(), round, row, rows)) return false;
          write_row<H>(to + all.at(row), all.left(row), rows[0]);
          return true;
        });
  }

  FAIRWAY_IN_KERNELS bool combine(const Span& all, LineRound round) const {
    const unsigned char* const own = input_for(call_, call_.rank, block_bytes_);
    return Base::template each_row<kCombined>(
        all.rows, all.whole(), place_of(own) | place_of(call_.output),
        [&](std::uint32_t first) {
          Rows<H, kCombined> mine, theirs;
          read_rows<H, kCombined>(own + all.at(first), mine);
          if (!Base::template load<kCombined>(other(), round, first, theirs)) return false;
          add<kCombined>(mine, theirs);
          write_rows<H, kCombined>(call_.output + all.at(first), mine);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> mine, theirs;
          read_row<H>(own + all.at(row), all.left(row), mine[0]);
          if (!Base::template load<1>(other(), round, row, theirs)) return false;
          add<1>(mine, theirs);
          write_row<H>(call_.output + all.at(row), all.left(row), mine[0]);
          return true;
        });
  }
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS void add(Rows<H, kRows>& mine, const Rows<H, kRows>& theirs) const {
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
    for (unsigned i = 0; i < H::kLanesHere; ++i) {
      Sums<T, 16> sums;
      sums.template add_all<2>(call_.combine, 2, [&](unsigned rank) {
        Elements<T, 16> next;
        next.words[0] = rank == call_.rank ? mine[k].words[i][0] : theirs[k].words[i][0];
        next.words[1] = rank == call_.rank ? mine[k].words[i][1] : theirs[k].words[i][1];
        return next;
      });
      const auto sum = sums.end(call_.combine, 2);
      mine[k].words[i][0] = sum.words[0];
      mine[k].words[i][1] = sum.words[1];
    }
  }

  const std::uint64_t block_bytes_;
};

}  // namespace fairway::collectives::gpu
