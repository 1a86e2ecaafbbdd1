#pragma once

#include <cstdint>

// How the ranks' kernels exchange bytes through each other's scratch memory, round by round. The same code runs in
// kernels (kernels.cu), in the stand-in driver's (tests/support/cuda) and under the model (tests/model), which say
// by `Machine` how memory is accessed. docs/collective-algorithms.md says where each is used.
//
// A channel is one block of each rank's kernel. In a round every rank sends to every other, be it only the word that
// says so, and waits for every other. Rounds of a channel are numbered; places for arriving bytes are used in turn. By
// units there are two: the bytes of round s may overwrite those of round s - 2, since who is in round s has heard of
// everybody's round s - 1, and everybody began that after it had read what came in round s - 2. By pieces: see
// exchange_pieces().
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

inline constexpr unsigned kMostRanks = 8, kFewRanks = 4;

using Round = std::uint32_t;      // from 1; 0 is memory that nobody has written
using LineRound = std::uint64_t;  // the same, of lines: of 48 bits, which last for years

// Places for the units and the pieces of a sender. Rounds take them in turn.
inline constexpr unsigned kUnitPlaces = 2, kPiecePlaces = 4;

// When the numbers wrap around, the first four are left out, so that places are still taken in turn.
FAIRWAY_IN_KERNELS Round next_round(Round last) {
  return last == 0xFFFFFFFF ? 4 : last + 1;
}
FAIRWAY_IN_KERNELS unsigned unit_place_of(Round round) {
  return round % kUnitPlaces;
}
FAIRWAY_IN_KERNELS unsigned piece_place_of(Round round) {
  return round % kPiecePlaces;
}
// A flag that was written so many rounds ago could be taken for the one that comes next once the numbers have wrapped
// around. So each place is cleared in one of 2^30 rounds, after its bytes were read: nobody writes there before round
// s + 2, for which they wait for this rank's s + 1.
FAIRWAY_IN_KERNELS bool clears_place(Round round) {
  return (round & 0x3FFFFFFE) == 2;
}

// What a rank waits for, in errors.
enum class Waits : std::uint32_t { start = 0, units = 1, pieces = 2, lines = 3, phases = 4 };

// ---- by units: 8 bytes and two flags that say that they are there, in one place, so no fence is needed ----
//
// Machine, for a group of lanes that call everything together:
//   lane(), lanes(); rank(), size(); meet(): all lanes; any(bool): meet(), and whether it is true on any
//   store_unit(to, index, round, data): unit `index` of that rank's place for what comes from this one
//   load_unit(from, index, round, data&): false: it has not come from that rank, or belongs to another call
//   clear_units(round): of this rank's own places of that parity
//   gives_up(from, Waits): between looks; true: no longer waits for that rank. Then the operation has failed here
//   mismatch(from): that rank has called something else

template <class Machine>
FAIRWAY_IN_KERNELS bool wait_unit(Machine& machine, Round round, unsigned from, std::uint32_t index, Waits waits,
                                  std::uint64_t& data) {
  do {  // it has been looked for once
    if (machine.gives_up(from, waits)) return false;
  } while (!machine.load_unit(from, index, round, data));
  return true;
}

