#pragma once

#include "collectives/gpu/device/elements.h"
#include "collectives/gpu/device/slots.h"

// What a warp of a further kernel combines: reduce of any type, and what no kernel of ll128.cuh has, f8 and inputs
// that are multiplied before.
namespace fairway::collectives::gpu {

template <class T, class H, class F>
class SumWarp : SlotWarp<H, F> {
 public:
  FAIRWAY_IN_KERNELS SumWarp(Channel<H>& channel, unsigned warp, const FurtherCall& further)
      : SlotWarp<H, F>(channel, warp),
        factor_(further.factor),
        block_bytes_(channel.call().count * sizeof(T)),
        two_shot_(call_.way == Way::two_shot),
        in_parts_(two_shot_ || call_.work == Work::reduce_to_each),
        apart_(two_shot_ ? call_.part_bytes : block_bytes_) {}

  // False: it has failed.
  FAIRWAY_IN_KERNELS bool run(LineRound round) const {
    const unsigned steps = two_shot_ ? 2 : 1;
    return exchange_lines(
        channel_, round, steps * lines_.rounds,
        [&](std::uint32_t nth, LineRound to) {
          if (nth % steps == 0) return send(this->span(nth / steps, apart_), to);
          FAIRWAY_NOT_UNROLLED
          for (unsigned k = 1; k < call_.size; ++k)  // combine() has sent the sums to those that get them
            if (!gets_sums(this->peer(k))) this->store_none(this->peer(k), to);
        },
        [&](std::uint32_t nth, LineRound from) {
          const Span all = this->span(nth / steps, apart_);
          if (nth % steps != 0) return gets_sums(call_.rank) ? take_sums(all, from) : hear_all(from);
          return combines(call_.rank) ? combine(all, from) : hear_all(from);
        });
  }

 private:
  using Base = SlotWarp<H, F>;
  using Base::call_, Base::channel_, Base::lines_;
  using Span = SlotSpan<F>;
  static constexpr unsigned kRows = sizeof(T) < 2 ? 1 : sizeof(T) < 4 ? 2 : 4;

  // Who combines a part, or all; and of two steps, who gets the sums of all.
  FAIRWAY_IN_KERNELS bool combines(unsigned rank) const {
    return call_.work != Work::reduce_to_root || two_shot_ || rank == call_.root;
  }
  FAIRWAY_IN_KERNELS bool gets_sums(unsigned rank) const {
    return call_.work != Work::reduce_to_root || rank == call_.root;
  }
  // Where that rank's part begins, and which of a warp's rows there are of it: the last parts may be shorter, or empty.
  FAIRWAY_IN_KERNELS std::uint64_t begin_of(unsigned rank) const { return in_parts_ ? rank * apart_ : 0; }
  FAIRWAY_IN_KERNELS Span part_of(const Span& all, unsigned rank) const {
    if (!two_shot_) return all;
    const std::uint64_t there = block_bytes_ - at_most(begin_of(rank), block_bytes_);
    return {at_most(all.begin, there), at_most(all.end, there)};
  }

  template <unsigned kMany>
  FAIRWAY_IN_KERNELS void scale(Rows<H, kMany>& rows) const {
    if constexpr (kScales<T>) {
      if (factor_ == 1) return;
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kMany; ++k) FAIRWAY_UNROLL
      for (unsigned i = 0; i < H::kLanesHere; ++i) {
        Elements<T, 16> values;
        values.words[0] = rows[k].words[i][0];
        values.words[1] = rows[k].words[i][1];
        FAIRWAY_UNROLL
        for (unsigned e = 0; e < Elements<T, 16>::kCount; ++e)
          narrow(scaled(widen(values.each[e]), factor_), values.each[e]);
        rows[k].words[i][0] = values.words[0];
        rows[k].words[i][1] = values.words[1];
      }
    }
  }

