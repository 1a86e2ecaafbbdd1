#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/tables/regions.h"

namespace fairway::engine {

// Memory of the engine's own that is registered for as long as the worker lives.
struct OwnMemory {
  // Zeroed pages, not touched before they are used.
  void make(LocalRegions& regions, std::size_t size_bytes, Access access);

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> bytes;
  RegionId region;
  Status missing;  // why there is none at all
};

// Memory for the proofs of links: for each link of each peer, what the peer writes, what this side sends, and what it
// reads back. Several peers share a region. Owner: the worker.
class ScratchMemory {
 public:
  // `size_bytes`: what one peer needs.
  ScratchMemory(LocalRegions& regions, std::uint32_t peers, std::size_t size_bytes)
      : regions_(regions), size_bytes_(size_bytes), shares_((peers + kPeersPerShare - 1) / kPeersPerShare) {
    (void)of(0);  // the first peer finds it registered
  }

  // A peer's place. Reuses the place that was freed last: otherwise peers that come and go would in time touch all
  // pages.
  std::uint32_t take();
  void give_back(std::uint32_t place) { free_.push_back(place); }
  OwnMemory& of(std::uint32_t place);
  [[nodiscard]] std::uint64_t offset(std::uint32_t place) const { return place % kPeersPerShare * size_bytes_; }

 private:
  static constexpr std::uint32_t kPeersPerShare = 32;  // 384 KiB: each NIC pins it

  LocalRegions& regions_;
  const std::size_t size_bytes_;
  std::vector<OwnMemory> shares_;  // from the first peer there on
  std::vector<std::uint32_t> free_;
  std::uint32_t taken_ = 0;  // places, at some time
};

}  // namespace fairway::engine
