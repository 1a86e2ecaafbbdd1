#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "collectives/halves.h"
#include "collectives/host/choose.h"
#include "process/collectives/combining.h"
#include "process/collectives/group.h"

// What sums of a plain type are not: one byte wide, the caller's own, several at once; and
// communicators that grow.
namespace fairway {
namespace {

GroupOptions group(int size, std::uint32_t slot_bytes) {
  GroupOptions options;
  options.size = size;
  options.communicator.slot_bytes = slot_bytes;
  return options;
}

// ---- types of one byte ----

std::uint8_t given_byte(int rank, std::size_t at) {
  return static_cast<std::uint8_t>((rank * 29 + static_cast<int>(at) * 7 + rank % 3 * 128) % 256 & 0xB7);  // no NaN
}

float widened(DataType type, std::uint8_t value) {
  return type == DataType::f8e4m3 ? collectives::float_of_e4m3(value) : collectives::float_of_e5m2(value);
}

std::uint8_t combined_byte(DataType type, Reduction reduction, int size, std::size_t at) {
  float sum = widened(type, given_byte(0, at));
  for (int rank = 1; rank < size; ++rank) {
    const float next = widened(type, given_byte(rank, at));
    switch (reduction) {
      case Reduction::min: sum = std::min(sum, next); break;
      case Reduction::max: sum = std::max(sum, next); break;
      case Reduction::product: sum *= next; break;
      default: sum += next; break;
    }
  }
  if (size == 1) return given_byte(0, at);
  if (reduction == Reduction::average) sum /= static_cast<float>(size);
  return type == DataType::f8e4m3 ? collectives::e4m3_of_float(sum) : collectives::e5m2_of_float(sum);
}

TEST(Bytes, AreSummedInF32AndRoundedOnce) {
  for (const int size : {1, 2, 3, 5, 8})
    run_group(group(size, 128), [size](Engine&, Communicator& communicator) {
      const int rank = communicator.rank();
      for (const DataType type : {DataType::f8e4m3, DataType::f8e5m2})
        for (const Reduction reduction :
             {Reduction::sum, Reduction::average, Reduction::min, Reduction::max, Reduction::product})
          for (const CollectiveKind kind : kCombining)
            for (const Algorithm algorithm : collectives::algorithms_of(kind, true))
              for (const std::size_t count : {0, 1, 33, 300})
                for (const bool in_place : {false, true}) {
                  std::vector<std::uint8_t> input(inputs_of(kind, size, count) + 1), output(count + 1, 0x5A);
                  for (std::size_t i = 0; i + 1 < input.size(); ++i) input[i] = given_byte(rank, i);
                  Collective call{.kind = kind, .count = count, .type = type, .reduction = reduction};
                  call.algorithm = algorithm;
                  call.input = input.data();
                  call.output = in_place ? input.data() + first_of(kind, rank, count) : output.data();
                  const Status status = communicator.run(call);
                  ASSERT_TRUE(status) << status.to_string();
                  if (kind == CollectiveKind::reduce && rank != 0) continue;
                  const auto* const got = static_cast<const std::uint8_t*>(call.output);
                  for (std::size_t i = 0; i < count; ++i)
                    ASSERT_EQ(got[i], combined_byte(type, reduction, size, first_of(kind, rank, count) + i))
                        << to_string(kind) << " by " << to_string(algorithm) << " of " << count << " "
                        << to_string(type) << " " << to_string(reduction) << ", " << size << " ranks, element " << i;
                }
    });
}

TEST(Bytes, TravelAsTheyAre) {
  run_group(group(3, 0), [](Engine&, Communicator& communicator) {
    std::vector<std::uint8_t> values(256);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
    if (communicator.rank() != 1) values.assign(256, 0);
    Collective call{.kind = CollectiveKind::broadcast, .count = 256, .type = DataType::f8e4m3, .root = 1};
    call.input = call.output = values.data();
    ASSERT_TRUE(communicator.run(call));
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i);
  });
}

// ---- the caller's own ----

// x -> a x + b modulo 2^64. One after the other is associative, and the order matters.
struct Affine {
  std::uint64_t a, b;
};

void compose(void* into, const void* first, const void* second, std::size_t count, void* context) {
  for (std::size_t i = 0; i < count; ++i) {
    Affine x, y;
    std::memcpy(&x, static_cast<const std::byte*>(first) + i * sizeof x, sizeof x);
    std::memcpy(&y, static_cast<const std::byte*>(second) + i * sizeof y, sizeof y);
    const Affine both{y.a * x.a, y.a * x.b + y.b};
    std::memcpy(static_cast<std::byte*>(into) + i * sizeof both, &both, sizeof both);
  }
  *static_cast<std::size_t*>(context) += count;
}

void add_up(void* into, const void* first, const void* second, std::size_t count, void*) {
  for (std::size_t i = 0; i < count * 3; ++i) {
    std::uint32_t x, y;
    std::memcpy(&x, static_cast<const std::byte*>(first) + i * 4, 4);
    std::memcpy(&y, static_cast<const std::byte*>(second) + i * 4, 4);
    x += y;
    std::memcpy(static_cast<std::byte*>(into) + i * 4, &x, 4);
  }
}

TEST(Custom, IsCalledInTheOrderOfRanksWhereThatIsAsked) {
  run_group(group(5, 64), [](Engine&, Communicator& communicator) {
    constexpr std::size_t kCount = 77;
    const auto given = [](int rank, std::size_t at) {
      return Affine{static_cast<std::uint64_t>(rank) * 6 + at + 3, static_cast<std::uint64_t>(rank) * 31 + at};
    };
    std::vector<Affine> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = given(communicator.rank(), i);
    std::size_t combined = 0;
    Collective call{.kind = CollectiveKind::all_reduce, .count = kCount, .reduction = Reduction::custom};
    call.input = call.output = values.data();
    call.reproducible = true;
    call.custom = {compose, &combined, sizeof(Affine)};
    const Status status = communicator.run(call);
    ASSERT_TRUE(status) << status.to_string();
    for (std::size_t i = 0; i < kCount; ++i) {
      Affine want = given(0, i);
      for (int rank = 1; rank < 5; ++rank) {
        const Affine next = given(rank, i);
        want = {next.a * want.a, next.a * want.b + next.b};
      }
      ASSERT_EQ(values[i].a, want.a);
      ASSERT_EQ(values[i].b, want.b);
    }
    EXPECT_GT(combined, 0U);
  });
}

// Among 8 ranks of a host the longest message is shorter than that, but an element is never cut.
TEST(Custom, TakesElementsAsLongAsASlot) {
  GroupOptions options;
  options.size = 8;
  run_group(options, [](Engine&, Communicator& communicator) {
    constexpr std::size_t kLong = 64 << 10, kCount = 3;
    std::vector<std::uint8_t> values(kLong * kCount, static_cast<std::uint8_t>(1 << communicator.rank()));
    Collective call{.kind = CollectiveKind::all_reduce, .count = kCount, .reduction = Reduction::custom};
    call.input = call.output = values.data();
    call.custom = {[](void* into, const void* a, const void* b, std::size_t count, void*) {
                     for (std::size_t i = 0; i < count * kLong; ++i)
                       static_cast<std::uint8_t*>(into)[i] = static_cast<std::uint8_t>(
                           static_cast<const std::uint8_t*>(a)[i] | static_cast<const std::uint8_t*>(b)[i]);
                   },
                   nullptr, kLong};
    const Status status = communicator.run(call);
    ASSERT_TRUE(status) << status.to_string();
    EXPECT_EQ(std::count(values.begin(), values.end(), 255), static_cast<std::ptrdiff_t>(values.size()));
  });
}

TEST(Custom, TakesElementsOfAnySizeByEveryAlgorithm) {
  run_group(group(4, 128), [](Engine&, Communicator& communicator) {
    for (const CollectiveKind kind : kCombining)
      for (const Algorithm algorithm : collectives::algorithms_of(kind)) {
        constexpr std::size_t kCount = 50;  // of 12 bytes
        std::vector<std::uint32_t> input(inputs_of(kind, 4, kCount) * 3), output(kCount * 3);
        for (std::size_t i = 0; i < input.size(); ++i)
          input[i] = static_cast<std::uint32_t>(communicator.rank() * 1000) + static_cast<std::uint32_t>(i);
        Collective call{.kind = kind, .count = kCount, .type = DataType::f64, .reduction = Reduction::custom};
        call.algorithm = algorithm;
        call.input = input.data();
        call.output = output.data();
        call.custom = {add_up, nullptr, 12};
        const Status status = communicator.run(call);
        ASSERT_TRUE(status) << status.to_string();
        if (kind == CollectiveKind::reduce && communicator.rank() != 0) continue;
        const std::size_t first = first_of(kind, communicator.rank(), kCount * 3);
        for (std::size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], 6000 + 4 * (first + i));
      }
    Collective call{.kind = CollectiveKind::all_reduce, .count = 1, .reduction = Reduction::custom};
    EXPECT_NE(communicator.run(call).message().find("custom.combine"), std::string::npos);
    call.custom = {add_up, nullptr, 136};
    std::byte big[136] = {};
    call.input = call.output = big;
    EXPECT_NE(communicator.run(call).message().find("more than slot_bytes"), std::string::npos);
  });
}

