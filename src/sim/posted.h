#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/region_table.h"

namespace fairway::sim {

// Posted writes: bytes that a NIC has acknowledged but that memory does not show yet, as behind a PCIe bridge. For
// devices whose completion means delivered and not visible. They become visible in order, all at once.
class PostedWrites {
 public:
  void post(const transport::RegionTable& regions, RegionId region, std::uint64_t offset,
            std::span<const std::byte> bytes);
  // Makes all of them visible; drops those to regions that were deregistered.
  void flush();
  void forget() { writes_.clear(); }
  bool empty() const { return writes_.empty(); }

 private:
  struct Write {
    const transport::RegionTable* regions = nullptr;
    RegionId region;
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Write> writes_;
};

}  // namespace fairway::sim
