#include "transport/fabric/fabric.h"

#include <algorithm>
#include <array>
#include <set>

#include "conformance/fabric_worlds.h"
#include "transport/fabric/domain.h"
#include "transport/fabric/memory.h"

// What the fabric transport promises beyond the contract: many domains at once, and that its tests do what they say.
namespace fairway::conformance {
namespace {

// So many writes of 64 bytes from a to b at once, which all arrive.
void write_many(World& world, std::uint32_t count) {
  const UpLink link = world.a().wait_links(1).front();
  Buffer near(count * 64), far(count * 64);
  near.fill(1);
  const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
  const std::uint64_t handle = world.a().import(remote);
  std::vector<Slice> slices;
  for (std::uint32_t i = 0; i < count; ++i)
    slices.push_back(slice(Op::write, link, i, local, 64 * i, handle, 64 * i, 64));
  ASSERT_TRUE(world.a().post_all(slices));
  ASSERT_TRUE(world.a().wait_ended(count));
  EXPECT_EQ(far.holds(1, 0, far.size(), 0), "");
}

TEST(Fabric, ThirtyTwoDomainsAtOnceCarryBytesBothWays) {
  constexpr unsigned kDomains = 32;
  const auto world = make_fabric_world({"udp", {0, kDomains, 0}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const auto from_a = world->a().wait_links(kDomains), from_b = world->b().wait_links(kDomains);
  ASSERT_EQ(from_a.size(), kDomains);
  constexpr std::size_t kSize = 100'000;
  Buffer ours(kSize), theirs(kSize), at_a(kSize * kDomains), at_b(kSize * kDomains);
  ours.fill(1);
  theirs.fill(2);
  const Memory source_a = world->a().remember(ours, Access::none), source_b = world->b().remember(theirs, Access::none);
  const Memory target_a = world->a().remember(at_a, Access::write), target_b = world->b().remember(at_b, Access::write);
  const std::uint64_t to_b = world->a().import(target_b), to_a = world->b().import(target_a);
  std::vector<Slice> there, back;
  for (std::uint32_t i = 0; i < kDomains; ++i) {
    EXPECT_EQ(from_a[i].name, from_b[i].name);
    there.push_back(slice(Op::write, from_a[i], i, source_a, 0, to_b, kSize * i, kSize));
    back.push_back(slice(Op::write, from_b[i], i, source_b, 0, to_a, kSize * i, kSize));
  }
  EXPECT_EQ(world->a().post(there), kDomains) << "one call for all of them";
  EXPECT_EQ(world->b().post(back), kDomains);
  ASSERT_TRUE(world->a().wait_ended(kDomains));
  ASSERT_TRUE(world->b().wait_ended(kDomains));
  for (std::uint32_t i = 0; i < kDomains; ++i) {
    EXPECT_EQ(at_a.holds(2, kSize * i, kSize, 0), "");
    EXPECT_EQ(at_b.holds(1, kSize * i, kSize, 0), "");
  }
}

TEST(Fabric, CompletionsOfTheEmulatedEfaComeInAnotherOrder) {
  const auto world = make_fabric_world({"tcp", {3, 1, 0}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const std::uint64_t swaps = shim_swaps(), storms = shim_storms();
  ASSERT_NO_FATAL_FAILURE(write_many(*world, 1000));
  EXPECT_GT(shim_swaps() - swaps, 20u);
  EXPECT_GT(shim_storms() - storms, 20u);
}

TEST(Fabric, AHundredThousandPagesAreOperationsAndNothingElse) {
  const auto world = make_fabric_world({"tcp"});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  constexpr std::uint64_t kPages = 100'000, kPage = 8;
  Buffer near(kPages * kPage), far(kPages * kPage);
  near.fill(1);
  const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::write);
  std::vector<std::uint64_t> ours(kPages), theirs(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) {
    ours[i] = i;
    theirs[i] = i * 7919 % kPages;
  }
  Slice made = slice(Op::write, link, 1, local, 0, world->a().import(remote), 0, kPage);
  made.shape = Shape::indexed;
  made.count = kPages;
  made.local_stride = made.remote_stride = kPage;
  made.local_index = ours.data();
  made.remote_index = theirs.data();
  ASSERT_TRUE(world->a().post_all({&made, 1}));
  ASSERT_EQ(world->a().wait_token(1).event.kind, EventKind::done);
  for (std::uint64_t i = 0; i < kPages; i += 97) ASSERT_EQ(far.holds(1, theirs[i] * kPage, kPage, i * kPage), "");
}

TEST(Fabric, APeerThatDoesNotLetGoOfMemoryLosesItsLinkAndTheMemoryIsFree) {
  const auto world = make_fabric_world({"tcp"});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  Buffer near(1 << 20), far(1 << 20);
  near.fill(1);
  const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::write);
  const Slice made = slice(Op::write, link, 1, local, 0, world->a().import(remote), 0, near.size());
  ASSERT_TRUE(world->a().post_all({&made, 1}));
  world->b().carry_to(world->a(), [](std::vector<std::byte>& bytes) { bytes.clear(); });  // the question is lost
  world->b().deregister(remote);
  ASSERT_TRUE(world->b().wait([](const std::vector<Seen>& log) {
    return std::any_of(log.begin(), log.end(),
                       [](const Seen& seen) { return seen.event.kind == EventKind::deregistered; });
  }));
  EXPECT_EQ(world->b().count(EventKind::link_down), 1u);
  far.poison();
  world->b().rest(50 * kMillisecond);
  EXPECT_EQ(far.untouched(0, far.size()), "");
}

TEST(Fabric, WhatOnlyALookBringsIsBroughtWhereNothingAnnouncesIt) {
  const auto world = make_fabric_world({"tcp", {.seed = 5, .unannounced = true}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  constexpr std::uint32_t kCount = 200;
  Buffer near(kCount * 64), far(kCount * 64);
  near.fill(1);
  const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::write);
  const std::uint64_t handle = world->a().import(remote);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const Slice made = slice(Op::write, link, i, local, 64 * i, handle, 64 * i, 64);
    ASSERT_TRUE(world->a().post_all({&made, 1}));
    ASSERT_EQ(world->a().wait_token(i).event.kind, EventKind::done) << "write " << i;
  }
  EXPECT_EQ(far.holds(1, 0, far.size(), 0), "");
}

// Off the worker; and not after it: what is left when a side closes ends before that does.
TEST(Fabric, MemoryOfManyPagesEndsToo) {
  Buffer near(transport::fabric::kManyPages), far(transport::fabric::kManyPages), late(transport::fabric::kManyPages);
  const auto world = make_fabric_world({"udp", {.copies = 4}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::write);
  const Memory last = world->b().remember(late, Access::write);
  EXPECT_NE(world->a().import(remote), 0u);
  world->b().deregister(remote);
  ASSERT_TRUE(world->b().wait([&](const std::vector<Seen>& log) {
    return std::any_of(log.begin(), log.end(), [&](const Seen& seen) {
      return seen.event.kind == EventKind::deregistered && seen.event.value == remote.handle;
    });
  }));
  world->b().revoke(last);
  world->b().close();
}

TEST(Fabric, MessagesThatWaitGoTogether) {
  const auto world = make_fabric_world({"tcp"});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  Buffer bytes(transport::kMessageBytes);
  bytes.fill(1);
  const std::array sizes{std::size_t{1}, std::size_t{0}, std::size_t{500}, std::size_t{transport::kMessageBytes},
                         std::size_t{7}};
  std::vector<Slice> slices;
  for (std::uint32_t i = 0; i < sizes.size(); ++i) slices.push_back(message(link, i, bytes, sizes[i], false));
  const std::uint64_t before = shim_sends();
  ASSERT_EQ(world->a().post(slices), sizes.size());
  ASSERT_TRUE(world->a().wait_ended(sizes.size()));
  EXPECT_EQ(shim_sends() - before, 3u) << "three small ones, one that fills a frame, one";
  ASSERT_TRUE(world->b().wait([&](const std::vector<Seen>& log) {
    return std::count_if(log.begin(), log.end(), [](const Seen& seen) {
             return seen.event.kind == EventKind::message;
           }) == static_cast<std::ptrdiff_t>(sizes.size());
  }));
  std::multiset<std::size_t> came;
  for (const Seen& seen : world->b().seen()) {
    if (seen.event.kind != EventKind::message) continue;
    came.insert(seen.bytes.size());
    EXPECT_TRUE(std::equal(seen.bytes.begin(), seen.bytes.end(), bytes.data()));
  }
  EXPECT_EQ(came, std::multiset<std::size_t>(sizes.begin(), sizes.end()));
}

TEST(Fabric, APatientMessageGoesWithTheNextOrAlone) {
  const auto world = make_fabric_world({"tcp"});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  Buffer bytes(64);
  bytes.fill(1);
  const std::array both{message(link, 0, bytes, 8, true), message(link, 1, bytes, 16, false)};
  const std::uint64_t before = shim_sends();
  ASSERT_EQ(world->a().post(both), 2u);
  ASSERT_TRUE(world->a().wait_ended(2));
  EXPECT_EQ(shim_sends() - before, 1u);
  const Slice alone = message(link, 2, bytes, 8, true);
  ASSERT_TRUE(world->a().post_all({&alone, 1}));
  EXPECT_EQ(world->a().wait_token(2).event.kind, EventKind::done);
}

// Each frame takes one receive, and room is told by frames.
TEST(Fabric, ManyMoreMessagesThanReceivesAllArriveWhetherTogetherOrNot) {
  const auto world = make_fabric_world({"tcp", {.seed = 11}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  constexpr std::uint32_t kCount = 1000;
  Buffer bytes(256);
  bytes.fill(1);
  std::vector<Slice> slices;
  for (std::uint32_t i = 0; i < kCount; ++i) slices.push_back(message(link, i, bytes, i % 200, i % 3 == 0));
  ASSERT_TRUE(world->a().post_all(slices));
  ASSERT_TRUE(world->a().wait_ended(kCount));
  ASSERT_TRUE(world->b().wait([](const std::vector<Seen>& log) {
    return std::count_if(log.begin(), log.end(),
                         [](const Seen& seen) { return seen.event.kind == EventKind::message; }) == kCount;
  }));
  EXPECT_EQ(world->a().count(EventKind::link_down), 0u);
}

TEST(Fabric, MemoryThatIsBoundToAnEndGoesBeforeIt) {
  {
    const auto world = make_fabric_world({"tcp", {.extra_mr_mode = FI_MR_ENDPOINT | FI_MR_LOCAL}});
    if (!world) GTEST_SKIP() << "no libfabric";
    ASSERT_TRUE(world->connect());
    const UpLink link = world->a().wait_links(1).front();
    EXPECT_GE(shim_bound(), 2u) << "what messages come into is memory of an end too";
    Buffer near(4096), far(4096);
    near.fill(1);
    const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::write);
    const Slice made = slice(Op::write, link, 1, local, 0, world->a().import(remote), 0, 4096);
    ASSERT_TRUE(world->a().post_all({&made, 1}));
    ASSERT_EQ(world->a().wait_token(1).event.kind, EventKind::done);
    EXPECT_GE(shim_bound(), 3u);
    world->a().fence(link.id);
    ASSERT_TRUE(world->a().wait([](const std::vector<Seen>& log) {
      return std::any_of(log.begin(), log.end(), [](const Seen& seen) {
        return seen.event.kind == EventKind::fenced && seen.event.status.is_ok();
      });
    }));
  }
  EXPECT_EQ(shim_bound(), 0u);
}

#ifndef FAIRWAY_SANITIZED  // what the provider keeps is lost on purpose
TEST(Fabric, AnEndThatTheProviderKeepsIsNotFenced) {
  const auto world = make_fabric_world({"udp", {.keeps_ends = true}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  world->a().fence(world->a().wait_links(1).front().id);
  ASSERT_TRUE(world->a().wait([](const std::vector<Seen>& log) {
    return std::any_of(log.begin(), log.end(), [](const Seen& seen) { return seen.event.kind == EventKind::fenced; });
  }));
  for (const Seen& seen : world->a().seen()) {
    if (seen.event.kind != EventKind::fenced) continue;
    EXPECT_EQ(seen.event.status.code(), ErrorCode::not_fenced);
    EXPECT_NE(seen.event.status.message().find("did not close its endpoint: Device or resource busy"),
              std::string::npos)
        << seen.event.status.message();
  }
}
#endif

TEST(Fabric, QueuesAreAsLargeAsTheProviderHasThem) {
  const auto world = make_fabric_world({"tcp", {.most_completions = 80}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  ASSERT_NO_FATAL_FAILURE(write_many(*world, 300));
}

TEST(Fabric, AQueueThatTheProviderHasInNoSizeIsRefusedWithTheSizes) {
  transport::FabricOptions options;
  options.providers = {"tcp"};
  options.calls = shim_calls({.most_completions = 10});
  if (!options.calls) GTEST_SKIP() << "no libfabric";
  const auto domains = transport::fabric::open_domains(options);
  ASSERT_TRUE(domains);
  const auto end = transport::fabric::Endpoint::make(*domains->front(), 1);
  ASSERT_FALSE(end);
  EXPECT_NE(end.status().message().find("fi_cq_open: Invalid argument (requested: 256 operations, 256 receives "
                                        "and 312 completions, last 16 operations, 20 receives and 72 "
                                        "completions"),
            std::string::npos)
      << end.status().message();
}

// An end alone of that provider; without one where the provider has nothing here.
struct LoneEnd {
  std::vector<std::unique_ptr<transport::fabric::Domain>> domains;
  std::unique_ptr<transport::fabric::Endpoint> end;
  explicit LoneEnd(const std::string& provider) {
    transport::FabricOptions options;
    options.providers = {provider};
    auto opened = transport::fabric::open_domains(options);
    if (!opened) return;
    domains = std::move(*opened);
    auto made = transport::fabric::Endpoint::make(*domains.front(), 1);
    if (made) end = std::move(*made);
  }
};

TEST(Fabric, AnAddressOfTextMayBeLongerAndShorterThanOurs) {
  LoneEnd own("shm");  // its addresses have the number of a process in them
  if (!own.end) GTEST_SKIP() << "libfabric has no shm here";
  const auto ours = own.end->address();
  ASSERT_EQ(own.domains.front()->info().addr_format, std::uint32_t{FI_ADDR_STR});
  const std::string text(reinterpret_cast<const char*>(ours.data()), ours.size());
  const std::size_t number = text.find_first_of("123456789");
  ASSERT_NE(number, std::string::npos) << text;
  for (const std::string& theirs : {std::string(text).insert(number, "11"), std::string(text).erase(number + 1, 1)}) {
    EXPECT_TRUE(own.end->connect(std::as_bytes(std::span(theirs)))) << theirs;
    EXPECT_NE(own.end->peer(), fi_addr_t{FI_ADDR_UNSPEC});
  }
}

TEST(Fabric, AnAddressOfAnotherFormatIsRefusedBeforeTheProviderReadsIt) {
  LoneEnd own("tcp");
  if (!own.end) GTEST_SKIP() << "libfabric has no tcp here";
  const auto ours = own.end->address();
  EXPECT_EQ(own.end->connect(ours.first(ours.size() - 1)).code(), ErrorCode::protocol_error);
  EXPECT_EQ(own.end->connect({}).code(), ErrorCode::protocol_error);
}

}  // namespace
}  // namespace fairway::conformance
