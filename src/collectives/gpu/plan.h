#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fairway/collectives.h"
#include "fairway/status.h"

#include "collectives/gpu/device/call.h"
#include "sys/cuda.h"

// Where things lie in the ranks' scratch memory, and how an operation goes. Pure: every rank comes to the same answer,
// because all make the same calls in the same order on streams of the same pattern.
namespace fairway::collectives::gpu {

struct Range {
  std::uint64_t begin = 0, bytes = 0;
};
// The scratch memory of a rank. Below 33 MiB for any number of ranks, and 8.4 more with messages.
struct Layout {
  static constexpr std::uint32_t kPlaces = 128, kWidePlaces = 6;  // the first are wide: most programs use few
  // Of messages: places of each pair and direction, of which the first is wide; and those of all pairs of ranks.
  static constexpr std::uint32_t kMessagePlaces = 6, kMessageHeads = kMostRanks * kMostRanks * kMessagePlaces;

  // What ranks tell of: places, and of each rank the places of its messages.
  static constexpr std::uint32_t kTolds = 256;

  std::uint32_t size = 1;    // ranks
  std::uint64_t own_at = 0;  // what each place has for itself, for lines or units
  std::uint32_t unit_count = 0;
  Area area = {};  // for pieces, or for lines
  std::uint64_t phases_at = 0;
  std::uint64_t sizes_at = 0, slots_at = 0, heads_at = 0, heard_at = 0, messages_at = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] static std::uint64_t place_at(std::uint32_t place) { return kScratchHead + place * kPlaceHead; }
  [[nodiscard]] std::uint64_t phases_of(std::uint32_t place) const { return phases_at + place * sizeof(PhaseHead); }
  [[nodiscard]] std::uint64_t sizes_of(std::uint32_t place) const { return sizes_at + place * sizeof(SizesHead); }
  // Where further kernels have rows. By units it is apart from the other kernels' units, whose places turn by
  // themselves.
  [[nodiscard]] Range slots_of(std::uint32_t place, bool by_lines) const {
    if (by_lines) return {own_of(place), own_bytes(place)};
    if (is_wide(place)) return {own_of(place) + kOwnBytes, kWideBytes - kOwnBytes};
    return {slots_at + (place - kWidePlaces) * kSlotBytes, kSlotBytes};
  }
  // Of messages from one rank to another: the number of a place of theirs, its head, and what lies there of the two.
  [[nodiscard]] static std::uint32_t message_id(std::uint32_t from, std::uint32_t to, std::uint32_t place) {
    return (from * kMostRanks + to) * kMessagePlaces + place;
  }
  // Which of `from` and `to` tells of it as which: of its own and another one's messages.
  [[nodiscard]] static std::uint32_t told_of(std::uint32_t rank, std::uint32_t from, std::uint32_t to,
                                             std::uint32_t place) {
    const std::uint32_t other = rank == from ? to : from, nth = other < rank ? other : other - 1;
    return kPlaces + ((rank == from ? 0 : kMostRanks - 1) + nth) * kMessagePlaces + place;
  }
  [[nodiscard]] std::uint64_t head_of(std::uint32_t id) const { return heads_at + id * kPlaceHead; }
  [[nodiscard]] std::uint64_t heard_of(std::uint32_t from, std::uint32_t to, std::uint32_t place) const;  // at `from`
  [[nodiscard]] Range message_of(std::uint32_t from, std::uint32_t to, std::uint32_t place) const;        // at `to`
  [[nodiscard]] static bool is_wide(std::uint32_t place) { return place < kWidePlaces; }
  [[nodiscard]] static std::uint64_t own_bytes(std::uint32_t place) { return is_wide(place) ? kWideBytes : kOwnBytes; }
  [[nodiscard]] std::uint64_t own_of(std::uint32_t place) const {
    const std::uint32_t wide = std::min(place, kWidePlaces);
    return own_at + wide * kWideBytes + (place - wide) * kOwnBytes;
  }

