#include <gtest/gtest.h>

#include "bench/cores.h"

namespace fairway::tool::bench {
namespace {

TEST(BenchCores, AP99IsTheSchedulersWhereThreadsLostTheirCores) {
  EXPECT_TRUE(is_late(44'000, 8, {.switches_per_second = 43}));
  EXPECT_FALSE(is_late(44'000, 8, {})) << "nobody took a core: it is the path's own";
  EXPECT_FALSE(is_late(200, 8, {.switches_per_second = 400})) << "slow machines take as long";
  EXPECT_FALSE(is_late(44'000, 16 << 20, {.switches_per_second = 43})) << "so many bytes may take as long";
}

}  // namespace
}  // namespace fairway::tool::bench
