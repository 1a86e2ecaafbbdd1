#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/region_table.h"

namespace fairway::sim {

// Bytes that a NIC has acknowledged and that memory does not show yet, as behind a PCIe bridge: of devices whose
// completion means delivered and not visible. They are shown in order, all at once.
class PostedWrites {
 public:
  void post(const transport::RegionTable& regions, RegionId region, std::uint64_t offset,
            std::span<const std::byte> bytes);
  // Shows them; those of a region that has ended are gone.
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
