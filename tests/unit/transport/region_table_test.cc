#include "transport/region_table.h"

#include <array>

#include <gtest/gtest.h>

namespace fairway::transport {
namespace {

struct Regions : testing::Test {
  RegionId add(MemoryKind kind, Access access = Access::read | Access::write) {
    const auto id = table.add(memory.data(), memory.size(), kind, access);
    EXPECT_TRUE(id);
    return *id;
  }
  std::array<std::byte, 64> memory{};
  RegionTable table{4};
  RegionTable::Resolved found;
};

TEST_F(Regions, AreResolvedWithinTheirBoundsAndRights) {
  const RegionId id = add(MemoryKind::host, Access::read);
  ASSERT_EQ(table.resolve(id, 8, 56, Access::read, found), ErrorCode::ok);
  EXPECT_EQ(found.address, memory.data() + 8);
  EXPECT_EQ(table.resolve(id, 64, 0, Access::read, found), ErrorCode::ok);
  EXPECT_EQ(table.resolve(id, 8, 57, Access::read, found), ErrorCode::out_of_range);
  EXPECT_EQ(table.resolve(id, 65, 0, Access::read, found), ErrorCode::out_of_range);
  EXPECT_EQ(table.resolve(id, 8, ~std::uint64_t{0} - 7, Access::read, found), ErrorCode::out_of_range);
  EXPECT_EQ(table.resolve(id, 0, 8, Access::write, found), ErrorCode::access_denied);
  EXPECT_EQ(table.resolve(id, 0, 8, Access::none, found), ErrorCode::ok);
}

TEST_F(Regions, AreRefusedOnceRevokedAndUnderTheIdsOfEarlierOnes) {
  const RegionId id = add(MemoryKind::host);
  ASSERT_TRUE(table.revoke(id));
  EXPECT_EQ(table.resolve(id, 0, 8, Access::read, found), ErrorCode::revoked);
  table.remove(id);
  const RegionId next = add(MemoryKind::host);
  EXPECT_NE(next, id);
  EXPECT_EQ(table.resolve(id, 0, 8, Access::read, found), ErrorCode::revoked);
  EXPECT_EQ(table.resolve({9999, 1}, 0, 8, Access::read, found), ErrorCode::revoked);
}

// The address is a device's: for this process's CPU to follow it would be a fault.
TEST_F(Regions, OfADeviceAreNoneOfTheCpus) {
  const RegionId device = add(MemoryKind::device);
  EXPECT_EQ(table.resolve(device, 0, 8, Access::read, found), ErrorCode::ok);
  EXPECT_EQ(table.resolve_for_cpu(device, 0, 8, Access::read, found), ErrorCode::unsupported);
  EXPECT_EQ(table.resolve_for_cpu(device, 0, 65, Access::read, found), ErrorCode::out_of_range);
  for (const MemoryKind kind : {MemoryKind::host, MemoryKind::pinned})
    EXPECT_EQ(table.resolve_for_cpu(add(kind), 0, 8, Access::read, found), ErrorCode::ok);
}

}  // namespace
}  // namespace fairway::transport