 private:
  static constexpr std::uint64_t kWideBytes = 560U << 10, kOwnBytes = 144U << 10, kSlotBytes = 32U << 10;
};
// `messages`: with room for those.
Layout layout_of(int size, bool messages);

// A stream, or a stream in one capture: operations of different ones may run at the same time, so they share no place.
// The driver never uses a number of either again. Within a capture `stream` is the handle; capture 0: none.
struct Source {
  std::uint64_t stream = 0, capture = 0;
  static constexpr std::uint64_t kAnyCapture = ~std::uint64_t{0};  // of that stream: where graphs take turns
  bool operator==(const Source&) const = default;
};

// Which places are taken, in the order of the first calls. One of a capture stays with it until it is given back. A
// stream's is taken over once there is no other: from the stream that was not used for longest, of those whose last
// operation can be waited for, which is so once has_end() was called. Every rank whose calls come in the same order,
// and which gives back the same ones between the same calls, comes to the same one.
class Places {
 public:
  // `few`: with up to so many nobody records ends.
  explicit Places(std::uint32_t most = Layout::kPlaces, std::uint32_t few = 8) : most_(most), few_(few) {}
  struct Found {
    int place = -1;         // -1: all are taken, none can be had
    bool after = false;     // of another stream until now: what is enqueued waits for that one's end
    std::uint64_t nth = 0;  // of all to whom a place was given, its owner; who comes again counts again
  };
  Found place_of(const Source& source);
  [[nodiscard]] bool are_taken() const { return taken_.size() == most_; }  // each was, once
  // Whether place_of() would find none.
  [[nodiscard]] bool lacks(const Source& source) const;
  using Set = std::array<std::uint64_t, Layout::kPlaces / 64>;  // a bit each
  // Those of captures of which `is_over` is true, called with Source::capture.
  template <class IsOver>
  [[nodiscard]] Set over(const IsOver& is_over) const {
    Set set = {};
    for (std::size_t at = 0; at < taken_.size(); ++at)
      if (taken_[at].source.capture != 0 && is_over(taken_[at].source.capture)) set[at / 64] |= 1ULL << at % 64;
    return set;
  }
  void give_back(const Set& places);
  [[nodiscard]] std::uint32_t most() const { return most_; }
  // Whether there are so many that who enqueues a stream's operation records its end. Programs with few streams, whose
  // operations that would make longer, never do.
  [[nodiscard]] bool need_ends() const { return taken_.size() > few_; }
  [[nodiscard]] std::optional<std::size_t> find(const Source& source) const;
  void has_end(std::size_t place) { taken_[place].has_end = true; }  // its newest operation, of a stream

 private:
  struct Taken {
    Source source;
    std::uint64_t nth = 0;
    std::uint64_t used = 0;  // by which of all calls
    bool has_end = false;
    bool free = false;  // it was given back
  };
  [[nodiscard]] std::size_t oldest() const;  // that can be waited for; taken_.size(): none
  std::uint32_t most_, few_;
  std::uint64_t calls_ = 0, given_ = 0;
  std::vector<Taken> taken_;
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

// The same of a further kernel. `block_bytes`: of the largest block; `sized`: that no rank knows.
Route further_route_of(const Layout& layout, std::uint32_t place, Work work, std::uint64_t block_bytes, bool sized,
                       Algorithm asked, bool by_lines);
// Messages of a kernel among so many ranks: to half of them, and from them.
constexpr std::uint32_t messages_at_once(std::uint32_t size) {
  return 2 * ((size + 1) / 2);
}
// And of a message among `size` ranks. Its rows lie in message_of(), which is `memory`.
Route message_route_of(std::uint32_t size, const Range& memory, std::uint64_t bytes, bool by_lines);

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
Range nth_part(std::uint64_t bytes, std::uint64_t part_bytes, std::uint64_t part);

// Of so many bytes that a rank gets, they are read where they are: in all_reduce between two, in broadcast, in
// reduce_scatter, in the others. Measured between two GPUs and among four (docs/collective-figures.md).
inline constexpr std::uint64_t kWholeByReading = 96U << 20, kReducedByReading = 24U << 20, kMovedByReading = 48U << 20;
// Of more bytes to all other ranks together, the area is used. Where there are lines, a wide place has room for more.
// Chosen from a few runs on two GPUs, not searched for (docs/collective-algorithms.md).
inline constexpr std::uint64_t kMostByUnits = 96U << 10, kMostByLines = 160U << 10, kMostByWideLines = 256U << 10;
// Of more than that a broadcast among more than two goes in two steps.
inline constexpr std::uint64_t kBroadcastAtOnce = 2U << 20;

// From and to whom a message is, of a place as reports and the progress of ranks name it. None: it is no message's.
struct MessageEnds {
  int from = 0, to = 0;
};
std::optional<MessageEnds> message_ends(std::uint32_t place);

// What kernels do of that collective.
Work work_of(CollectiveKind kind);
// Whether they combine elements.
inline bool combines(Work work) {
  return work == Work::reduce_to_all || work == Work::reduce_to_each || work == Work::reduce_to_root;
}
// Whether further kernels do it: no others have it.
bool is_further(const Collective& call);

}  // namespace fairway::collectives::gpu

