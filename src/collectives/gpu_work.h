#pragma once

#include "collectives/gpu_channel.h"
#include "collectives/gpu_number.h"

// What a block of a collective's kernel does. docs/collectives.md has it as a table.
namespace fairway::collectives::gpu {

// ---- bytes of the caller's memory, at any alignment ----

template <unsigned kBytes>
struct alignas(kBytes) Whole {  // one access
  std::uint64_t words[kBytes / 8];
};
template <unsigned kBytes>
FAIRWAY_IN_KERNELS bool is_wide(const void* at, std::uint64_t left) {
  return left >= kBytes && reinterpret_cast<std::uintptr_t>(at) % kBytes == 0;
}
FAIRWAY_APART void load_odd(const unsigned char* at, unsigned bytes, std::uint64_t* words) {
  unsigned i = 0;
  FAIRWAY_NOT_UNROLLED
  for (; i + 4 <= bytes && is_wide<4>(at, 4); i += 4)
    words[i / 8] |= static_cast<std::uint64_t>(*reinterpret_cast<const std::uint32_t*>(at + i)) << (i % 8 * 8);
  FAIRWAY_NOT_UNROLLED
  for (; i < bytes; ++i) words[i / 8] |= static_cast<std::uint64_t>(at[i]) << (i % 8 * 8);
}
FAIRWAY_APART void store_odd(unsigned char* at, unsigned bytes, const std::uint64_t* words) {
  unsigned i = 0;
  FAIRWAY_NOT_UNROLLED
  for (; i + 4 <= bytes && is_wide<4>(at, 4); i += 4)
    *reinterpret_cast<std::uint32_t*>(at + i) = static_cast<std::uint32_t>(words[i / 8] >> (i % 8 * 8));
  FAIRWAY_NOT_UNROLLED
  for (; i < bytes; ++i) at[i] = static_cast<unsigned char>(words[i / 8] >> (i % 8 * 8));
}
// `left`: bytes that there are.
template <class T, unsigned kBytes>
FAIRWAY_IN_KERNELS void load_bytes(const unsigned char* at, std::uint64_t left, Elements<T, kBytes>& out) {
  if (is_wide<kBytes>(at, left)) {
    const auto whole = *reinterpret_cast<const Whole<kBytes>*>(at);
    FAIRWAY_UNROLL
    for (unsigned i = 0; i < kBytes / 8; ++i) out.words[i] = whole.words[i];
    return;
  }
  std::uint64_t words[kBytes / 8] = {};
  load_odd(at, left < kBytes ? static_cast<unsigned>(left) : kBytes, words);
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < kBytes / 8; ++i) out.words[i] = words[i];
}
template <class T, unsigned kBytes>
FAIRWAY_IN_KERNELS void store_bytes(unsigned char* at, std::uint64_t left, const Elements<T, kBytes>& from) {
  Whole<kBytes> whole;
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < kBytes / 8; ++i) whole.words[i] = from.words[i];
  if (is_wide<kBytes>(at, left))
    *reinterpret_cast<Whole<kBytes>*>(at) = whole;
  else
    store_odd(at, left < kBytes ? static_cast<unsigned>(left) : kBytes, whole.words);
}

using Bytes8 = Elements<unsigned char, 8>;

// By lane `lane` of `lanes`, four accesses in flight.
FAIRWAY_APART void copy_bytes(unsigned lane, unsigned lanes, unsigned char* to, const unsigned char* from,
                              std::uint64_t bytes) {
  std::uint64_t at = lane * 16ULL;
  const std::uint64_t step = lanes * 16ULL;
  if (is_wide<16>(to, 16) && is_wide<16>(from, 16)) {
    FAIRWAY_NOT_UNROLLED
    for (; at + 3 * step + 16 <= bytes; at += 4 * step) {
      Whole<16> units[4];
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < 4; ++k) units[k] = *reinterpret_cast<const Whole<16>*>(from + at + k * step);
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < 4; ++k) *reinterpret_cast<Whole<16>*>(to + at + k * step) = units[k];
    }
  }
  FAIRWAY_NOT_UNROLLED
  for (; at < bytes; at += step) {
    Elements<unsigned char, 16> unit;
    load_bytes(from + at, bytes - at, unit);
    store_bytes(to + at, bytes - at, unit);
  }
}
template <class C>
FAIRWAY_IN_KERNELS void copy_bytes(const C& channel, unsigned char* to, const unsigned char* from,
                                   std::uint64_t bytes) {
  copy_bytes(channel.lane(), channel.lanes(), to, from, bytes);
}

