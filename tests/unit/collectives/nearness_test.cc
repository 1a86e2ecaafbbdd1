#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "fairway/loopback.h"

#include "collectives/host/choose.h"

namespace fairway::collectives {
namespace {

Words words_of(const std::vector<std::string>& transports) {
  EngineOptions options;
  options.transports = transports;
  options.loopback = make_loopback();
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine) << engine.status().to_string();
  Words words;
  if (engine) tell_host(*engine, words);
  return words;
}

TEST(Nearness, NeedsTheSameHostAndATransportThatBothHave) {
  const Words shm = words_of({"shm", "tcp"}), tcp = words_of({"tcp"}), loopback = words_of({"loopback"});
  EXPECT_TRUE(share_host(shm, shm));
  EXPECT_FALSE(share_host(shm, tcp));
  EXPECT_FALSE(share_host(tcp, tcp));
  EXPECT_FALSE(share_host(shm, loopback));
  EXPECT_TRUE(share_host(loopback, loopback));
  Words elsewhere = shm;
  elsewhere.host ^= 1;
  EXPECT_FALSE(share_host(shm, elsewhere));
  Words other_process = loopback;
  other_process.process ^= 1;
  EXPECT_FALSE(share_host(loopback, other_process));
}

TEST(Nearness, CountsTheRanksThatAreHeldToTheSameCpusOfOneHost) {
  Words here, there;
  here.cpus = 3;
  there.host = 1;
  there.cpus = 100;
  std::vector<Words> words(3, here);
  words.resize(104, there);
  EXPECT_TRUE(has_core(0, words));
  EXPECT_FALSE(has_core(103, words));
  words.push_back(here);
  EXPECT_FALSE(has_core(0, words));
  for (std::size_t rank = 3; rank < 104; ++rank) words[rank].cpu_set = static_cast<std::uint32_t>(rank);
  EXPECT_TRUE(has_core(103, words)) << "with CPUs of its own";
  EXPECT_FALSE(has_core(0, words));
}

// As launchers bind ranks to cores: one CPU each, and the ranks of a host are more than that.
TEST(Nearness, TellsTheCpusThatAThreadIsHeldTo) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  std::vector<Words> words = {words_of({"shm"}), words_of({"shm"})};
  EXPECT_EQ(words[0].cpus, static_cast<unsigned>(CPU_COUNT(&before)));
  EXPECT_EQ(words[0].cpu_set, words[1].cpu_set);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "one CPU";
  std::size_t rank = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && rank < words.size(); ++cpu) {
    if (!CPU_ISSET(cpu, &before)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    words[rank++] = words_of({"shm"});
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(words[0].cpus, 1U);
  EXPECT_NE(words[0].cpu_set, words[1].cpu_set);
  EXPECT_TRUE(has_core(0, words));
  EXPECT_TRUE(has_core(1, words));
}

}  // namespace
}  // namespace fairway::collectives
