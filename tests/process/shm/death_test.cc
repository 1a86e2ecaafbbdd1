#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "support/open_engine.h"

// How soon the end of a killed process is told, and what of it is the kernel's: its memory is freed before its sockets
// are closed, and only then can anybody know. FAIRWAY_KILLS: so many, in place of 12.
namespace fairway {
namespace {

using control::ChildProcess;
using Clock = std::chrono::steady_clock;
constexpr Timeout kBound = std::chrono::seconds(20);

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

EngineOptions options_of(const std::string& name, const std::string& transport) {
  EngineOptions options;
  options.name = name;
  options.transports = {transport};
  return options;
}

void serve(ChildProcess::Line& line, const std::string& transport, std::size_t size) {
  auto engine = open_engine(options_of("child", transport));
  const auto memory = engine->allocate(size, Access::all);
  if (!memory || !engine->publish("memory", *memory)) return line.write("");
  line.write(engine->address());
  line.read();
}

struct Told {
  std::vector<double> closed, down;  // ms after the kill: its plain socket's end, the event
};

// One kill; the child was forked before this process had a thread.
void kill_one(ChildProcess& child, const std::string& transport, Told& told) {
  auto engine = open_engine(options_of("parent", transport));
  const auto peer = engine->connect(child.read(), kBound);
  ASSERT_TRUE(peer && engine->lookup(*peer, "memory", kBound)) << peer.status().to_string();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::array<PeerEvent, 8> events;
  while (engine->poll_peer_events(events) != 0) {
  }
  const auto start = Clock::now();
  child.signal(SIGKILL);
  double closed = 0;
  std::thread reader([&] {
    (void)child.read();
    closed = ms_since(start);
  });
  double down = 0;
  while (down == 0 && ms_since(start) < 5000) {
    (void)engine->wait_peer_event(std::chrono::seconds(1));
    while (engine->poll_peer_events(std::span(events).first(1)) == 1)
      if (events[0].kind == PeerEvent::Kind::down && down == 0) {
        down = ms_since(start);
        EXPECT_EQ(events[0].reason.code(), ErrorCode::peer_dead) << events[0].reason.to_string();
      }
  }
  reader.join();
  ASSERT_GT(down, 0) << "not told within 5 s";
  told.closed.push_back(closed);
  told.down.push_back(down);
}

double percent(std::vector<double> values, std::size_t part) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, values.size() * part / 100)];
}

class Death : public testing::TestWithParam<std::tuple<const char*, std::size_t>> {};

TEST_P(Death, OfAKilledPeerIsToldOnceTheKernelHasClosedItsSockets) {
  const auto [transport, size] = GetParam();
  const char* wanted = std::getenv("FAIRWAY_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 12;
  Told told;
  for (int i = 0; i < kills; ++i) {
    ChildProcess child([transport = transport, size = size](auto& line) { serve(line, transport, size); });
    ASSERT_NO_FATAL_FAILURE(kill_one(child, transport, told));
  }
  std::vector<double> after;
  for (std::size_t i = 0; i < told.down.size(); ++i) after.push_back(std::max(0.0, told.down[i] - told.closed[i]));
  std::printf(
      "%s, %zu KiB, %d kills, ms p50 / p99: event %.2f / %.2f; plain reader's end %.2f / %.2f; event after that %.2f / "
      "%.2f\n",
      transport, size / 1024, kills, percent(told.down, 50), percent(told.down, 99), percent(told.closed, 50),
      percent(told.closed, 99), percent(after, 50), percent(after, 99));
  EXPECT_LT(percent(after, 50),
            10);  // who looked at intervals would be told after 15 at the median; busy cores add some
}

INSTANTIATE_TEST_SUITE_P(Of, Death,
                         testing::Values(std::tuple("shm", std::size_t{4096}), std::tuple("tcp", std::size_t{4096}),
                                         std::tuple("shm", std::size_t{64} << 20),
                                         std::tuple("tcp", std::size_t{64} << 20)),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)) + (std::get<1>(row.param) > 4096 ? "_large" : "");
                         });

}  // namespace
}  // namespace fairway
