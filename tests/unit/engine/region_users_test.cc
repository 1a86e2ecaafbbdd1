#include "engine/region_users.h"

#include "transferring.h"

namespace fairway::engine {
namespace {

struct UsersOfRegions : Transferring {
  using Told = std::vector<std::pair<MessageType, RegionId>>;
  std::uint32_t begin_at(RemoteRegionId there) {
    Request request = write(64);
    std::get<Extent>(request.layout).remote.region = there;
    return start(request);
  }
  void all_cancelled() {
    for (const transport::SliceToken token : std::exchange(wire().posted, {}))
      event(token, Status(ErrorCode::cancelled, "asked back").with_effect(Effect::not_applied));
  }
  Told told;
  RegionRemovals removals{transports, locals, peer.table};
  RegionUsers users{peer, {remotes, removals, transfers, [this](MessageType type, RegionId region) {
                             told.emplace_back(type, region);
                           }}};
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

TEST_F(UsersOfRegions, OfThePeersRegionAreStoppedBeforeItIsAnswered) {
  const std::uint32_t user = begin(64);
  pump();
  const RegionId theirs{1, 1};
  users.on_revoke(theirs);
  EXPECT_EQ(remotes.allows({remote, 0}, 1, Access::write), ErrorCode::revoked);
  EXPECT_EQ(users.run_timers(peer.time), peer.time + kMillisecond);
  EXPECT_EQ(wire().cancelled, wire().posted);
  EXPECT_TRUE(told.empty()) << "its bytes may still be written";
  all_cancelled();
  EXPECT_EQ(status_of(user).code(), ErrorCode::revoked);
  EXPECT_EQ(users.run_timers(peer.time), kNever);
  EXPECT_EQ(told, (Told{{MessageType::revoked, theirs}}));
  EXPECT_FALSE(remotes.has(remote));
}

TEST_F(UsersOfRegions, ARegionThatNobodyImportedIsAnsweredOnceHoweverOftenItIsAsked) {
  users.on_revoke({7, 1});
  users.on_revoke({7, 1});
  EXPECT_EQ(users.run_timers(peer.time), kNever);
  EXPECT_EQ(told, (Told{{MessageType::revoked, {7, 1}}}));
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

TEST_F(UsersOfRegions, APeerThatIsGoneHasAgreedToTheRemovalOfOurs) {
  RegionRemovals::Removal removal;
  removal.id = local;
  removal.peers = {FakePeer::kId.slot};
  removals.begin(std::move(removal));
  users.revoke_at_peer(local);
  EXPECT_EQ(told, (Told{{MessageType::revoke, local}}));
  EXPECT_FALSE(removals.find(local)->peers.empty());
  users.peer_gone();
  EXPECT_TRUE(removals.find(local)->peers.empty());
}

}  // namespace
}  // namespace fairway::engine