// ---- who sends what to whom ----

FAIRWAY_IN_KERNELS bool reduces(Work work) {
  return work == Work::reduce_to_all || work == Work::reduce_to_each;
}
// Block `to` of the input goes to rank `to`; else all of it goes to all.
FAIRWAY_IN_KERNELS bool is_to_each(Work work) {
  return work == Work::to_each || work == Work::reduce_to_each;
}
// Whether `from` sends bytes to others.
FAIRWAY_IN_KERNELS bool sends(const Call& call, unsigned from) {
  return call.work != Work::nothing && (call.work != Work::from_root || from == call.root);
}
FAIRWAY_IN_KERNELS const unsigned char* input_for(const Call& call, unsigned to, std::uint64_t block_bytes) {
  return call.input + (is_to_each(call.work) ? to * block_bytes : 0);
}
FAIRWAY_IN_KERNELS unsigned char* output_from(const Call& call, unsigned from, std::uint64_t block_bytes) {
  return call.output + (call.work == Work::to_all || call.work == Work::to_each ? from * block_bytes : 0);
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
FAIRWAY_IN_KERNELS std::uint64_t at_most(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
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
    if (reduces(call.work)) {
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
      return;
    }
    FAIRWAY_UNROLL
    for (unsigned from = 0; from < kMostRanks; ++from) {
      if (from >= call.size || from == call.rank || !sends(call, from)) continue;
      Bytes8 unit;
      unit.words[0] = data[from];
      store_bytes(output_from(call, from, block_bytes) + (first + i) * 8, left(i), unit);
    }
  };
  return exchange_units(channel, round, call.digest, units, !is_to_each(call.work), has, send, take);
}

template <class T, class C>
FAIRWAY_IN_KERNELS Round run_units(C& channel, std::uint64_t block_bytes) {
  const Call& call = channel.call();
  const std::uint64_t all = (block_bytes + 7) / 8, room = call.units - 1;  // the first has the digest
  const std::uint64_t end = part_of(all, channel.block() + 1, call.blocks);
  std::uint64_t first = part_of(all, channel.block(), call.blocks);
  Round round = channel.unit_round();
  std::uint32_t nth = 0;
  if (!reduces(call.work))
    keep_own(channel, block_bytes, first * 8, at_most(end * 8, block_bytes) - at_most(first * 8, block_bytes));
  do {
    const auto units = static_cast<std::uint32_t>(at_most(room, end - first));
    channel.in_round(++nth);
    round = next_round(round);
    if (!round_of_units<T>(channel, round, block_bytes, first, units)) break;
    first += units;
  } while (first < end);
  return round;
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

// Combines `bytes` at `own` with the pieces of the others, into each of to[0..count).
template <class T, class C>
FAIRWAY_APART void combine_pieces(C& channel, Round round, const unsigned char* own, std::uint64_t bytes,
                                  unsigned char* const* to, unsigned count) {
  const Call& call = channel.call();
  const unsigned char* const theirs = channel.pieces(call.rank, 0, round);
  FAIRWAY_NOT_UNROLLED
  for (std::uint64_t at = channel.lane() * 16ULL; at < bytes; at += channel.lanes() * 16ULL) {
    const auto get = [&](unsigned rank, Elements<T, 16>& out) {
      load_bytes((rank == call.rank ? own : theirs + rank * static_cast<std::uint64_t>(call.piece_bytes)) + at,
                 bytes - at, out);
    };
    Sums<T, 16> sums;
    Elements<T, 16> next;
    get(0, next);
    FAIRWAY_NOT_UNROLLED
    for (unsigned rank = 0; rank < call.size; ++rank) {
      const Elements<T, 16> one = next;
      if (rank + 1 < call.size) get(rank + 1, next);  // on its way while this one is combined
      sums.add(call.combine, rank, one);
    }
    const auto sum = sums.end(call.combine, call.size);
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 0; k < count; ++k) store_bytes(to[k] + at, bytes - at, sum);
  }
}

