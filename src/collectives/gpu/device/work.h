#pragma once

#include "collectives/gpu/device/channel.h"
#include "collectives/gpu/device/elements.h"
#include "collectives/gpu/device/ll128.cuh"
#include "collectives/gpu/device/ll128_pair.cuh"

// What a block of a collective's kernel does. docs/collective-algorithms.md has it as a table.
namespace fairway::collectives::gpu {

using Bytes8 = Elements<unsigned char, 8>;

// What one lane does of `bytes`: 16 at a time, of which several are on their way if all lie at multiples of 16.
//   many(at, step): kAtOnce of them, `step` apart; one(at): one, maybe the last and not whole
template <unsigned kAtOnce, class C, class Many, class One>
FAIRWAY_IN_KERNELS void each_16_bytes(const C& channel, std::uint64_t bytes, bool aligned, Many many, One one) {
  const std::uint64_t step = channel.lanes() * 16ULL;
  std::uint64_t at = channel.lane() * 16ULL;
  if (aligned) {
    FAIRWAY_NOT_UNROLLED
    for (; at + (kAtOnce - 1) * step + 16 <= bytes; at += kAtOnce * step) many(at, step);
  }
  FAIRWAY_NOT_UNROLLED
  for (; at < bytes; at += step) one(at);
}
template <class C>
FAIRWAY_IN_KERNELS void copy_bytes(const C& channel, unsigned char* to, const unsigned char* from,
                                   std::uint64_t bytes) {
  constexpr unsigned kAtOnce = 4;
  each_16_bytes<kAtOnce>(
      channel, bytes, is_wide<16>(to, 16) && is_wide<16>(from, 16),
      [&](std::uint64_t at, std::uint64_t step) {
        Whole<16> units[kAtOnce];
        FAIRWAY_UNROLL
        for (unsigned k = 0; k < kAtOnce; ++k) units[k] = *reinterpret_cast<const Whole<16>*>(from + at + k * step);
        FAIRWAY_UNROLL
        for (unsigned k = 0; k < kAtOnce; ++k) *reinterpret_cast<Whole<16>*>(to + at + k * step) = units[k];
      },
      [&](std::uint64_t at) {
        Elements<unsigned char, 16> unit;
        load_bytes(from + at, bytes - at, unit);
        store_bytes(to + at, bytes - at, unit);
      });
}

// What this rank has for itself: [begin, begin + bytes) of a block.
template <class C>
FAIRWAY_IN_KERNELS void keep_own(const C& channel, std::uint64_t block_bytes, std::uint64_t begin,
                                 std::uint64_t bytes) {
  const Call& call = channel.call();
  if (!sends(call, call.rank)) return;
  unsigned char* const to = output_from(call, call.rank, block_bytes) + begin;
  const unsigned char* const from = input_for(call, call.rank, block_bytes) + begin;
  if (to != from) copy_bytes(channel, to, from, bytes);
}

// This block's part of `all` things.
FAIRWAY_IN_KERNELS std::uint64_t part_of(std::uint64_t all, unsigned part, unsigned parts) {
  return all / parts * part + all % parts * part / parts;
}
// ---- by units ----

template <class T, class C>
FAIRWAY_IN_KERNELS bool round_of_units(C& channel, Round round, std::uint64_t block_bytes, std::uint64_t first,
                                       std::uint32_t units) {
  const Call& call = channel.call();
  const auto left = [&](std::uint32_t i) { return block_bytes - (first + i) * 8; };
  const auto send = [&](unsigned to, std::uint32_t i) {
    Bytes8 unit;
    load_bytes(input_for(call, to, block_bytes) + (first + i) * 8, left(i), unit);
    return unit.words[0];
  };
  const auto has = [&](unsigned from) { return sends(call, from); };
  const auto take = [&](std::uint32_t i, const std::uint64_t(&data)[kMostRanks]) {
    if constexpr (kCombines<T>) {
      Bytes8 own;
      load_bytes(input_for(call, call.rank, block_bytes) + (first + i) * 8, left(i), own);
      Sums<T, 8> sums;
      FAIRWAY_UNROLL
      for (unsigned rank = 0; rank < kMostRanks; ++rank) {
        Elements<T, 8> next;
        next.words[0] = rank == call.rank ? own.words[0] : data[rank];
        if (rank < call.size) sums.add(call.combine, rank, next);
      }
      store_bytes(call.output + (first + i) * 8, left(i), sums.end(call.combine, call.size));
    } else {
      FAIRWAY_UNROLL
      for (unsigned from = 0; from < kMostRanks; ++from) {
        if (from >= call.size || from == call.rank || !sends(call, from)) continue;
        Bytes8 unit;
        unit.words[0] = data[from];
        store_bytes(output_from(call, from, block_bytes) + (first + i) * 8, left(i), unit);
      }
    }
  };
  const auto keep = [&] {
    if constexpr (!kCombines<T>)
      keep_own(channel, block_bytes, first * 8, at_most(units * 8ULL, block_bytes - at_most(first * 8, block_bytes)));
  };
  return exchange_units(channel, round, units, !is_to_each(call.work), has, send, keep, take);
}

// By `parts` blocks of the kernel; the others have nothing to do.
template <class T, class C>
FAIRWAY_IN_KERNELS void run_units(C& channel, std::uint64_t block_bytes, unsigned parts) {
  if (channel.block() >= parts) return;
  const std::uint64_t all = (block_bytes + 7) / 8, room = channel.call().units.count;
  const std::uint64_t end = part_of(all, channel.block() + 1, parts);
  std::uint64_t first = part_of(all, channel.block(), parts);
  Round round = channel.unit_round();
  std::uint32_t nth = 0;
  do {
    const auto units = static_cast<std::uint32_t>(at_most(room, end - first));
    channel.in_round(++nth);
    round = next_round(round);
    if (!round_of_units<T>(channel, round, block_bytes, first, units)) break;
    first += units;
  } while (first < end);
  channel.keep_unit_round(round);
}

// ---- by pieces ----

// Bytes [begin, begin + bytes) of the blocks that this rank has for each other.
template <class C>
FAIRWAY_IN_KERNELS void send_pieces(C& channel, Round round, std::uint64_t block_bytes, std::uint64_t begin,
                                    std::uint64_t bytes) {
  const Call& call = channel.call();
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 1; k < call.size && sends(call, call.rank); ++k) {
    const unsigned to = (call.rank + k) % call.size;
    copy_bytes(channel, channel.pieces(to, call.rank, round), input_for(call, to, block_bytes) + begin, bytes);
  }
}

