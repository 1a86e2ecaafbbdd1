#include "engine/tables/route.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "links.h"
#include "sim/simulation.h"

namespace fairway::engine {
namespace {

using transport::Op;

std::vector<int> chosen(const Route& choice) {
  return {choice.chosen().begin(), choice.chosen().end()};
}

TEST(Route, WithoutAUsableLinkThereIsNoMethod) {
  Links links(3);
  for (LinkView& view : links.views) view.usable = false;
  const Route choice = route({Op::write, 100, 1}, links.views);
  EXPECT_EQ(choice.method, Method::none);
  EXPECT_EQ(choice.count, 0);
  EXPECT_EQ(route({Op::write, 100, 1}, {}).method, Method::none);
}

TEST(Route, SmallTransfersTakeTheOneLinkThatFinishesFirst) {
  Links links(3);
  links.views[0].queued_bytes = 1 << 20;
  links.views[1].queued_bytes = 10;
  links.views[2].queued_bytes = 1 << 10;
  EXPECT_EQ(chosen(route({Op::write, kStripeMinimum, 1}, links.views)), std::vector<int>{1});
  links.views[1].bytes_per_second /= 8;  // slower for what it would have to move itself
  EXPECT_EQ(chosen(route({Op::write, kStripeMinimum, 1}, links.views)), std::vector<int>{2});
}

TEST(Route, WhatIsSmallKeepsToOneSocketOfAnInterfaceWhileThatHasLittleToDo) {
  Links links(3);
  const auto takes = [&](std::uint64_t bytes) { return chosen(route({Op::write, bytes, 1}, links.views)).front(); };
  const auto queue = [&](std::uint64_t on_first) { links.views[0].queued_bytes = on_first; };
  queue(64 * 1024);
  EXPECT_EQ(takes(64 * 1024), 1) << "they are not said to share an interface";
  for (LinkView& view : links.views) view.way = 1;
  EXPECT_EQ(takes(64 * 1024), 0);
  EXPECT_EQ(takes(8), 1) << "it would wait for many times its own bytes";
  queue(kLittleQueued + 3 * 64 * 1024);
  EXPECT_EQ(takes(64 * 1024), 1);
  queue(kLittleQueued);
  EXPECT_EQ(takes(8), 0);
  links.views[0].free_slots = 0;
  EXPECT_EQ(takes(8), 1);
  links.views[0].free_slots = 64;
  links.views[0].way = 2;
  EXPECT_EQ(takes(8), 1) << "another interface";
  EXPECT_EQ(route({Op::write, kStripeMinimum + 1, 1}, links.views).count, 3);
}

TEST(Route, WhereCoresAreFewOneSocketOfEachInterfaceTakesWhatIsLarge) {
  Links links(5);
  for (std::size_t i = 0; i < 4; ++i) links.views[i].way = static_cast<std::uint16_t>(1 + i / 2);
  const auto takes = [&] { return chosen(route({Op::write, kStripeMinimum + 1, 1}, links.views)); };
  EXPECT_EQ(takes(), (std::vector<int>{0, 1, 2, 3, 4}));
  for (LinkView& view : links.views) view.one_of_way = true;
  EXPECT_EQ(takes(), (std::vector<int>{0, 2, 4})) << "the last is no socket";
  links.views[0].queued_bytes = 64 << 20;
  EXPECT_EQ(takes(), (std::vector<int>{2, 4, 0})) << "also while it has more to do than the other";
  EXPECT_EQ(chosen(route({Op::write, 8, 1}, links.views)), std::vector<int>{1}) << "what is small need not wait for it";
  links.views[0].usable = false;
  EXPECT_EQ(takes(), (std::vector<int>{1, 2, 4})) << "the next takes over";
}

TEST(Route, LargeTransfersTakeEveryLinkBestFirst) {
  Links links(3);
  links.views[1].bytes_per_second *= 2;
  links.views[0].queued_bytes = 1 << 20;
  EXPECT_EQ(chosen(route({Op::write, kStripeMinimum + 1, 1}, links.views)), (std::vector<int>{1, 2, 0}));
}

TEST(Route, ALinkFarSlowerThanTheBestIsLeftOut) {
  Links links(3);
  links.views[0].bytes_per_second = 80'000'000'000;
  links.views[1].bytes_per_second = 10'000'000'000;  // just fast enough
  links.views[2].bytes_per_second = 9'999'999'999;
  EXPECT_EQ(chosen(route({Op::write, 1 << 30, 1}, links.views)), (std::vector<int>{0, 1}));
}

TEST(Route, ALinkWithoutTheOperationServesByMessagesOnlyWhenNoneHasIt) {
  Links links(2);
  links.capabilities[0].operations = mask(Op::message);
  links.capabilities[1].operations = mask(Op::write, Op::message);
  EXPECT_EQ(chosen(route({Op::write, 1 << 30, 1}, links.views)), std::vector<int>{1});
  const Route read = route({Op::read, 1 << 30, 1}, links.views);
  EXPECT_EQ(read.method, Method::by_messages);
  EXPECT_EQ(read.count, 2);
}

TEST(Route, MessagesTooSmallForARecordCarryNothing) {
  Links links(1);
  links.capabilities[0].operations = mask(Op::message);
  links.capabilities[0].max_message_bytes = kSmallestMessage - 1;
  EXPECT_EQ(route({Op::write, 8, 1}, links.views).method, Method::none);
  links.capabilities[0].max_message_bytes = kSmallestMessage;
  EXPECT_EQ(route({Op::write, 8, 1}, links.views).method, Method::by_messages);
}

TEST(Route, AtomicsThatNoLinkHasAreDoneByMessages) {
  for (const Op op : {Op::fetch_add, Op::compare_swap}) {
    Links links(1);
    EXPECT_EQ(route({op, 8, 1}, links.views).method, Method::native);
    links.capabilities[0].operations = mask(Op::write, Op::read, Op::message);
    EXPECT_EQ(route({op, 8, 1}, links.views).method, Method::by_messages);
  }
}

TEST(Route, MemoryThatALinkCannotReachIsNotGivenToIt) {
  Links links(2);
  links.capabilities[1].memory_kinds = 1 | 4;
  EXPECT_EQ(chosen(route({Op::write, 1 << 30, 4}, links.views)), std::vector<int>{1});
}

TEST(Route, ATransportThatARegionIsNotRegisteredWithIsPassedOver) {
  Links links(3);
  links.views[1].rank = 1;
  links.views[2].rank = 2;
  EXPECT_EQ(chosen(route({Op::write, 1 << 30, 1, false, 0}, links.views)), std::vector<int>{0});
  EXPECT_EQ(chosen(route({Op::write, 1 << 30, 1, false, 0b001}, links.views)), std::vector<int>{1});
  EXPECT_EQ(chosen(route({Op::write, 1 << 30, 1, false, 0b101}, links.views)), std::vector<int>{1});
  const Route none = route({Op::write, 1 << 30, 1, false, 0b111}, links.views);
  EXPECT_EQ(none.method, Method::by_messages);  // which need no memory but the engines' own
  EXPECT_EQ(none.links[0], 0);
}

TEST(Route, LinksWhoseDevicesDoNotHaveARegionArePassedOver) {
  Links links(3);
  const auto without = [](std::uint64_t which) {
    RouteRequest request{Op::write, 1 << 30, 1};
    request.without_links = which;
    return request;
  };
  EXPECT_EQ(route(without(0), links.views).count, 3);
  EXPECT_EQ(chosen(route(without(0b101), links.views)), std::vector<int>{1});
  EXPECT_EQ(route(without(0b111), links.views).method, Method::by_messages);
  EXPECT_EQ(route(without(0b111), links.views).count, 3);
}

// Neither engine's CPU reaches a device's memory, so its bytes do not travel in messages.
TEST(Route, ADevicesMemoryIsNeverMovedByMessages) {
  constexpr std::uint8_t kDevice = 1 << static_cast<unsigned>(MemoryKind::device);
  Links links(2);
  links.capabilities[0].operations = mask(Op::message);
  links.capabilities[1].operations = mask(Op::write, Op::message);
  EXPECT_EQ(route({Op::write, 100, kDevice | 1}, links.views).method, Method::none);
  links.capabilities[1].memory_kinds |= kDevice;
  EXPECT_EQ(chosen(route({Op::write, 100, kDevice | 1}, links.views)), std::vector<int>{1});
}

TEST(Route, WhatNoLinkTakesIsStagedOverThoseThatHostMemoryWouldTake) {
  constexpr std::uint8_t kDevice = 1 << static_cast<unsigned>(MemoryKind::device);
  Links links(2);
  links.views[1].rank = 1;
  RouteRequest request{Op::write, 1 << 20, kDevice | 1};
  request.staged = true;
  const Route staged = route(request, links.views);
  EXPECT_EQ(staged.method, Method::staged);
  EXPECT_EQ(chosen(staged), std::vector<int>{0});
  links.capabilities[1].memory_kinds |= kDevice;
  EXPECT_EQ(route(request, links.views).method, Method::native);
  request.without = 0b10;  // it does not reach these memories after all
  EXPECT_EQ(route(request, links.views).method, Method::staged);
  request.memory_kinds = 1;
  EXPECT_EQ(route(request, links.views).method, Method::native) << "host memory needs no staging";
}

TEST(Route, WhatWaitsForAStreamGoesOnlyWhereThereAreStreams) {
  Links links(2);
  links.views[1].rank = 1;
  EXPECT_EQ(route({Op::write, 100, 1, true, 0b11}, links.views).method, Method::none) << "no CPU may do it";
  EXPECT_EQ(chosen(route({Op::write, 100, 1, true, 0b01}, links.views)), std::vector<int>{1});
}

TEST(Route, EveryChoiceIsUsableCapableAndNamedOnce) {
  sim::Random random(1);
  for (int round = 0; round < 2000; ++round) {
    Links links(random.below(10));
    for (std::size_t i = 0; i < links.views.size(); ++i) {
      links.capabilities[i].operations = static_cast<std::uint8_t>(random.below(64));
      links.capabilities[i].max_message_bytes = static_cast<std::uint32_t>(random.below(1024));
      links.views[i].usable = random.chance(700);
      links.views[i].bytes_per_second = random.chance(200) ? 0 : random.below(1'000'000'000'000);
      links.views[i].queued_bytes = random.below(1 << 24);
    }
    const Op op = std::array{Op::write, Op::read, Op::fetch_add}[random.below(3)];
    const Route choice = route({op, random.below(1 << 20), 1}, links.views);
    std::set<std::uint8_t> seen;
    for (const std::uint8_t i : choice.chosen()) {
      ASSERT_LT(i, links.views.size());
      EXPECT_TRUE(seen.insert(i).second);
      EXPECT_TRUE(links.views[i].usable);
      const Op used = choice.method == Method::native ? op : Op::message;
      EXPECT_NE(links.capabilities[i].operations & static_cast<std::uint8_t>(used), 0);
    }
    EXPECT_EQ(choice.count == 0, choice.method == Method::none);
  }
}

}  // namespace
}  // namespace fairway::engine