template <class T, class C>
FAIRWAY_IN_KERNELS bool round_of_pieces(C& channel, Round round, std::uint64_t block_bytes, std::uint64_t begin,
                                        std::uint64_t bytes) {
  const Call& call = channel.call();
  send_pieces(channel, round, block_bytes, begin, bytes);
  tell_pieces(channel, round, call.digest);
  if (!reduces(call.work)) keep_own(channel, block_bytes, begin, bytes);
  if (!wait_pieces(channel, round, call.digest)) return false;
  if (reduces(call.work)) {
    unsigned char* const to = call.output + begin;
    combine_pieces<T>(channel, round, input_for(call, call.rank, block_bytes) + begin, bytes, &to, 1);
    return true;
  }
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 1; k < call.size; ++k) {
    const unsigned from = (call.rank + k) % call.size;
    if (sends(call, from))
      copy_bytes(channel, output_from(call, from, block_bytes) + begin, channel.pieces(call.rank, from, round), bytes);
  }
  return true;
}

// Two rounds: rank i combines part i of these bytes, then sends it to all.
template <class T, class C>
FAIRWAY_IN_KERNELS bool rounds_of_two_shot(C& channel, Round round, std::uint64_t begin, std::uint64_t bytes) {
  const Call& call = channel.call();
  const std::uint64_t part = ((bytes + call.size - 1) / call.size + 15) / 16 * 16;
  const auto at = [&](unsigned rank) { return at_most(bytes, rank * part); };
  const auto length = [&](unsigned rank) { return at_most(bytes, rank * part + part) - at(rank); };
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 1; k < call.size; ++k) {
    const unsigned to = (call.rank + k) % call.size;
    copy_bytes(channel, channel.pieces(to, call.rank, round), call.input + begin + at(to), length(to));
  }
  tell_pieces(channel, round, call.digest);
  if (!wait_pieces(channel, round, call.digest)) return false;
  const Round second = next_round(round);
  unsigned char* to[kMostRanks];
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 0; k < call.size; ++k) {
    const unsigned rank = (call.rank + k) % call.size;
    to[k] = k == 0 ? call.output + begin + at(call.rank) : channel.pieces(rank, call.rank, second);
  }
  combine_pieces<T>(channel, round, call.input + begin + at(call.rank), length(call.rank), to, call.size);
  tell_pieces(channel, second, call.digest);
  if (!wait_pieces(channel, second, call.digest)) return false;
  FAIRWAY_NOT_UNROLLED
  for (unsigned k = 1; k < call.size; ++k) {
    const unsigned from = (call.rank + k) % call.size;
    copy_bytes(channel, call.output + begin + at(from), channel.pieces(call.rank, from, second), length(from));
  }
  return true;
}

template <class T, class C>
FAIRWAY_IN_KERNELS Round run_pieces(C& channel, std::uint64_t block_bytes) {
  const Call& call = channel.call();
  const bool two_shot = call.way == Way::two_shot;
  const std::uint64_t vectors = (block_bytes + 15) / 16;
  const std::uint64_t end = at_most(block_bytes, part_of(vectors, channel.block() + 1, call.blocks) * 16);
  const std::uint64_t room = static_cast<std::uint64_t>(call.piece_bytes) * (two_shot ? call.size : 1);
  std::uint64_t begin = at_most(block_bytes, part_of(vectors, channel.block(), call.blocks) * 16);
  Round round = channel.piece_round();
  std::uint32_t nth = 0;
  do {
    const std::uint64_t bytes = at_most(room, end - begin);
    channel.in_round(++nth);
    round = next_round(round);
    if (two_shot) {
      if (!rounds_of_two_shot<T>(channel, round, begin, bytes)) break;
      round = next_round(round);
    } else if (!round_of_pieces<T>(channel, round, block_bytes, begin, bytes)) {
      break;
    }
    begin += bytes;
  } while (begin < end);
  return round;
}

// All of it. T: what elements are, if they are combined; else bytes.
template <class T, class H>
FAIRWAY_IN_KERNELS void run_block(const Call& call, unsigned block) {
  Channel<H> channel(call, block);
  if (!channel.enter()) return;
  const std::uint64_t block_bytes = call.work == Work::nothing ? 0 : call.count * sizeof(T);
  const Round round = call.way == Way::units ? run_units<T>(channel, block_bytes) : run_pieces<T>(channel, block_bytes);
  channel.leave(call.way, round);
}

}  // namespace fairway::collectives::gpu
