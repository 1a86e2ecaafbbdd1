#pragma once

#include <cstdint>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/gpu_call.h"

// Where things lie in the ranks' scratch memory, and how an operation goes. Pure: every rank comes to the same answer,
// because all make the same calls in the same order on streams of the same pattern.
namespace fairway::collectives::gpu {

// The scratch memory of a rank. Below 16 MiB for any number of ranks.
struct Layout {
  struct Area {  // for pieces
    std::uint64_t flags_at = 0, pieces_at = 0;
    std::uint32_t channels = 0, piece_bytes = 0;
  };
  static constexpr std::uint32_t kPlaces = 32, kWideAreas = 2, kNarrowAreas = 8;

  std::uint32_t size = 1;   // ranks
  std::uint32_t units = 0;  // of 16 bytes, for a channel, parity and rank
  std::uint64_t units_at = 0, units_stride = 0;
  std::vector<Area> areas = {};  // the wide ones first
  std::uint64_t bytes = 0;

  [[nodiscard]] static std::uint64_t place_at(std::uint32_t place) { return kScratchHead + place * kPlaceHead; }
};
Layout layout_of(int size);

// A stream, or a stream in one capture: operations of different ones may run at the same time, so they share no place.
// Both are the driver's numbers, which it never uses again; capture 0: none.
struct Source {
  std::uint64_t stream = 0, capture = 0;
  bool operator==(const Source&) const = default;
};

// Which places and areas are taken, in the order of the first calls. A place stays with its source for as long as the
// communicator lives: nobody tells when a graph is launched for the last time.
class Places {
 public:
  explicit Places(const Layout& layout) : layout_(layout) {}
  // -1: all are taken.
  int place_of(const Source& source);
  // The area of that place, which gets one if there is one left. -1: none; then its bytes go by units.
  int area_of(std::uint32_t place, bool wide);

 private:
  static int take(std::uint32_t& taken, std::uint32_t of, std::uint32_t first);

  struct Taken {
    Source source;
    int area = -1;
  };
  const Layout& layout_;
  std::vector<Taken> taken_;
  std::uint32_t wide_ = 0, narrow_ = 0;
};

// How the bytes go. `block_bytes`: of Collective::count elements.
struct Route {
  Way way = Way::units;
  std::uint32_t blocks = 1;
  int area = -1;
};
Route route_of(const Layout& layout, Places& places, std::uint32_t place, Work work, std::uint64_t block_bytes,
               Algorithm asked);

// Of more bytes to all other ranks together, pieces are sent: to be measured (docs/collectives.md).
inline constexpr std::uint64_t kMostByUnits = 32U << 10;

// Whether that collective can run on a GPU, and what kernels then do.
bool work_of(CollectiveKind kind, Work& out);

}  // namespace fairway::collectives::gpu
