#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/gpu_call.h"

// Where things lie in the ranks' scratch memory, and how an operation goes. Pure: every rank comes to the same answer,
// because all make the same calls in the same order on streams of the same pattern.
namespace fairway::collectives::gpu {

// The scratch memory of a rank. Below 16 MiB for any number of ranks.
struct Layout {
  static constexpr std::uint32_t kPlaces = 32, kWidePlaces = 6;  // the first are wide: most programs use few

  std::uint32_t size = 1;    // ranks
  std::uint64_t own_at = 0;  // what each place has for itself, for lines or units
  std::uint32_t unit_count = 0;
  Area area = {};  // for pieces, or for lines
  std::uint64_t phases_at = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] static std::uint64_t place_at(std::uint32_t place) { return kScratchHead + place * kPlaceHead; }
  [[nodiscard]] std::uint64_t phases_of(std::uint32_t place) const { return phases_at + place * sizeof(PhaseHead); }
  [[nodiscard]] static bool is_wide(std::uint32_t place) { return place < kWidePlaces; }
  [[nodiscard]] static std::uint64_t own_bytes(std::uint32_t place) { return is_wide(place) ? kWideBytes : kOwnBytes; }
  [[nodiscard]] std::uint64_t own_of(std::uint32_t place) const {
    const std::uint32_t wide = std::min(place, kWidePlaces);
    return own_at + wide * kWideBytes + (place - wide) * kOwnBytes;
  }

 private:
  static constexpr std::uint64_t kWideBytes = 560U << 10, kOwnBytes = 176U << 10;
};
Layout layout_of(int size);

// A stream, or a stream in one capture: operations of different ones may run at the same time, so they share no place.
// The driver never uses a number of either again. Within a capture `stream` is the handle; capture 0: none.
struct Source {
  std::uint64_t stream = 0, capture = 0;
  bool operator==(const Source&) const = default;
};

// Which places are taken, in the order of the first calls. A place stays with its source for as long as the
// communicator lives: nobody tells when a graph is launched for the last time.
class Places {
 public:
  // -1: all are taken.
  int place_of(const Source& source);

 private:
  std::vector<Source> taken_;
};

// How the bytes go. `block_bytes`: of Collective::count elements.
struct Route {
  Way way = Way::one_shot;
  bool wants_area = false;
  std::uint32_t blocks = 1;
  std::uint32_t threads = 32;    // of a block
  std::uint64_t part_bytes = 0;  // of two_shot by lines: Call::part_bytes
  Lines lines = {};              // without the area; `at` is left out
  Lines area_lines = {};         // with it; rounds 0: by pieces
};
// `place`: of the stream or capture. `by_lines`: all ranks reach each other by links that keep lines whole.
Route route_of(const Layout& layout, std::uint32_t place, Work work, std::uint64_t block_bytes, Algorithm asked,
               bool by_lines);

// How an operation goes whose memory the other ranks read where it is.
struct ReadRoute {
  std::uint32_t blocks = 1;      // of the kernel that combines
  std::uint64_t part_bytes = 0;  // of each rank's part of all_reduce; of a chunk of a broadcast
  std::uint32_t chunks = 1;      // of a broadcast
};
// None: few bytes, for which the other ways take less time.
// `from`: bytes that a rank gets, 0: as measured.
std::optional<ReadRoute> read_route_of(std::uint32_t size, Work work, std::uint64_t block_bytes,
                                       std::uint64_t from = 0);
// Part `part`, from 0, of so many bytes: each is `part_bytes` long, the last ones less.
struct Range {
  std::uint64_t begin = 0, bytes = 0;
};
Range nth_part(std::uint64_t bytes, std::uint64_t part_bytes, std::uint64_t part);

// Of so many bytes that a rank gets, they are read where they are: in all_reduce between two, in broadcast, in
// reduce_scatter, in the others. Measured between two GPUs and among four (docs/collectives.md).
inline constexpr std::uint64_t kWholeByReading = 96U << 20, kReducedByReading = 24U << 20, kMovedByReading = 48U << 20;
// Of more bytes to all other ranks together, the area is used. Where there are lines, a wide place has room for more.
// Chosen from a few runs on two GPUs, not searched for (docs/collectives.md).
inline constexpr std::uint64_t kMostByUnits = 96U << 10, kMostByLines = 160U << 10, kMostByWideLines = 256U << 10;
// Of more than that a broadcast among more than two goes in two steps.
inline constexpr std::uint64_t kBroadcastAtOnce = 2U << 20;

// Whether that collective can run on a GPU, and what kernels then do.
bool work_of(CollectiveKind kind, Work& out);

}  // namespace fairway::collectives::gpu