// A round. sends(rank): whether it has units for the others; who has none sends an empty one. send(to, i): unit i for
// that rank; `same`: the same for all. meanwhile(): while they are on their way. take(i, data of each rank but this
// one, by rank) is called for each unit once all of them are there. False: it has failed, and nothing is promised of
// what was taken.
template <class Machine, class Sends, class Send, class Meanwhile, class Take>
FAIRWAY_IN_KERNELS bool exchange_units(Machine& machine, Round round, std::uint32_t units, bool same, Sends sends,
                                       Send send, Meanwhile meanwhile, Take take) {
  const unsigned size = machine.size(), rank = machine.rank();
  const std::uint32_t mine = sends(rank) ? units : 0;
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t i = machine.lane(); i < mine || i == 0; i += machine.lanes()) {
    std::uint64_t data = 0;
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < size; ++k) {  // each begins with another, so that not all send to one
      const unsigned to = rank + k < size ? rank + k : rank + k - size;
      if (i < mine && (k == 1 || !same)) data = send(to, i);
      machine.store_unit(to, i, round, data);
    }
  }
  meanwhile();
  if (!same) machine.meet();  // in place, what is taken lies where another lane's was sent from
  bool good = true;
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t i = machine.lane(); good && (i < units || i == 0); i += machine.lanes()) {
    std::uint64_t data[kMostRanks] = {};
    bool has[kMostRanks];
    FAIRWAY_UNROLL
    for (unsigned from = 0; from < kMostRanks; ++from) {  // all at once, which mostly suffices
      has[from] = from >= size || from == rank || (i != 0 && !sends(from));
      if (!has[from]) has[from] = machine.load_unit(from, i, round, data[from]);
    }
    FAIRWAY_UNROLL
    for (unsigned from = 0; from < kMostRanks; ++from)
      if (good && !has[from])
        good = wait_unit(machine, round, from, i, i == 0 ? Waits::start : Waits::units, data[from]);
    if (good && i < units) take(i, data);
  }
  if (machine.any(!good)) return false;
  if (clears_place(round)) {
    machine.clear_units(round);
    machine.meet();
  }
  return true;
}

// ---- by lines: 120 bytes and a flag, which the hardware writes and reads as one; so no fence is needed ----
//
// A channel is one warp of each rank's kernel. Every rank sends at least one line to every other in each round. There
// are two places, as for units. Calls use them one after the other, with other channels and at other offsets: who takes
// part in a call has ended the call before, and in the first round of a call the place is used in which nobody reads
// any more.

FAIRWAY_IN_KERNELS unsigned line_place_of(LineRound round) {
  return static_cast<unsigned>(round % 2);
}
FAIRWAY_IN_KERNELS std::uint64_t line_flag_of(LineRound round, std::uint64_t digest) {
  return round << 16 | digest >> 48;
}

// Where lines may be torn, rows of units go by these rounds, too, in memory of their own: each of the two flags of 8
// bytes.
FAIRWAY_IN_KERNELS std::uint64_t slot_flag_of(LineRound round, std::uint64_t digest, bool second) {
  const auto low = static_cast<std::uint32_t>(round), high = static_cast<std::uint32_t>(round >> 32);
  return second ? low + static_cast<std::uint32_t>(digest >> 32) + high * 0x9E3779B9U : low;
}

// So many rounds, after `round`. send(nth, round): this rank's lines for the others; take(nth, round): waits for
// theirs. False: it has failed.
template <class Machine, class Send, class Take>
FAIRWAY_IN_KERNELS bool exchange_lines(Machine& machine, LineRound round, std::uint32_t rounds, Send send, Take take) {
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t nth = 0; nth < rounds; ++nth) {
    machine.in_round(nth + 1);
    ++round;
    send(nth, round);
    if (!take(nth, round)) return false;
  }
  return true;
}

// The same, where no rank knows how many rounds there are before it has heard of all others: the first was sent
// already.
template <class Machine, class Send, class Take>
FAIRWAY_IN_KERNELS bool exchange_begun_lines(Machine& machine, LineRound round, std::uint32_t rounds, Send send,
                                             Take take) {
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t nth = 0; nth < rounds; ++nth) {
    machine.in_round(nth + 1);
    ++round;
    if (nth != 0) send(nth, round);
    if (!take(nth, round)) return false;
  }
  return true;
}

// ---- messages: by lines, between the two ranks whose message it is ----
//
// A channel is a warp. The receiver's lines have nothing but a flag, so they are a word: its last round. It is told at
// the round's beginning, when all of the round before is taken; so who sends has two places, too. It may be of the next
// call, which the receiver comes to once it has taken all of this one.

