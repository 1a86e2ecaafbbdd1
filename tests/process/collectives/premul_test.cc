#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/host/choose.h"
#include "collectives/host/reduce.h"
#include "process/collectives/case.h"
#include "process/collectives/group.h"
#include "support/sanitized.h"

// Sums of what each rank has multiplied by a factor of its own.
namespace fairway {
namespace {

constexpr DataType kFloats[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64};

GroupOptions ranks_over(int size, const std::string& transport, std::uint32_t slot_bytes) {
  GroupOptions options;
  options.size = size;
  options.transports = {transport};
  options.communicator.slot_bytes = slot_bytes;
  return options;
}

Collective sum_of(std::vector<float>& values, double factor) {
  Collective call{.kind = CollectiveKind::all_reduce, .count = values.size(), .type = DataType::f32};
  call.input = call.output = values.data();
  call.reduction = Reduction::premul_sum;
  call.factor = factor;
  return call;
}

struct PremulSum : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, PremulSum, testing::Values("loopback", "shm", "tcp"));

TEST_P(PremulSum, IsRightByEveryAlgorithmAndLeavesTheInput) {
  for (const int size : {1, 2, 3, 5, 8}) {
    if (kSanitized && size > 5) continue;
    run_group(ranks_over(size, GetParam(), 128), [size](Engine&, Communicator& communicator) {
      for (const CollectiveKind kind : kCombining)
        for (const bool reproducible : {false, true})
          for (const Algorithm algorithm : collectives::algorithms_of(kind, reproducible))
            for (const DataType type : kFloats)
              for (const std::size_t count : {0, 1, 33, 150})
                for (const bool in_place : {false, true}) {
                  const Case with{
                      kind,     algorithm, type, Reduction::premul_sum, count, static_cast<int>(count) % size,
                      in_place, count % 5};
                  One one(with, communicator.rank(), size), same(with, communicator.rank(), size);
                  one.call.reproducible = reproducible;
                  const Status status = communicator.run(one.call);
                  ASSERT_EQ(status ? one.wrong() : status.to_string(), "") << name_of(with) << ", " << size << " ranks";
                  const std::size_t blocks =
                      kind == CollectiveKind::reduce_scatter ? static_cast<std::size_t>(size) : 1;
                  if (!in_place)
                    ASSERT_TRUE(count == 0 ||
                                std::memcmp(one.call.input, same.call.input, blocks * count * size_of(type)) == 0)
                        << name_of(with) << " has changed its input";
                }
    });
  }
}

// Sizes around those where bytes are sent from where they lie, which here are products, and lie elsewhere.
TEST_P(PremulSum, OfMuchDataIsRight) {
  for (const int size : {2, kSanitized ? 3 : 4})
    run_group(ranks_over(size, GetParam(), 0), [size](Engine&, Communicator& communicator) {
      for (const CollectiveKind kind : kCombining)
        for (const Algorithm algorithm : collectives::algorithms_of(kind))
          for (const bool in_place : {false, true}) {
            const Case with{kind, algorithm, DataType::f64, Reduction::premul_sum, 150'001, size - 1, in_place, 0};
            One one(with, communicator.rank(), size);
            const Status status = communicator.run(one.call);
            one.scribble();
            ASSERT_EQ(status ? one.wrong() : status.to_string(), "") << name_of(with) << ", " << size << " ranks";
          }
    });
}

TEST(PremulSums, OfHostsAreMultipliedOnce) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 1, 1}, {0, 1, 0}, {0, 1, 2, 0, 1}}) {
    GroupOptions options = ranks_over(static_cast<int>(hosts.size()), "shm", 0);
    options.transports = {"shm", "tcp"};
    options.hosts = hosts;
    run_group(options, [](Engine&, Communicator& communicator) {
      for (const std::size_t count : {1, 511, 8192, 65537, kSanitized ? 70'001 : 700'001})
        for (const bool in_place : {false, true})
          if (!run_case(communicator, {CollectiveKind::all_reduce, Algorithm::hierarchical, DataType::f32,
                                       Reduction::premul_sum, count, 0, in_place, 0}))
            return;
    });
  }
}

