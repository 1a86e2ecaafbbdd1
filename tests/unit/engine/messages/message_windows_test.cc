#include "engine/messages/windows.h"
#include "unit/engine/one_link.h"

namespace fairway::engine {
namespace {

struct WindowsOfReceives : OneLink {
  Result<RegionId> open(std::uint64_t offset, std::uint64_t length) {
    return windows.open_window({local, offset, length}, length, 1024, described);
  }
  std::vector<std::byte> described;
  std::vector<std::pair<RegionId, std::uint32_t>>& removed = peer.removed;
  std::shared_ptr<void>& last_kept = peer.last_kept;
  MessageWindows windows{peer, links};
};

TEST_F(WindowsOfReceives, AreRegionsOfThatMemoryWhichThePeerMayWriteTo) {
  const auto window = open(100, 64);
  ASSERT_TRUE(window);
  transport::RegionTable::Resolved found;
  EXPECT_EQ(peer.local.resolve(*window, 0, 64, Access::write, found), ErrorCode::ok);
  EXPECT_EQ(found.address, mine.data() + 100);
  EXPECT_EQ(peer.local.resolve(*window, 0, 64, Access::read, found), ErrorCode::access_denied);
  EXPECT_EQ(peer.local.resolve(*window, 1, 64, Access::write, found), ErrorCode::out_of_range);
  EXPECT_NE(locals.handle(*window, 0), kNotRegistered);
  const auto told = parse_description(described);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->region, *window);
  EXPECT_EQ(told->size_bytes, 64u);
}

TEST_F(WindowsOfReceives, AreRevokedBeforeTheyAreRemoved) {
  const auto window = open(0, 64);
  ASSERT_TRUE(window);
  windows.close_window(*window, 9);
  transport::RegionTable::Resolved found;
  EXPECT_EQ(peer.local.resolve(*window, 0, 64, Access::write, found), ErrorCode::revoked);
  EXPECT_EQ(removed, (std::vector<std::pair<RegionId, std::uint32_t>>{{*window, 9}}));
}

// The peer may write there until the window is removed, whatever has become of the receive.
TEST_F(WindowsOfReceives, OnMemoryOfTheEnginesOwnKeepItUntilTheyAreRemoved) {
  std::byte* memory = nullptr;
  const auto window = windows.open_gathering(5000, 1024, described, memory);
  ASSERT_TRUE(window);
  transport::RegionTable::Resolved found;
  EXPECT_EQ(peer.local.resolve(*window, 0, 5000, Access::write, found), ErrorCode::ok);
  EXPECT_EQ(found.address, memory);
  EXPECT_EQ(peer.local.resolve(*window, 0, 5001, Access::write, found), ErrorCode::out_of_range);
  windows.close_window(*window, 9);
  ASSERT_NE(last_kept, nullptr);
  EXPECT_EQ(last_kept.use_count(), 1);
  memory[4999] = std::byte{1};
}

TEST_F(WindowsOfReceives, OfMemoryThatHasEndedThereAreNone) {
  ASSERT_TRUE(peer.local.revoke(local));
  EXPECT_EQ(open(0, 64).status().code(), ErrorCode::revoked);
}

}  // namespace
}  // namespace fairway::engine