  FAIRWAY_IN_KERNELS void send(const Span& all, LineRound round) const {
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k) {  // each begins with another, so that not all send to one
      const unsigned to = this->peer(k);
      if (!combines(to)) {
        this->store_none(to, round);
        continue;
      }
      this->send_span(part_of(all, to), call_.input + begin_of(to), [&](std::uint32_t first, auto& rows) {
        scale(rows);
        this->store(to, round, first, rows);
      });
    }
  }
  FAIRWAY_IN_KERNELS bool hear_all(LineRound round) const {
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k)
      if (!this->load_none(this->peer(k), round)) return false;
    return true;
  }
  FAIRWAY_IN_KERNELS bool take_sums(const Span& all, LineRound round) const {
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k) {
      const unsigned from = this->peer(k);
      const auto get = [&](std::uint32_t first, auto& rows) { return this->load(from, round, first, rows); };
      if (!this->take_span(part_of(all, from), call_.output + begin_of(from), get)) return false;
    }
    return true;
  }

  // In the order of ranks. Of two steps the sums go to those that get them in the next round, batch by batch: who has
  // lines of all others in this one knows that they have taken all of the round before, in whose place they go.
  FAIRWAY_IN_KERNELS bool combine(const Span& whole, LineRound round) const {
    const Span all = part_of(whole, call_.rank);
    const unsigned char* const own = call_.input + begin_of(call_.rank);
    const bool keeps = gets_sums(call_.rank);
    unsigned char* const to = !keeps ? nullptr : call_.output + (two_shot_ ? begin_of(call_.rank) : 0);
    return Base::template each_row<kRows>(
        all, place_of(own) | place_of(to),
        [&](std::uint32_t first) {
          Rows<H, kRows> rows;
          const auto read = [&](Rows<H, kRows>& mine) { read_slots<F, H, kRows>(own + all.at(first), mine); };
          if (!add_up(round, first, read, rows)) return false;
          if (two_shot_) pass_on(round + 1, first, rows);
          if (keeps) write_slots<F, H, kRows>(to + all.at(first), rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          const auto read = [&](Rows<H, 1>& mine) { read_slot<F>(own + all.at(row), all.left(row), mine[0]); };
          if (!add_up(round, row, read, rows)) return false;
          if (two_shot_) pass_on(round + 1, row, rows);
          if (keeps) write_slot<F>(to + all.at(row), all.left(row), rows[0]);
          return true;
        });
  }
  template <unsigned kMany, class Read>
  FAIRWAY_IN_KERNELS bool add_up(LineRound round, std::uint32_t first, Read read, Rows<H, kMany>& rows) const {
    Sums<T, 16> sums[kMany][H::kLanesHere];
    FAIRWAY_NOT_UNROLLED
    for (unsigned rank = 0; rank < call_.size; ++rank) {
      if (rank == call_.rank) {
        read(rows);
        scale(rows);
      } else if (!this->load(rank, round, first, rows)) {
        return false;
      }
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kMany; ++k) FAIRWAY_UNROLL
      for (unsigned i = 0; i < H::kLanesHere; ++i) {
        Elements<T, 16> next;
        next.words[0] = rows[k].words[i][0];
        next.words[1] = rows[k].words[i][1];
        sums[k][i].add(call_.combine, rank, next);
      }
    }
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kMany; ++k) FAIRWAY_UNROLL
    for (unsigned i = 0; i < H::kLanesHere; ++i) {
      const auto sum = sums[k][i].end(call_.combine, call_.size);
      rows[k].words[i][0] = sum.words[0];
      rows[k].words[i][1] = sum.words[1];
    }
    return true;
  }
  template <unsigned kMany>
  FAIRWAY_IN_KERNELS void pass_on(LineRound round, std::uint32_t first, const Rows<H, kMany>& rows) const {
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k)
      if (gets_sums(this->peer(k))) this->store(this->peer(k), round, first, rows);
  }

  const double factor_;
  const std::uint64_t block_bytes_;
  const bool two_shot_, in_parts_;
  const std::uint64_t apart_;
};

}  // namespace fairway::collectives::gpu
