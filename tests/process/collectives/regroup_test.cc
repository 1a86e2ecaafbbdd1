#include <array>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/counter_range.h"
#include "process/collectives/group.h"

// What a rank is in while another gives up: a call before the one that failed, or the join of another communicator.
namespace fairway {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::seconds;

class Regroup : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, Regroup, testing::Values("shm", "tcp"));

// Takes part in the gather of a split, as every rank does, and in nothing behind it.
void tell_color_only(Communicator& communicator) {
  const std::int32_t mine[] = {0, 0};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(communicator.size()));
  Collective gather;
  gather.kind = CollectiveKind::all_gather;
  gather.input = mine;
  gather.output = all.data();
  gather.count = 2;
  gather.type = DataType::i32;
  const Status told = communicator.run(gather);
  EXPECT_TRUE(told) << told.to_string();
}

TEST_P(Regroup, WhoSplitsIsToldThatAnotherGaveUpBeforeItJoined) {
  GroupOptions options;
  options.size = 4;
  options.transports = {GetParam()};
  run_group(options, [](Engine&, Communicator& communicator) {
    if (communicator.rank() == 2) {
      tell_color_only(communicator);
      Collective late;
      late.timeout = std::chrono::milliseconds(100);
      EXPECT_FALSE(communicator.run(late));
    } else {
      const int color = communicator.rank() == 3 ? 1 : 0;
      const auto start = SteadyClock::now();
      const auto made = communicator.split(color);
      EXPECT_LT(SteadyClock::now() - start, seconds(60));  // the timeout is ten minutes
      EXPECT_EQ(made.status().code(), color == 1 ? ErrorCode::ok : ErrorCode::deadline_exceeded);
      EXPECT_FALSE(communicator.run({}));
    }
    auto left = communicator.shrink();
    ASSERT_TRUE(left) << left.status().to_string();
    EXPECT_EQ(left->size(), 4);
    EXPECT_TRUE(left->run({}));
  });
}

TEST_P(Regroup, ACallThatOthersHaveEndedIsNotEndedByTheFailureOfALaterOne) {
  GroupOptions options;
  options.size = 4;
  options.transports = {GetParam()};
  options.progress = Progress::threads;
  run_group(options, [](Engine&, Communicator& communicator) {
    // Rank 3 has more for rank 2 than there are slots, and goes away before it has sent all of it.
    constexpr std::size_t kLong = 4U << 20;
    const int rank = communicator.rank();
    std::vector<std::size_t> out(4, 1), in(4, 1), out_at(4), in_at(4);
    if (rank == 3) out[2] = kLong;
    if (rank == 2) in[3] = kLong;
    for (std::size_t i = 1; i < 4; ++i) {
      out_at[i] = out_at[i - 1] + out[i - 1];
      in_at[i] = in_at[i - 1] + in[i - 1];
    }
    const std::vector<std::byte> input(out_at[3] + out[3], std::byte{7});
    std::vector<std::byte> output(in_at[3] + in[3]);
    Collective call{.kind = CollectiveKind::all_to_allv, .input = input.data(), .output = output.data()};
    call.send = {out, out_at};
    call.receive = {in, in_at};
    if (rank == 3) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto id = communicator.start(call);
    ASSERT_TRUE(id) << id.status().to_string();
    if (rank == 3) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Status first = communicator.wait(*id);
    EXPECT_TRUE(first) << "rank " << rank << ": " << first.to_string();
    EXPECT_EQ(output.back(), std::byte{7});

    std::array<float, 8> values{};
    Collective sum{.kind = CollectiveKind::all_reduce, .input = values.data(), .output = values.data()};
    sum.count = rank == 0 ? 7 : 8;
    sum.type = DataType::f32;
    const Status second = communicator.run(sum);
    EXPECT_EQ(second.code(), ErrorCode::invalid_argument) << second.to_string();
    EXPECT_EQ(communicator.failure().operation, id->number + 1);
  });
}

// ---- counters ----

Status add_up(Communicator& group, std::vector<std::uint32_t>& values) {
  return group.run({.kind = CollectiveKind::all_reduce,
                    .input = values.data(),
                    .output = values.data(),
                    .count = values.size(),
                    .type = DataType::u32});
}

std::vector<std::string> addresses_of(const Communicator& group) {
  std::vector<std::string> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(group.address(rank));
  return all;
}

// Two names whose counters would begin nearly at the same place.
std::pair<std::string, std::string> names_that_meet() {
  constexpr std::uint64_t kPlaces = collectives::CounterRange::kEnd - collectives::CounterRange::kBegin;
  std::map<std::uint64_t, std::string> all;
  for (int i = 0;; ++i) {
    const std::string name = "family " + std::to_string(i);
    const std::uint64_t place = collectives::hash_of(name) % kPlaces;
    const auto near = all.lower_bound(place < 8 ? 0 : place - 8);
    if (near != all.end() && near->first <= place + 8) return {near->second, name};
    all.emplace(place, name);
  }
}