// Combines what of(rank) has, `bytes` of each, into each of to[0..count).
template <class T, class C, class Of>
FAIRWAY_IN_KERNELS void combine_bytes(C& channel, Of of, std::uint64_t bytes, unsigned char* const* to,
                                      unsigned count) {
  constexpr unsigned kAtOnce = sizeof(T) < 4 ? 2 : 4;
  const Call& call = channel.call();
  bool aligned = true;
  for (unsigned rank = 0; rank < call.size; ++rank) aligned = aligned && is_wide<16>(of(rank), 16);
  for (unsigned i = 0; i < count; ++i) aligned = aligned && is_wide<16>(to[i], 16);
  each_16_bytes<kAtOnce>(
      channel, bytes, aligned,
      [&](std::uint64_t at, std::uint64_t step) {
        Sums<T, 16> sums[kAtOnce];
        Elements<T, 16> next[kAtOnce], those[kAtOnce];
        const auto load = [&](unsigned rank) {
          const unsigned char* const from = of(rank) + at;
          FAIRWAY_UNROLL
          for (unsigned k = 0; k < kAtOnce; ++k) {
            const auto whole = *reinterpret_cast<const Whole<16>*>(from + k * step);
            next[k].words[0] = whole.words[0];
            next[k].words[1] = whole.words[1];
          }
        };
        load(0);
        FAIRWAY_NOT_UNROLLED
        for (unsigned rank = 0; rank < call.size; ++rank) {
          FAIRWAY_UNROLL
          for (unsigned k = 0; k < kAtOnce; ++k) those[k] = next[k];
          if (rank + 1 < call.size) load(rank + 1);  // on their way while these are combined
          FAIRWAY_UNROLL
          for (unsigned k = 0; k < kAtOnce; ++k) sums[k].add(call.combine, rank, those[k]);
        }
        FAIRWAY_UNROLL
        for (unsigned k = 0; k < kAtOnce; ++k) {
          const auto sum = sums[k].end(call.combine, call.size);
          FAIRWAY_NOT_UNROLLED
          for (unsigned i = 0; i < count; ++i)
            *reinterpret_cast<Whole<16>*>(to[i] + at + k * step) = {{sum.words[0], sum.words[1]}};
        }
      },
      [&](std::uint64_t at) {
        Sums<T, 16> sums;
        FAIRWAY_NOT_UNROLLED
        for (unsigned rank = 0; rank < call.size; ++rank) {
          Elements<T, 16> next;
          load_bytes(of(rank) + at, bytes - at, next);
          sums.add(call.combine, rank, next);
        }
        const auto sum = sums.end(call.combine, call.size);
        FAIRWAY_NOT_UNROLLED
        for (unsigned i = 0; i < count; ++i) store_bytes(to[i] + at, bytes - at, sum);
      });
}