// ---- several at once ----

TEST(Together, SmallNeighboursTravelAsOne) {
  run_group(group(3, 0), [](Engine&, Communicator& communicator) {
    std::vector<std::vector<float>> values;
    std::vector<Collective> calls;
    for (const std::size_t count : {5, 0, 100, 1, 40000, 7}) {
      values.emplace_back(count + 1, static_cast<float>(communicator.rank() + 1));
      calls.push_back({.kind = CollectiveKind::all_reduce, .count = count, .type = DataType::f32});
    }
    for (std::size_t i = 0; i < calls.size(); ++i) calls[i].input = calls[i].output = values[i].data();
    std::int32_t root = communicator.rank() == 2 ? 9 : 0;
    calls.push_back({.kind = CollectiveKind::broadcast,
                     .input = &root,
                     .output = &root,
                     .count = 1,
                     .type = DataType::i32,
                     .root = 2});
    const auto before = communicator.start({});
    ASSERT_TRUE(before && communicator.wait(*before));
    const Status status = communicator.run_all(calls);
    ASSERT_TRUE(status) << status.to_string();
    const auto after = communicator.start({});
    ASSERT_TRUE(after && communicator.wait(*after));
    EXPECT_EQ(after->number - before->number, 5U);  // the first four, the long one, the last, the broadcast
    for (const auto& each : values) {
      for (std::size_t i = 0; i + 1 < each.size(); ++i) ASSERT_EQ(each[i], 6);
      EXPECT_EQ(each.back(), static_cast<float>(communicator.rank() + 1));
    }
    EXPECT_EQ(root, 9);
  });
}

