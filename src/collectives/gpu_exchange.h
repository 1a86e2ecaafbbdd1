#pragma once

#include <cstdint>

// How the ranks' kernels exchange bytes through each other's scratch memory, round by round. The same code runs in
// kernels (gpu_kernels.cu), in the stand-in driver's (tests/support/cuda) and under the model (tests/model), which say
// by `Machine` how memory is accessed. docs/collectives.md has the picture.
//
// A channel is one block of each rank's kernel. In a round every rank sends to every other, be it only the word that
// says so, and waits for every other. Rounds of a channel are numbered; places for arriving bytes are two, used in
// turn. So the bytes of round s may overwrite those of round s - 2: who is in round s has heard of everybody's round s
// - 1, and everybody began that after it had read what came in round s - 2.
namespace fairway::collectives::gpu {

#if defined(__CUDACC__)
#define FAIRWAY_IN_KERNELS __device__ __forceinline__
#define FAIRWAY_APART __device__ __noinline__  // once in a kernel: rare, or much code
#define FAIRWAY_UNROLL _Pragma("unroll")
#define FAIRWAY_NOT_UNROLLED _Pragma("unroll 1")
#else
#define FAIRWAY_IN_KERNELS inline
#define FAIRWAY_APART inline
#define FAIRWAY_UNROLL
#define FAIRWAY_NOT_UNROLLED
#endif

inline constexpr unsigned kMostRanks = 8;

using Round = std::uint32_t;  // from 1; 0 is memory that nobody has written

// When the numbers wrap around, 0 is left out, and 1 with it, so that even and odd still take turns.
FAIRWAY_IN_KERNELS Round next_round(Round last) {
  return last == 0xFFFFFFFF ? 2 : last + 1;
}
FAIRWAY_IN_KERNELS unsigned place_of(Round round) {
  return round & 1;
}
// A flag that was written so many rounds ago could be taken for the one that comes next once the numbers have wrapped
// around. So each place is cleared in one of 2^30 rounds, after its bytes were read: nobody writes there before round
// s + 2, for which they wait for this rank's s + 1.
FAIRWAY_IN_KERNELS bool clears_place(Round round) {
  return (round & 0x3FFFFFFE) == 2;
}

// What a rank waits for, in errors.
enum class Waits : std::uint32_t { start = 0, units = 1, pieces = 2 };

// ---- by units: 8 bytes and the flag that says that they are there, in one place, so no fence is needed ----
//
// Machine, for a group of lanes that call everything together:
//   lane(), lanes(); rank(), size(); meet(): all lanes; any(bool): meet(), and whether it is true on any
//   store_unit(to, index, round, data): unit `index` of that rank's place for what comes from this one
//   load_unit(from, index, round, data&): false: it has not come from that rank
//   clear_units(round): of this rank's own places of that parity
//   gives_up(from, Waits): between looks; true: no longer waits for that rank. Then the operation has failed here
//   mismatch(from): that rank has called something else

// Unit 0 has the call's digest, for every rank; the others follow. False: gives up.
template <class Machine>
FAIRWAY_IN_KERNELS void send_digest(Machine& machine, Round round, std::uint64_t digest) {
  for (unsigned to = machine.lane(); to < machine.size(); to += machine.lanes())
    if (to != machine.rank()) machine.store_unit(to, 0, round, digest);
}
template <class Machine>
FAIRWAY_IN_KERNELS bool wait_unit(Machine& machine, Round round, unsigned from, std::uint32_t index, Waits waits,
                                  std::uint64_t& data) {
  while (!machine.load_unit(from, index, round, data))
    if (machine.gives_up(from, waits)) return false;
  return true;
}
template <class Machine>
FAIRWAY_IN_KERNELS bool wait_digests(Machine& machine, Round round, std::uint64_t digest) {
  bool good = true;
  for (unsigned from = machine.lane(); from < machine.size(); from += machine.lanes()) {
    if (from == machine.rank()) continue;
    std::uint64_t theirs = 0;
    if (!wait_unit(machine, round, from, 0, Waits::start, theirs)) {
      good = false;
    } else if (theirs != digest) {
      machine.mismatch(from);
      good = false;
    }
  }
  return good;
}

// A round. sends(rank): whether it has units for the others. send(to, i): unit i for that rank; `same`: the same for
// all. take(i, data of each rank but this one, by rank) is called for each unit once all of them are there. False: it
// has failed, and nothing is promised of what was taken.
template <class Machine, class Sends, class Send, class Take>
FAIRWAY_IN_KERNELS bool exchange_units(Machine& machine, Round round, std::uint64_t digest, std::uint32_t units,
                                       bool same, Sends sends, Send send, Take take) {
  send_digest(machine, round, digest);
  const unsigned size = machine.size(), rank = machine.rank();
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t i = machine.lane(); sends(rank) && i < units; i += machine.lanes()) {
    std::uint64_t data = 0;
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < size; ++k) {  // each begins with another, so that not all send to one
      const unsigned to = rank + k < size ? rank + k : rank + k - size;
      if (k == 1 || !same) data = send(to, i);
      machine.store_unit(to, i + 1, round, data);
    }
  }
  if (!same) machine.meet();  // in place, what is taken lies where another lane's was sent from
  bool good = wait_digests(machine, round, digest);
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t i = machine.lane(); good && i < units; i += machine.lanes()) {
    std::uint64_t data[kMostRanks] = {};
    bool has[kMostRanks];
    FAIRWAY_UNROLL
    for (unsigned from = 0; from < kMostRanks; ++from) {  // all at once, which mostly suffices
      has[from] = from >= size || from == rank || !sends(from);
      if (!has[from]) has[from] = machine.load_unit(from, i + 1, round, data[from]);
    }
    FAIRWAY_UNROLL
    for (unsigned from = 0; from < kMostRanks; ++from)
      if (good && !has[from]) good = wait_unit(machine, round, from, i + 1, Waits::units, data[from]);
    if (good) take(i, data);
  }
  if (machine.any(!good)) return false;
  if (clears_place(round)) {
    machine.clear_units(round);
    machine.meet();
  }
  return true;
}

