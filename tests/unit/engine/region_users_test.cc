#include "engine/region_removals.h"
#include "transferring.h"

namespace fairway::engine {
namespace {

struct UsersOfRegions : Transferring {
  std::uint32_t begin_at(RemoteRegionId there) {
    Request request = write(64);
    std::get<Extent>(request.layout).remote.region = there;
    return start(request);
  }
  RegionUsers users{peer, transfers};
};

TEST_F(UsersOfRegions, OfALocalRegionStopAndItsRemovalKnowsThem) {
  std::vector<std::byte> other(4096);
  const RegionId another = peer.add(other);
  locals.add(another, locals.register_with_all({}, {}), {}, {});
  const std::uint32_t user = begin(64);
  Request request = write(64);
  std::get<Extent>(request.layout).local.region = another;
  const std::uint32_t bystander = start(request);
  std::vector<TransferId> found;
  users.add_users_of(local, found);
  EXPECT_EQ(found, std::vector{peer.table.id(user)});
  users.stop_users_of(local);
  EXPECT_EQ(done, std::vector{user});
  EXPECT_EQ(status_of(user).code(), ErrorCode::cancelled);
  EXPECT_EQ(peer.table[bystander].phase, Phase::queued);
}

TEST_F(UsersOfRegions, OfAReleasedImportKeepItUntilTheyHaveEnded) {
  const std::uint32_t user = begin(64);
  const RemoteRegionId another = import(2);
  const std::uint32_t bystander = begin_at(another);
  pump();
  users.release_import(remote);
  EXPECT_NE(users.run_timers(peer.time), kNever);
  EXPECT_TRUE(remotes.has(remote));
  EXPECT_EQ(wire().cancelled.size(), 1u);
  event(wire().cancelled[0], Status(ErrorCode::cancelled, "asked back").with_effect(Effect::not_applied));
  EXPECT_EQ(done, std::vector{user});
  EXPECT_EQ(users.run_timers(peer.time), kNever);
  EXPECT_FALSE(remotes.has(remote));
  EXPECT_TRUE(remotes.has(another));
  EXPECT_EQ(peer.table[bystander].phase, Phase::moving);
}

}  // namespace
}  // namespace fairway::engine