// Combines `bytes` at `own` with the pieces of the others.
template <class T, class C>
FAIRWAY_IN_KERNELS void combine_pieces(C& channel, Round round, const unsigned char* own, std::uint64_t bytes,
                                       unsigned char* const* to, unsigned count) {
  const unsigned rank = channel.call().rank;
  combine_bytes<T>(
      channel, [&](unsigned from) { return from == rank ? own : channel.pieces(rank, from, round); }, bytes, to, count);
}

// Bytes of the caller's memory that a block moves in one step: a round, or the two of two_shot.
struct Step {
  std::uint64_t begin = 0, bytes = 0;
};

template <class T, class C>
FAIRWAY_IN_KERNELS void take_pieces(C& channel, Round round, std::uint64_t block_bytes, const Step& step) {
  const Call& call = channel.call();
  if constexpr (kCombines<T>) {
    unsigned char* const to = call.output + step.begin;
    combine_pieces<T>(channel, round, input_for(call, call.rank, block_bytes) + step.begin, step.bytes, &to, 1);
  } else {
    keep_own(channel, block_bytes, step.begin, step.bytes);
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call.size; ++k) {
      const unsigned from = (call.rank + k) % call.size;
      if (sends(call, from))
        copy_bytes(channel, output_from(call, from, block_bytes) + step.begin, channel.pieces(call.rank, from, round),
                   step.bytes);
    }
  }
}

// Part `rank` of a step of two_shot, which that rank combines in the first of its rounds and sends to all in the
// second.
struct Part {
  FAIRWAY_IN_KERNELS Part(const Step& step, unsigned rank, unsigned size) {
    const std::uint64_t part = ((step.bytes + size - 1) / size + 15) / 16 * 16;
    const std::uint64_t first = at_most(step.bytes, rank * part);
    begin = step.begin + first;
    bytes = at_most(step.bytes, first + part) - first;
  }
  std::uint64_t begin = 0, bytes = 0;
};
template <class C>
FAIRWAY_IN_KERNELS void send_parts(C& channel, Round round, const Step& step) {
  const Call& call = channel.call();
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 1; k < call.size; ++k) {
    const unsigned to = (call.rank + k) % call.size;
    const Part part(step, to, call.size);
    copy_bytes(channel, channel.pieces(to, call.rank, round), call.input + part.begin, part.bytes);
  }
}
template <class T, class C>
FAIRWAY_IN_KERNELS void combine_parts(C& channel, Round first, Round second, const Step& step) {
  const Call& call = channel.call();
  const Part own(step, call.rank, call.size);
  unsigned char* to[kMostRanks];
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 0; k < call.size; ++k) {
    const unsigned rank = (call.rank + k) % call.size;
    to[k] = k == 0 ? call.output + own.begin : channel.pieces(rank, call.rank, second);
  }
  combine_pieces<T>(channel, first, call.input + own.begin, own.bytes, to, call.size);
}
template <class C>
FAIRWAY_IN_KERNELS void take_parts(C& channel, Round round, const Step& step) {
  const Call& call = channel.call();
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 1; k < call.size; ++k) {
    const unsigned from = (call.rank + k) % call.size;
    const Part part(step, from, call.size);
    copy_bytes(channel, call.output + part.begin, channel.pieces(call.rank, from, round), part.bytes);
  }
}

