#include <cerrno>

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

// A kernel for up to 3,000 CPUs, which lets this process use two of them.
int many_cpus(pid_t, std::size_t bytes, cpu_set_t* set) {
  if (bytes * 8 < 3000) return errno = EINVAL, -1;
  CPU_SET_S(5, bytes, set);
  CPU_SET_S(2900, bytes, set);
  return 0;
}

TEST(BenchCores, AMachineMayHaveMoreThanAThousandAndTwentyFour) {
  const Cpus cpus(many_cpus);
  EXPECT_TRUE(cpus.has(5) && cpus.has(2900));
  EXPECT_FALSE(cpus.has(6) || cpus.has(2899) || cpus.has(-1) || cpus.has(1 << 20));
  EXPECT_GT(cpus.end(), 2900);
  const Cpus one = cpus.only(2900);
  EXPECT_TRUE(one.has(2900));
  EXPECT_FALSE(one.has(5));
  EXPECT_FALSE(Cpus([](pid_t, std::size_t, cpu_set_t*) { return errno = EPERM, -1; }).use());
}

TEST(BenchCores, AThreadGoesBackToItsCpus) {
  const Cpus before(::sched_getaffinity);
  HeldCore held;
  held.hold(::sched_getcpu());
  held.let_go();
  const Cpus after(::sched_getaffinity);
  ASSERT_EQ(before.end(), after.end());
  for (int cpu = 0; cpu < before.end(); ++cpu) EXPECT_EQ(before.has(cpu), after.has(cpu)) << cpu;
}

}  // namespace
}  // namespace fairway::tool::bench
