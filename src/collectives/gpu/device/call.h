#pragma once

#include <cstdint>

#include "collectives/gpu/device/exchange.h"

// What a kernel is given, and what lies in a rank's scratch memory. Fixed layout: the host writes it, kernels of the
// same build read it.
namespace fairway::collectives::gpu {

// Of messages, in reports and in what ranks tell: behind the last CollectiveKind.
inline constexpr std::uint32_t kMessageKind = 10;

// How the bytes of an operation travel.
enum class Way : std::uint8_t {
  one_shot,  // every rank sends what it has for another to that one
  two_shot,  // each rank combines a part, or gets one from the root, and sends it to all
};

// By what its bytes travel. Each is a kernel of its own: what is not in it takes no registers.
enum class Family : std::uint8_t {
  pair,   // lines, between two ranks
  few,    // among up to kFewRanks
  many,   // among more
  units,  // and pieces, where lines may be torn
};

// What a kernel does, of the collectives that move bytes or combine elements.
enum class Work : std::uint8_t {
  nothing,         // barrier
  to_all,          // all_gather: the input goes to all
  to_each,         // all_to_all: block i of the input goes to rank i
  from_root,       // broadcast
  reduce_to_all,   // all_reduce
  reduce_to_each,  // reduce_scatter
  mark,            // not even a round: what another library did has ended
  // Of the further kernels alone:
  reduce_to_root,  // reduce
  blocks,          // gather, scatter, all_to_allv: a block of any size for each rank
};

enum class Combine : std::uint8_t { sum, product, min, max, average };

// Why an operation failed on the GPU.
enum class Cause : std::uint32_t { none, late, mismatch, told, gone, stopped };

// In memory of the host that kernels reach: the first failure of this rank. `state` is written last.
struct Report {
  std::uint32_t state;  // 1: there is one
  Cause cause;
  std::uint32_t peer;     // the rank that is at fault
  std::uint32_t by;       // told: the rank that says so
  std::uint32_t waits;    // of Waits
  std::uint32_t code;     // gone: an ErrorCode; told: the other rank's cause
  std::uint32_t place;    // (stream, graph)
  std::uint32_t call;     // which of that place's operations
  std::uint32_t round;    // from 1
  std::uint32_t entered;  // late: whether the peer has entered it
  std::uint32_t kind;     // CollectiveKind
  std::uint64_t number;   // of the operation, as the host started it, or captured it
  // mismatch of an all_to_allv: bytes that each rank has for this one, and that this one expects of it
  std::uint64_t sent[kMostRanks], expected[kMostRanks];
};

// What a kernel tells other processes of its place, in a page of the rank's ProgressFile: they read it without
// anybody's help. Only an operation that waits for long tells anything: the end of a kernel waits until its stores are
// in the host's memory.
struct alignas(32) Told {
  std::uint64_t entered;      // told_entered(): the newest operation that has waited for long
  std::uint64_t number;       // of it
  std::uint64_t waits;        // told_waits(); 0: it has ended
  std::uint64_t nanoseconds;  // it has waited so long
};
// call (32 bits): which of the place's operations.
FAIRWAY_IN_KERNELS std::uint64_t told_entered(std::uint32_t call, std::uint32_t kind) {
  return static_cast<std::uint64_t>(kind) << 32 | call;
}
FAIRWAY_IN_KERNELS std::uint64_t told_waits(std::uint32_t call, unsigned rank) {
  return static_cast<std::uint64_t>(rank + 1) << 32 | call;
}

// ---- a rank's scratch memory ----

struct ScratchHead {
  std::uint32_t failed;  // an operation has: later ones end at once. This GPU's own
  std::uint32_t unused;
  std::uint64_t told[kMostRanks];  // by other ranks: why they gave up. See told_word()
};
inline constexpr std::uint64_t kScratchHead = 4096;

inline constexpr unsigned kUnitChannels = 64, kPieceChannels = 128, kThreads = 256,  // of a block, at most
    kMostWarps = kThreads / 32, kReadChannels = 64, kReadThreads = 512;

// A row of lines is what a warp writes or reads in one access: of each line's eight lanes seven have 16 bytes, and the
// last 8 bytes and the flag.
inline constexpr unsigned kRowLanes = 32, kRowMemory = kRowLanes * 16, kRowBytes = kRowMemory / 128 * 120;

// Of a (stream, graph): its place among all. It has units and lines for itself.
struct PlaceHead {
  std::uint32_t calls;  // operations that have ended. This and the next three: this GPU's own
  std::uint32_t ended_blocks;
  std::uint32_t grants;  // operations so far that were to have the area
  std::uint32_t unit_rounds[kUnitChannels];
  std::uint64_t line_round;           // this GPU's own, too
  std::uint64_t phase_round;          // and this
  std::uint64_t grants_told[2];       // by rank 0, in turns: see grant_word()
  std::uint64_t entered[kMostRanks];  // by other ranks: see entered_word()
};
inline constexpr std::uint64_t kPlaceHead = 512;
static_assert(sizeof(PlaceHead) <= kPlaceHead && sizeof(ScratchHead) <= kScratchHead);

// Of the area: much memory, for one operation at a time. Rank 0 says which has it. Its rounds of lines are counted
// together, an operation by pieces as one: so the last one says how many there were, too.
struct AreaHead {
  std::uint64_t owner;             // rank 0's: see area_owner()
  std::uint64_t done[kMostRanks];  // rank 0's: the last round of each other rank
  std::uint32_t piece_rounds[kPieceChannels];
};
inline constexpr std::uint64_t kAreaHead = 1024;
static_assert(sizeof(AreaHead) <= kAreaHead);

// Of each place, written by other ranks: how far they are in what is read. phase_word() by block and sender.
struct PhaseHead {
  std::uint64_t phases[kReadChannels * kMostRanks];
};

// The area's last round (48 bits), the place that had it last, plus 1 (15), and whether an operation has it that rank 0
// has not ended.
FAIRWAY_IN_KERNELS std::uint64_t area_owner(std::uint32_t place, bool taken, LineRound last) {
  return last << 16 | static_cast<std::uint64_t>(place + 1) << 1 | (taken ? 1 : 0);
}
FAIRWAY_IN_KERNELS bool is_taken(std::uint64_t owner) {
  return (owner & 1) != 0;
}
FAIRWAY_IN_KERNELS LineRound round_in(std::uint64_t word) {
  return word >> 16;
}
// Whether the place's operation number `nth` (14 bits) that was to have the area has it, and the area's last round.
FAIRWAY_IN_KERNELS std::uint64_t grant_word(std::uint32_t nth, bool has, LineRound last) {
  return last << 16 | static_cast<std::uint64_t>(nth & 0x3FFF) << 2 | 2 | (has ? 1 : 0);
}
FAIRWAY_IN_KERNELS bool is_granted_or_not(std::uint64_t word, std::uint32_t nth) {
  return ((word ^ grant_word(nth, false, 0)) & 0xFFFE) == 0;
}
FAIRWAY_IN_KERNELS bool has_grant(std::uint64_t word) {
  return (word & 1) != 0;
}
FAIRWAY_IN_KERNELS std::uint64_t entered_word(std::uint32_t call, std::uint64_t digest) {
  return (digest >> 32) << 32 | call;
}
// cause (4 bits), rank at fault (4), waits (4), place (12), call (32); of a failure never 0.
FAIRWAY_IN_KERNELS std::uint64_t told_word(Cause cause, unsigned peer, Waits waits, unsigned place,
                                           std::uint32_t call) {
  return static_cast<std::uint64_t>(cause) << 60 | static_cast<std::uint64_t>(peer) << 56 |
         static_cast<std::uint64_t>(waits) << 52 | static_cast<std::uint64_t>(place) << 32 | call;
}

// In memory of the host, for each place: whether another library's operation is inside, which of the place's calls
// (31 bits), the operation's number (28) and its kind (4). The entry of such an operation, and its mark, write it.
FAIRWAY_IN_KERNELS std::uint64_t mark_word(std::uint32_t call, bool inside, std::uint64_t number, unsigned kind) {
  return static_cast<std::uint64_t>(call << 1 | (inside ? 1 : 0)) << 32 | (number & 0xFFFFFFF) << 4 | kind;
}

// Where units lie: by channel, parity and sending rank, `count` of 16 bytes for each.
struct Units {
  std::uint64_t at;
  std::uint32_t count;
};
struct Area {
  std::uint64_t head_at;      // AreaHead
  std::uint64_t flags_at;     // of pieces: by channel and sending rank
  std::uint64_t pieces_at;    // as units
  std::uint32_t piece_bytes;  // of each; a multiple of 16
};

// Where lines lie: by place, channel, row and sending rank, 512 bytes for each row of four lines. A channel is a warp.
struct Lines {
  std::uint64_t at;
  std::uint32_t place_bytes;    // of each of the two
  std::uint32_t blocks, warps;  // of the kernel, and of each block
  std::uint32_t rows;           // of a warp in a round, at most
  std::uint32_t rounds;         // of two_shot: twice as many, of which the second brings the sums
};

// A kernel's argument.
struct Call {
  unsigned char* scratch[kMostRanks];      // of each rank, as this GPU reaches it
  const std::uint32_t* ended[kMostRanks];  // Mapping::ended of each; the own one is null
  const unsigned char* input;
  unsigned char* output;
  std::uint64_t count;       // elements of a block
  std::uint64_t part_bytes;  // of two_shot by lines: of each rank's part, but for the last ones, which have less
  std::uint64_t digest;
  std::uint64_t nanoseconds;  // until its deadline, from the kernel's start on
  std::uint64_t number;
  Report* report;
  const std::uint32_t* stop;  // not 0: the communicator was aborted
  Told* told;
  std::uint64_t place_at;  // PlaceHead
  Units units;
  Area area;
  Lines lines, area_lines;  // rounds 0: none, the bytes go by units, or by pieces in the area
  std::uint32_t place;      // its number
  std::uint32_t rank, size, root;
  std::uint32_t blocks;      // of the kernel; 0: it does nothing
  std::uint32_t wants_area;  // 0: units do
  std::uint32_t kind;        // CollectiveKind
  Work work;
  Way way;  // by lines or pieces; by units always one_shot
  Combine combine;
  std::uint64_t* marks;  // mark_word() of this place; null: it writes none
};

// The argument of a kernel that reads what the others have: it meets them, combines what it reads if it combines, and
// then meets them again. With call.part_bytes: of all_reduce, this rank's part.
struct ReadCall {
  Call call;
  const unsigned char* inputs[kMostRanks];  // of the other ranks, as this GPU reaches them
  std::uint64_t phases_at;                  // PhaseHead of the place
  std::uint32_t ends;                       // the operation ends with this kernel; 0: others of it follow
};

// The argument of a further kernel. By rank: how many bytes this one has for it, and gets, and where in its memory.
struct FurtherCall {
  Call call;
  std::uint64_t sends[kMostRanks], send_at[kMostRanks], takes[kMostRanks], take_at[kMostRanks];
  std::uint64_t sizes_at;  // SizesHead of the place
  double factor;           // 1, or by what the input is multiplied
  std::uint32_t sized;     // 1: no rank knows the other ranks' sizes, which decide how many rounds there are
};

// Of each place, written by other ranks: in turns of calls, by sender, what it has for this rank and the most that it
// has for any or gets from any, in pairs of words of which each has the call in its upper half: see size_word().
struct SizesHead {
  std::uint64_t words[2][kMostRanks][4];
};
FAIRWAY_IN_KERNELS std::uint64_t size_word(std::uint32_t call, std::uint64_t size, bool upper) {
  return static_cast<std::uint64_t>(call) << 32 | (upper ? size >> 32 : size & 0xFFFFFFFF);
}

// A message: its place's head and what lies there are of these two ranks alone, so call.place_at is, too.
struct MessageCall {
  Call call;               // blocks: of this message. input or output, by who sends
  std::uint64_t heard_at;  // of the sender's memory: a word for each channel
  std::uint32_t peer, sends;
};
// Of one kernel, which all travel at once. As many arguments as every driver takes.
inline constexpr unsigned kMessagesAtOnce = 8, kBlocksAtOnce = 192,  // of all of them
    kMessageBlocks = 64;                                             // of one, at most
struct MessagesCall {
  MessageCall each[kMessagesAtOnce];
  std::uint32_t count;
};
static_assert(sizeof(MessagesCall) <= 4096);

// The kernels of kernels.cu as the driver takes them; null if this was built without nvcc.
const char* group_kernels();
const char* further_kernels();  // of further.cu

}  // namespace fairway::collectives::gpu
