#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "fairway/collectives.h"
#include "fairway/loopback.h"

#include "support/open_engine.h"

// What a rank tells the others when it gives up.
namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

EngineOptions options_of(const std::shared_ptr<Loopback>& meeting_place) {
  EngineOptions options;
  options.loopback = meeting_place;
  options.peer_timeout = seconds(120);  // who is held up here is not dead
  return options;
}

// A callback that holds up its engine's worker until it is let go.
struct HoldsUp {
  std::atomic<bool> inside{false}, let_go{false};
  static void run(const Completion&, void* self) {
    auto& one = *static_cast<HoldsUp*>(self);
    one.inside = true;
    while (!one.let_go) std::this_thread::yield();
  }
};

// Its worker is too busy to send the alarm, or to take it back, in the time that a rank waits for that. What the alarm
// has of the engine's room comes back all the same.
TEST(Alarms, ThatCouldNotLeaveInTimeTakeNoRoomForEver) {
  const auto meeting_place = make_loopback();
  std::optional<Engine> engines[2];
  for (auto& engine : engines) {
    auto opened = open_engine(options_of(meeting_place));
    ASSERT_TRUE(opened) << opened.status().to_string();
    engine.emplace(std::move(*opened));
  }
  const std::vector<std::string> addresses{engines[0]->address(), engines[1]->address()};
  std::optional<Communicator> groups[2];
  {
    const auto join = [&](int rank) {
      auto made = Communicator::create(*engines[rank], rank, addresses, {.timeout = seconds(60)});
      ASSERT_TRUE(made) << made.status().to_string();
      groups[rank].emplace(std::move(*made));
    };
    std::thread other(join, 1);
    join(0);
    other.join();
  }
  ASSERT_TRUE(groups[0] && groups[1]);
  const auto memory = engines[0]->allocate(4096, Access::none);
  ASSERT_TRUE(memory);
  const auto peer = engines[0]->connect(addresses[1]);
  ASSERT_TRUE(peer);
  HoldsUp holds;
  const auto never = engines[0]->receive(
      *peer, 77, {memory->id, 0, 8}, {.deliver = Deliver::to_callback, .callback = &HoldsUp::run, .user_data = &holds});
  ASSERT_TRUE(never);
  ASSERT_TRUE(engines[0]->cancel(*never));
  while (!holds.inside) std::this_thread::yield();

  EXPECT_EQ(groups[0]->run({.timeout = milliseconds(50)}).code(), ErrorCode::deadline_exceeded);
  holds.let_go = true;
  groups[0].reset();
  EXPECT_EQ(engines[0]->metrics().transfers_in_use, 0U);
}

}  // namespace
}  // namespace fairway