template <class T, class C>
FAIRWAY_IN_KERNELS void run_pieces(C& channel, std::uint64_t block_bytes) {
  const Call& call = channel.call();
  const bool two_shot = call.way == Way::two_shot;
  const std::uint64_t vectors = (block_bytes + 15) / 16;
  const std::uint64_t begin = at_most(block_bytes, part_of(vectors, channel.block(), call.blocks) * 16);
  const std::uint64_t end = at_most(block_bytes, part_of(vectors, channel.block() + 1, call.blocks) * 16);
  const std::uint64_t room = static_cast<std::uint64_t>(call.area.piece_bytes) * (two_shot ? call.size : 1);
  const auto steps = static_cast<std::uint32_t>(end == begin ? 1 : (end - begin + room - 1) / room);
  const auto step = [&](std::uint32_t nth) {
    return Step{begin + nth * room, at_most(room, end - begin - nth * room)};
  };
  Round round = channel.piece_round();
  if constexpr (kCombines<T>)
    if (two_shot) {
      (void)exchange_pieces(
          channel, round, call.digest, 2 * steps, 1,
          [&](std::uint32_t nth, Round to) {  // `round`: the last that came
            if (nth % 2 == 0)
              send_parts(channel, to, step(nth / 2));
            else
              combine_parts<T>(channel, round, to, step(nth / 2));
          },
          [&](std::uint32_t nth, Round from) {
            if (nth % 2 != 0) take_parts(channel, from, step(nth / 2));
          });
      return channel.keep_piece_round(round);
    }
  (void)exchange_pieces(
      channel, round, call.digest, steps, kPiecePlaces / 2,
      [&](std::uint32_t nth, Round to) {
        const Step one = step(nth);
        send_pieces(channel, to, block_bytes, one.begin, one.bytes);
      },
      [&](std::uint32_t nth, Round from) { take_pieces<T>(channel, from, block_bytes, step(nth)); });
  channel.keep_piece_round(round);
}

// ---- by lines ----

template <class Warp, class H>
FAIRWAY_IN_KERNELS void run_lines(Channel<H>& channel, std::uint64_t block_bytes) {
  const Lines& lines = channel.lines();
  if (channel.block() >= lines.blocks || lines.rounds == 0) return;
  bool good = true;
  H::each_warp(lines.warps,
               [&](unsigned warp) { good = good && Warp(channel, warp, block_bytes).run(channel.line_round()); });
  H::let_next_begin();       // nothing is waited for any more
  (void)channel.any(!good);  // all are done with it
}

// All of it. T: what elements are, if they are combined; else bytes.
template <class T, class H, Family kFamily>
FAIRWAY_IN_KERNELS void run_block(const Call& call, unsigned block) {
  Channel<H> channel(call, block);
  if (!channel.enter()) return;
  if (call.work == Work::mark) return channel.leave();
  const std::uint64_t block_bytes = call.work == Work::nothing ? 0 : call.count * sizeof(T);
  if constexpr (kFamily == Family::pair)
    run_lines<PairWarp<T, H>>(channel, block_bytes);
  else if constexpr (kFamily == Family::few)
    run_lines<LinesWarp<T, H, kFewRanks>>(channel, block_bytes);
  else if constexpr (kFamily == Family::many)
    run_lines<LinesWarp<T, H, kMostRanks>>(channel, block_bytes);
  else if (channel.has_area())
    run_pieces<T>(channel, block_bytes);
  else
    run_units<T>(channel, block_bytes, call.blocks < kUnitChannels ? call.blocks : kUnitChannels);
  channel.leave();
}

}  // namespace fairway::collectives::gpu