// ---- by pieces: bytes of any kind in a place, then a flag of each sender ----
//
//   release(): what all lanes have written before the last meet() comes before the flags
//   store_flag(to, value), load_flag(from): in no order, and acquiring

// Flags carry the round and a part of the call's digest.
FAIRWAY_IN_KERNELS std::uint64_t flag_of(Round round, std::uint64_t digest) {
  return (digest >> 32) << 32 | round;
}

// Tells every other rank that what this one has for it in this round is there.
template <class Machine>
FAIRWAY_IN_KERNELS void tell_pieces(Machine& machine, Round round, std::uint64_t digest) {
  machine.meet();
  for (unsigned to = machine.lane(); to < machine.size(); to += machine.lanes()) {
    if (to == machine.rank()) continue;
    machine.release();
    machine.store_flag(to, flag_of(round, digest));
  }
}
// Waits until every other rank's bytes of this round are there. False: it has failed.
template <class Machine>
FAIRWAY_IN_KERNELS bool wait_pieces(Machine& machine, Round round, std::uint64_t digest) {
  bool good = true;
  for (unsigned from = machine.lane(); from < machine.size(); from += machine.lanes()) {
    if (from == machine.rank()) continue;
    for (;;) {
      const std::uint64_t flag = machine.load_flag(from);
      const auto theirs = static_cast<Round>(flag);
      // It may be a round ahead. The flag that it wrote in this one is gone then, and it has found this rank's right.
      if (static_cast<std::int32_t>(theirs - round) >= 0) {
        if (theirs != round || flag == flag_of(round, digest)) break;
        machine.mismatch(from);
        good = false;
        break;
      }
      if (machine.gives_up(from, Waits::pieces)) {
        good = false;
        break;
      }
    }
  }
  return !machine.any(!good);
}

}  // namespace fairway::collectives::gpu