TEST(Counters, OfTwoCommunicatorsWhoseNamesMeetAreOthers) {
  GroupOptions options;
  options.transports = {"tcp"};
  options.progress = Progress::threads;
  const auto names = names_that_meet();
  run_group(options, [&names](Engine& engine, Communicator& world) {
    const CommunicatorOptions one{.name = names.first, .timeout = seconds(20)};
    const CommunicatorOptions two{.name = names.second, .timeout = seconds(20)};
    auto first = Communicator::create(engine, world.rank(), addresses_of(world), one);
    ASSERT_TRUE(first) << first.status().to_string();
    auto second = Communicator::create(engine, world.rank(), addresses_of(world), two);
    ASSERT_TRUE(second) << second.status().to_string();
    // The one runs in the middle of the other's.
    for (std::uint32_t round = 1; round <= 20; ++round) {
      std::vector<std::uint32_t> a(100'000, round), b(100, 7 * round);
      const Collective long_one{.kind = CollectiveKind::all_reduce,
                                .input = a.data(),
                                .output = a.data(),
                                .count = a.size(),
                                .type = DataType::u32};
      const auto id = first->start(long_one);
      ASSERT_TRUE(id) << id.status().to_string();
      const Status inner = add_up(*second, b), outer = first->wait(*id);
      ASSERT_TRUE(inner && outer) << inner.to_string() << outer.to_string();
      EXPECT_EQ(a, std::vector<std::uint32_t>(a.size(), 2 * round));
      EXPECT_EQ(b, std::vector<std::uint32_t>(b.size(), 14 * round));
    }
  });
}

TEST(Counters, ThatAnotherHasAreRefusedWhereTheUserChoseThem) {
  run_group({}, [](Engine& engine, Communicator& world) {
    CommunicatorOptions options{.name = "one", .timeout = seconds(20), .first_immediate = 1000};
    {
      auto one = Communicator::create(engine, world.rank(), addresses_of(world), options);
      ASSERT_TRUE(one) << one.status().to_string();
      options.name = "two";
      options.first_immediate = 1019;
      const Status refused = Communicator::create(engine, world.rank(), addresses_of(world), options).status();
      EXPECT_EQ(refused.to_string(),
                "already_exists: CommunicatorOptions: first_immediate: of the counters 1019 to 1038 the communicator "
                "\"one\" has those from 1000 to 1019: choose others");
      options.first_immediate = ~0U;
      EXPECT_EQ(Communicator::create(engine, world.rank(), addresses_of(world), options).status().to_string(),
                "invalid_argument: CommunicatorOptions: first_immediate: a communicator takes 20 counters, and there "
                "are 1 from 4294967295 on");
      EXPECT_TRUE(world.run({}));
    }
    options.first_immediate = 1019;
    EXPECT_TRUE(Communicator::create(engine, world.rank(), addresses_of(world), options)) << "they are free again";
    EXPECT_TRUE(world.run({}));
  });
}

TEST(Counters, OfAUsersOwnSpaceAndOfACommunicatorAreNeverTheSame) {
  run_group({}, [](Engine& engine, Communicator& world) {
    CommunicatorOptions options{.name = "one", .timeout = seconds(20), .first_immediate = 1000};
    const auto make = [&] { return Communicator::create(engine, world.rank(), addresses_of(world), options); };
    const CounterSpace mine = *engine.make_counters(10, 1019);
    EXPECT_EQ(make().status().to_string(),
              "already_exists: CommunicatorOptions: first_immediate: of the counters 1000 to 1019 a counter space of "
              "this engine has those from 1019 to 1028: choose others");
    ASSERT_TRUE(engine.release_counters(mine.id));
    EXPECT_TRUE(world.run({}));
    {
      auto one = make();
      ASSERT_TRUE(one) << one.status().to_string();
      EXPECT_EQ(engine.make_counters(4, 997).status().to_string(),
                "already_exists: immediates 997 to 1000 overlap the communicator \"one\", 1000 to 1019: choose others, "
                "or let make_counters() choose");
      EXPECT_TRUE(engine.make_counters(3, 997));
      EXPECT_TRUE(world.run({}));
    }
    // Where the engine chooses, it takes none of these either.
    const CounterSpace next = *engine.make_counters(1);
    options = {.name = "two", .timeout = seconds(20), .first_immediate = next.first + 5};
    auto two = make();
    ASSERT_TRUE(two) << two.status().to_string();
    for (int i = 0; i < 8; ++i) {
      const auto space = engine.make_counters(3);
      ASSERT_TRUE(space) << space.status().to_string();
      EXPECT_TRUE(space->first + space->count <= options.first_immediate ||
                  space->first >= options.first_immediate + 20)
          << space->first << " of a communicator's " << options.first_immediate;
    }
    EXPECT_TRUE(world.run({}));
  });
}

}  // namespace
}  // namespace fairway