TEST(PremulSums, OfBytesRoundEachProductAndThenTheSum) {
  for (const int size : {1, 2, 3, 5})
    run_group(ranks_over(size, "shm", 128), [size](Engine&, Communicator& communicator) {
      const auto factor = [](int rank) { return 0.3 + rank; };
      for (const DataType type : {DataType::f8e4m3, DataType::f8e5m2})
        for (const CollectiveKind kind : kCombining)
          for (const Algorithm algorithm : collectives::algorithms_of(kind, true))
            for (const bool in_place : {false, true}) {
              constexpr std::size_t kCount = 300;
              const std::size_t all =
                  kind == CollectiveKind::reduce_scatter ? kCount * static_cast<std::size_t>(size) : kCount;
              const auto given = [&](int rank) {
                std::vector<std::uint8_t> values(all);
                for (std::size_t i = 0; i < all; ++i)
                  values[i] =
                      static_cast<std::uint8_t>((static_cast<std::size_t>(rank) * 29 + i * 7) & 0xB7);  // no NaN
                return values;
              };
              std::vector<float> sums(all), wide(all);
              for (int rank = 0; rank < size; ++rank) {
                std::vector<std::uint8_t> product = given(rank);
                collectives::scale(product.data(), product.data(), type, all, factor(rank));
                collectives::widen(wide.data(), product.data(), type, all);
                for (std::size_t i = 0; i < all; ++i) sums[i] = rank == 0 ? wide[i] : sums[i] + wide[i];
              }
              std::vector<std::uint8_t> want(all), input = given(communicator.rank()), output(kCount);
              collectives::narrow(want.data(), sums.data(), type, all, 1);
              const std::size_t first =
                  kind == CollectiveKind::reduce_scatter ? static_cast<std::size_t>(communicator.rank()) * kCount : 0;
              Collective call{.kind = kind, .count = kCount, .type = type, .reduction = Reduction::premul_sum};
              call.algorithm = algorithm;
              call.factor = factor(communicator.rank());
              call.input = input.data();
              call.output = in_place ? input.data() + first : output.data();
              const Status status = communicator.run(call);
              ASSERT_TRUE(status) << status.to_string();
              if (kind == CollectiveKind::reduce && communicator.rank() != 0) continue;
              ASSERT_EQ(std::memcmp(call.output, want.data() + first, kCount), 0)
                  << to_string(kind) << " by " << to_string(algorithm) << " of " << to_string(type) << ", " << size
                  << " ranks" << (in_place ? ", in place" : "");
            }
    });
}

TEST(PremulSums, TakeAFactorOfEachCall) {
  run_group(ranks_over(2, "shm", 0), [](Engine&, Communicator& communicator) {
    const double own = communicator.rank() + 1;
    std::vector<float> values(100);
    for (const double factor : {0.5, 3.0, 0.0, 1.0, -1.0}) {  // the same call but for that, and the same memory
      values.assign(values.size(), 4);
      const Status status = communicator.run(sum_of(values, factor * own));
      ASSERT_TRUE(status) << status.to_string();
      for (const float value : values) ASSERT_EQ(value, 4 * factor * 3);
    }
    values.assign(values.size(), 1);
    ASSERT_TRUE(
        communicator.run(sum_of(values, communicator.rank() == 0 ? 1 : std::numeric_limits<double>::infinity())));
    EXPECT_TRUE(std::isinf(values.front()));
    ASSERT_TRUE(communicator.run(sum_of(values, communicator.rank() == 0 ? 1 : std::nan(""))));
    EXPECT_TRUE(std::isnan(values.back()));
  });
}

// Some ranks have the same factor in both calls, others do not: they travel as one all the same.
TEST(PremulSums, OfAGroupOfCallsHaveAFactorEach) {
  run_group(ranks_over(3, "shm", 0), [](Engine&, Communicator& communicator) {
    const double own = communicator.rank();
    std::vector<float> a(5, 1), b(7, 1), c(3, 1);
    std::vector<Collective> calls{sum_of(a, 2), sum_of(b, own), sum_of(c, 1)};
    calls.back().reduction = Reduction::sum;
    const Status status = communicator.run_all(calls);
    ASSERT_TRUE(status) << status.to_string();
    EXPECT_EQ(a, std::vector<float>(5, 6));
    EXPECT_EQ(b, std::vector<float>(7, 3));
    EXPECT_EQ(c, std::vector<float>(3, 3));
  });
}

TEST(PremulSums, ThatMakeNoSenseAreRefusedAndTheGroupGoesOn) {
  run_group(ranks_over(2, "shm", 0), [](Engine&, Communicator& communicator) {
    std::vector<float> values(4, 1);
    const auto refused = [&](const Collective& call, const std::string& words) {
      const Status status = communicator.run(call);
      EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
      EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
    };
    Collective call = sum_of(values, 2);
    call.type = DataType::i32;
    refused(call, "type is i32: premul_sum is of floating-point types");
    call = sum_of(values, 1);
    call.reduction = Reduction::sum;
    ASSERT_TRUE(communicator.run(call));
    call.factor = 2;  // else the same call, with the same memory
    refused(call, "factor is 2, which only premul_sum takes");
    refused({.kind = CollectiveKind::barrier, .reduction = Reduction::premul_sum, .factor = std::nan("")},
            "factor is nan");
    values.assign(4, 1);
    ASSERT_TRUE(communicator.run(sum_of(values, communicator.rank())));
    EXPECT_EQ(values, std::vector<float>(4, 1));
    // Another reduction than the other rank's is found; another factor is none.
    call = sum_of(values, 1);
    if (communicator.rank() == 0) call.reduction = Reduction::sum;
    const Status differs = communicator.run(call);
    EXPECT_EQ(differs.code(), ErrorCode::invalid_argument);
    EXPECT_NE(differs.message().find("premul_sum"), std::string::npos) << differs.to_string();
  });
}

}  // namespace
}  // namespace fairway