// ---- more ranks ----

TEST(Grow, TakesInRanksAtTheEnd) {
  for (const int first : {1, 3})
    run_group(group(5, 256), [first](Engine& engine, Communicator& world) {
      constexpr std::size_t kText = 64;
      std::vector<char> own(kText, '\0'), all(kText * 5, '\0');
      std::memcpy(own.data(), engine.address().data(), std::min(engine.address().size(), kText - 1));
      ASSERT_TRUE(
          world.run({.kind = CollectiveKind::all_gather, .input = own.data(), .output = all.data(), .count = kText}));
      std::vector<std::string> addresses;
      for (std::size_t i = 0; i < 5; ++i) addresses.emplace_back(all.data() + i * kText);
      const bool is_old = world.rank() < first;
      auto old = world.split(is_old ? 0 : -1);
      ASSERT_EQ(old.operator bool(), is_old);
      CommunicatorOptions options = {.name = "grown", .timeout = std::chrono::minutes(10)};
      options.first_immediate = 0xD0000000;  // of a rank that joins
      const std::span<const std::string> added(addresses.begin() + first, addresses.end());
      auto grown = is_old ? old->grow(added, options) : Communicator::create(engine, world.rank(), addresses, options);
      ASSERT_TRUE(grown) << grown.status().to_string();
      EXPECT_EQ(grown->size(), 5);
      EXPECT_EQ(grown->rank(), world.rank());
      std::vector<std::int64_t> values(1000, grown->rank());
      ASSERT_TRUE(grown->run({.kind = CollectiveKind::all_reduce,
                              .input = values.data(),
                              .output = values.data(),
                              .count = values.size(),
                              .type = DataType::i64}));
      EXPECT_EQ(values.front(), 10);
      EXPECT_EQ(values.back(), 10);
      if (is_old) {
        EXPECT_TRUE(old->run({}));  // it stays
      }
      EXPECT_TRUE(world.run({}));
    });
}

}  // namespace
}  // namespace fairway
