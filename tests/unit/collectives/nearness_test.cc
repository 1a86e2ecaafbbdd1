#include "collectives/nearness.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/loopback.h"

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

TEST(Nearness, CountsTheRanksOfTheOwnHost) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  Words here, there;
  there.host = 1;
  std::vector<Words> words(cores, here);
  words.resize(cores + 100, there);
  EXPECT_TRUE(has_core(0, words));
  EXPECT_FALSE(has_core(static_cast<int>(cores + 99), words) && cores < 100);
  words.push_back(here);
  EXPECT_FALSE(has_core(0, words));
}

}  // namespace
}  // namespace fairway::collectives