// False: it has failed. put(nth, round), get(nth, round): the bytes; tell(word), heard(): of the sender's memory.
template <class Machine, class Put>
FAIRWAY_IN_KERNELS bool send_in_rounds(Machine& machine, LineRound round, std::uint64_t digest, std::uint32_t rounds,
                                       Put put) {
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t nth = 0; nth < rounds; ++nth) {
    machine.in_round(nth + 1);
    put(nth, ++round);
    for (;;) {
      const std::uint64_t word = machine.heard();
      if (word >> 16 >= round) {
        if (word >> 16 != round || word == line_flag_of(round, digest)) break;
        return machine.differs();
      }
      if (machine.waits_no_longer()) return false;
    }
  }
  return true;
}
template <class Machine, class Get>
FAIRWAY_IN_KERNELS bool receive_in_rounds(Machine& machine, LineRound round, std::uint64_t digest, std::uint32_t rounds,
                                          Get get) {
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t nth = 0; nth < rounds; ++nth) {
    machine.in_round(nth + 1);
    machine.tell(line_flag_of(++round, digest));
    if (!get(nth, round)) return false;
  }
  return true;
}

// ---- by pieces: bytes of any kind in a place, then a flag of each sender ----
//
//   in_round(nth): which round comes, for errors
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

// So many rounds, from the one after `round` on, which ends as the last. send(nth, round): puts this rank's bytes into
// the others' places; take(nth, round): reads those of the others. `ahead`: so many rounds are on their way while one
// is taken, at most half the places: who is heard of in round s has taken round s - ahead, so round s + ahead may use
// the place of round s + ahead - kPiecePlaces. False: it has failed.
template <class Machine, class Send, class Take>
FAIRWAY_IN_KERNELS bool exchange_pieces(Machine& machine, Round& round, std::uint64_t digest, std::uint32_t rounds,
                                        std::uint32_t ahead, Send send, Take take) {
  Round to = round;
  std::uint32_t sent = 0;
  FAIRWAY_NOT_UNROLLED
  for (; sent < ahead && sent < rounds; ++sent) {
    to = next_round(to);
    send(sent, to);
    tell_pieces(machine, to, digest);
  }
  FAIRWAY_NOT_UNROLLED
  for (std::uint32_t nth = 0; nth < rounds; ++nth) {
    machine.in_round(nth + 1);
    round = next_round(round);
    if (!wait_pieces(machine, round, digest)) return false;
    const bool has_more = sent < rounds;
    if (has_more) {
      to = next_round(to);
      send(sent++, to);
    }
    take(nth, round);
    if (has_more) tell_pieces(machine, to, digest);
  }
  return true;
}

// ---- by reading: bytes stay in their owner's memory, and the others read them there ----
//
// A channel is one block of each rank's kernel. In a phase every rank says that it has come so far, and waits for all
// others. Behind the first phase they have entered, so what they have may be read; behind a later one it may be read
// what they have written before it; and behind the last one they have read all that they want, so the memory is the
// caller's again. One word for each sender is enough: who is heard of in phase p has heard of everybody's phase p - 1,
// so that word is not needed any more.
//
//   tell_phase(to, word), load_phase(from): in no order, and acquiring

using PhaseRound = std::uint64_t;  // from 1, of all phases of a place: 44 bits, which last for years

FAIRWAY_IN_KERNELS std::uint64_t phase_word(PhaseRound round, std::uint64_t digest) {
  return round << 20 | digest >> 44;
}

// Comes to a phase and waits for all others. False: it has failed.
template <class Machine>
FAIRWAY_IN_KERNELS bool meet_in_phase(Machine& machine, PhaseRound round, std::uint64_t digest) {
  machine.meet();
  bool good = true;
  for (unsigned to = machine.lane(); to < machine.size(); to += machine.lanes()) {
    if (to == machine.rank()) continue;
    machine.release();
    machine.tell_phase(to, phase_word(round, digest));
  }
  for (unsigned from = machine.lane(); good && from < machine.size(); from += machine.lanes()) {
    if (from == machine.rank()) continue;
    for (;;) {
      const std::uint64_t word = machine.load_phase(from);
      const PhaseRound theirs = word >> 20;
      if (theirs >= round) {  // ahead: then it has found this rank's word right
        good = theirs != round || word == phase_word(round, digest);
        if (!good) machine.mismatch(from);
        break;
      }
      if (machine.gives_up(from, Waits::phases)) {
        good = false;
        break;
      }
    }
  }
  return !machine.any(!good);
}

}  // namespace fairway::collectives::gpu