namespace fairway::collectives {

// Which captures still have a graph, or an executable one. One thread; the driver's, which destroys graphs, beside it.
class GpuGraphs {
 public:
  explicit GpuGraphs(std::shared_ptr<const sys::CudaDriver> driver) : driver_(std::move(driver)) {}

  // Of a capture that goes on, and whose graph that is.
  void add(std::uint64_t capture, sys::cuda::Graph graph);
  // Nothing of it runs any more, nor ever will. The driver of a machine that cannot tell says so of none.
  [[nodiscard]] bool is_over(std::uint64_t capture) const;
  [[nodiscard]] bool any() const;

 private:
  struct Known {
    std::uint64_t capture = 0;
    std::weak_ptr<const void> graph;
  };
  const std::shared_ptr<const sys::CudaDriver> driver_;
  std::shared_ptr<const void> for_ever_;  // of those of which the driver does not tell
  std::vector<Known> known_;
};

// The places of a rank's streams and captures, and where in a stream each one's newest operation ends. Calls are made
// in the GPU's context. Owner: a GpuGroup or GpuFurther, which also destroys the events.
class GpuPlaces {
 public:
  // `whose`: for the error that there is no place, "a communicator serves".
  GpuPlaces(std::shared_ptr<const sys::CudaDriver> driver, const gpu::Places& places, const char* whose)
      : driver_(std::move(driver)), places_(places), whose_(whose), ends_(places.most()) {}

  struct Place {
    std::uint32_t at = 0;
    std::uint64_t nth = 0;  // gpu::Places::Found
  };
  // Where a place is taken over from another stream, this one now waits for that one's end.
  Result<Place> place_of(const gpu::Source& source, sys::cuda::Stream stream);
  [[nodiscard]] bool are_taken() const { return places_.are_taken(); }
  [[nodiscard]] bool lacks(const gpu::Source& source) const { return places_.lacks(source); }
  [[nodiscard]] gpu::Places::Set over(const GpuGraphs& graphs) const {
    return places_.over([&](std::uint64_t capture) { return graphs.is_over(capture); });
  }
  void give_back(const gpu::Places::Set& places) { places_.give_back(places); }
  [[nodiscard]] bool need_ends() const { return places_.need_ends(); }
  // Behind all of an operation that was enqueued there.
  Status ends_at(const gpu::Source& source, sys::cuda::Stream stream);
  [[nodiscard]] const std::vector<sys::cuda::Event>& events() const { return ends_; }  // null: none was recorded

 private:
  const std::shared_ptr<const sys::CudaDriver> driver_;
  gpu::Places places_;
  const char* const whose_;
  std::vector<sys::cuda::Event> ends_;  // by place
};

}  // namespace fairway::collectives
