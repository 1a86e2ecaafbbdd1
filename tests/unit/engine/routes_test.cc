#include "engine/links/routes.h"

#include "one_link.h"

namespace fairway::engine {
namespace {

struct RoutesToAPeer : TwoWires {
  std::uint32_t small_write() { return peer.begin(write(64)); }
  // As a transfer does when its route is not known.
  void ask(std::uint32_t slot) {
    Transfer& t = peer.table[slot];
    t.route = routes.route_for(t.request, t.place);
    t.route_version = routes.version();
    t.memory_kinds = routes.memories(t.request).kinds;
    routes.refresh();
    routes.remember(t);
  }
  RegionId without(std::uint64_t refusing) {
    const RegionId region = *peer.local.add(mine.data(), mine.size(), MemoryKind::host, Access::none);
    Registration registration = locals.register_with_all({}, {});
    registration.without = refusing;
    locals.add(region, std::move(registration), {}, {});
    return region;
  }
  RegionId on_device() {
    const RegionId region = *peer.local.add(mine.data(), mine.size(), MemoryKind::device, Access::none);
    locals.add(region, locals.register_with_all({}, {}), {}, {});
    return region;
  }
};

TEST_F(RoutesToAPeer, OfSmallTransfersTheLinkIsKnownUntilOneComesOrGoes) {
  const std::uint32_t first = small_write(), second = small_write();
  EXPECT_FALSE(routes.recall(peer.table[first]));
  ask(first);
  ASSERT_TRUE(routes.recall(peer.table[second]));
  EXPECT_EQ(peer.table[second].route.method, Method::native);
  EXPECT_EQ(peer.table[second].route.links[0], 0);
  peer.table[second].request.operation = Operation::read;
  EXPECT_FALSE(routes.recall(peer.table[second])) << "another operation";
  peer.table[second].request.operation = Operation::write;
  links.close(0, {ErrorCode::link_failed, "it broke"});
  EXPECT_FALSE(routes.recall(peer.table[second])) << "its link is gone";
}

TEST_F(RoutesToAPeer, OfLargeTransfersAndBetweenSeveralEqualLinksNoneIsRemembered) {
  const std::uint32_t large = peer.begin(write(kStripeMinimum));
  ask(large);
  EXPECT_FALSE(routes.recall(peer.table[large]));
  transport::Event event;  // another link of the same transport
  event.link = {1, 1};
  event.value = 72;
  links.on_link_up(0, event);
  const std::uint32_t slot = small_write();
  ask(slot);
  EXPECT_FALSE(routes.recall(peer.table[slot]));
}

TEST_F(RoutesToAPeer, OfSocketsOverOneInterfaceTheFirstIsKnownUntilItHasMuchToDo) {
  transport::Event event;
  event.link = {1, 1};
  event.value = 72;
  links.on_link_up(0, event);
  links[0].way = links[1].way = 1;
  const std::uint32_t first = small_write(), second = small_write();
  ask(first);
  ASSERT_TRUE(routes.recall(peer.table[second]));
  EXPECT_EQ(peer.table[second].route.links[0], 0);
  links[0].queued_bytes = 1 << 20;
  routes.refresh();
  EXPECT_FALSE(routes.recall(peer.table[second]));
  ask(second);  // takes the other one, which is no answer for the next
  links[0].queued_bytes = 0;
  routes.refresh();
  ASSERT_TRUE(routes.recall(peer.table[second]));
  EXPECT_EQ(peer.table[second].route.links[0], 0);
}

TEST_F(RoutesToAPeer, MemoryThatATransportRefusedTakesAnother) {
  raise(1);
  Request request = write(64);
  EXPECT_EQ(routes.route_for(request, kNoPlace).links[0], 0);
  std::get<Extent>(request.layout).local.region = without(1);
  EXPECT_EQ(routes.memories(request).without, 1u);
  const Route other = routes.route_for(request, kNoPlace);
  EXPECT_EQ(other.method, Method::native);
  EXPECT_EQ(other.links[0], 1);
  std::get<Extent>(request.layout).local.region = without(3);
  EXPECT_EQ(routes.route_for(request, kNoPlace).method, Method::by_messages);
}

TEST_F(RoutesToAPeer, OfDeviceMemoryTheLinkIsKnownOnceItsTransportReachesIt) {
  wire().port().capabilities.memory_kinds |= kDeviceBit;
  Request request = write(64);
  std::get<Extent>(request.layout).local.region = on_device();
  const std::uint32_t first = peer.begin(request), second = peer.begin(request);
  for (const transport::Reach not_yet : {transport::Reach::opening, transport::Reach::pinning}) {
    wire().reaches = not_yet;
    ask(first);
    EXPECT_FALSE(routes.recall(peer.table[second])) << "a later one may have to wait, or find it faster";
  }
  wire().reaches = transport::Reach::yes;
  ask(first);
  ASSERT_TRUE(routes.recall(peer.table[second]));
  EXPECT_EQ(peer.table[second].memory_kinds & kDeviceBit, kDeviceBit);
  routes.link_changed(true);
  EXPECT_FALSE(routes.recall(peer.table[second]));
}

TEST_F(RoutesToAPeer, OfTwoMemoriesATransportIsAskedOnceItHasSaidYes) {
  wire().port().capabilities.memory_kinds |= kDeviceBit;
  Request request = write(64);
  std::get<Extent>(request.layout).local.region = on_device();
  bool opening = false;
  wire().reaches = transport::Reach::opening;
  (void)routes.wanted(request, 64, &opening);
  EXPECT_TRUE(opening);
  wire().reaches = transport::Reach::no;
  EXPECT_EQ(routes.wanted(request, 64, &opening).without, 1u);
  EXPECT_FALSE(opening);
  EXPECT_EQ(routes.unreached(request).why, "through the wire");
  wire().reaches = transport::Reach::yes;
  EXPECT_EQ(routes.wanted(request, 64).without, 0u);
  const int asked = wire().asked;
  EXPECT_EQ(routes.wanted(request, 64).without, 0u);
  EXPECT_EQ(wire().asked, asked);
  routes.link_changed(true);
  (void)routes.wanted(request, 64);
  EXPECT_GT(wire().asked, asked);
}

TEST_F(RoutesToAPeer, WhatNoLinkDoesWaitsForOneThatIsBeingMadeAsLongAsAPeerMayBeSilent) {
  const std::uint32_t slot = small_write();
  Transfer& t = peer.table[slot];
  t.request.options.start_after = &t;  // neither wire takes a stream's event
  EXPECT_TRUE(routes.waits_for_link(t, Method::none));
  EXPECT_EQ(peer.woken_at, peer.time) << "by the links";
  peer.woken_at = kNever;
  EXPECT_TRUE(routes.waits_for_link(t, Method::none));
  EXPECT_EQ(peer.woken_at, peer.time + kSecond);
  peer.time += kSecond;
  EXPECT_FALSE(routes.waits_for_link(t, Method::none));
  routes.link_changed(true);  // a link was lost: it counts from then on
  EXPECT_TRUE(routes.waits_for_link(t, Method::none));
}

TEST_F(OneLink, WhatNoLinkWouldDoWaitsForNone) {
  Transfer& t = peer.table[peer.begin(write(64))];
  t.request.options.start_after = &t;
  EXPECT_FALSE(routes.waits_for_link(t, Method::none));
  t.request.options.start_after = nullptr;
  links.close(0, {ErrorCode::link_failed, "it broke"});
  EXPECT_TRUE(routes.waits_for_link(t, Method::none)) << "this one comes back";
}

}  // namespace
}  // namespace fairway::engine
