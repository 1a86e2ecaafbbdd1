#include "sim/posted.h"

#include <cstring>

namespace fairway::sim {

void PostedWrites::post(const transport::RegionTable& regions, RegionId region, std::uint64_t offset,
                        std::span<const std::byte> bytes) {
  writes_.push_back({&regions, region, offset, {bytes.begin(), bytes.end()}});
}

void PostedWrites::flush() {
  for (const Write& write : writes_) {
    transport::RegionTable::Resolved at;
    if (write.regions->resolve(write.region, write.offset, write.bytes.size(), Access::none, at) == ErrorCode::ok)
      std::memcpy(at.address, write.bytes.data(), write.bytes.size());
  }
  writes_.clear();
}

}  // namespace fairway::sim
