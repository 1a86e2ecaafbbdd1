#include <array>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "process/engine/soon.h"
#include "support/open_engine.h"

// An engine that closes at once when it was told of a write: its peer has written, and hears so.
namespace fairway {
namespace {

struct Leave : testing::TestWithParam<const char*> {
  static Result<Engine> open(const char* name, Progress progress = Progress::caller) {
    EngineOptions options;
    options.name = name;
    options.progress = progress;
    options.transports = {GetParam()};
    return open_engine(options);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Leave, testing::Values("tcp", "shm"),
                         [](const auto& given) { return std::string(given.param); });

TEST_P(Leave, RightBehindANotificationLosesNoAcknowledgement) {
  auto writer = open("writer"), reader = open("reader");
  ASSERT_TRUE(writer && reader);
  PeerId peer;
  {
    std::atomic<bool> met{false};
    std::thread other([&] {
      while (!met) (void)reader->poll({});
    });
    const auto found = writer->connect(reader->address(), kSoon);
    met = true;
    other.join();
    ASSERT_TRUE(found) << found.status().to_string();
    peer = *found;
  }
  const auto from = writer->allocate(64, Access::none), into = reader->allocate(64, Access::all);
  ASSERT_TRUE(from && into);
  const auto far = writer->import_region(peer, *reader->describe(*into));
  ASSERT_TRUE(far);
  const auto both = [&] {
    (void)writer->poll({});
    (void)reader->poll({});
  };
  const auto until_told = [&](std::uint64_t count) {
    const auto end = std::chrono::steady_clock::now() + kSoon;
    while (reader->counter(7) < count && std::chrono::steady_clock::now() < end) both();
    return reader->counter(7) >= count;
  };
  RequestOptions told;
  told.notify = notify_counter(7);
  const Extent all{{from->id, 0, 64}, {far->id, 0}};
  const auto first = writer->write(peer, all, told);  // the way is open, and both have rested
  ASSERT_TRUE(first);
  ASSERT_TRUE(until_told(1));
  for (int i = 0; i < 1000; ++i) both();
  EXPECT_TRUE(writer->wait(*first, kSoon)->status);
  const auto last = writer->write(peer, all, told);
  ASSERT_TRUE(last);
  ASSERT_TRUE(until_told(2));
  reader->close();
  const auto done = writer->wait(*last, kSoon);
  ASSERT_TRUE(done) << done.status().to_string();
  EXPECT_TRUE(done->status) << done->status.to_string();
}

// The same with threads that run on their own: the goodbye and the acknowledgement go different ways.
TEST_P(Leave, WithThreadsOfItsOwnLosesNoneEither) {
  auto writer = open("writer", Progress::threads);
  ASSERT_TRUE(writer);
  const auto from = writer->allocate(64, Access::none);
  ASSERT_TRUE(from);
  for (int round = 0; round < 40; ++round) {
    auto reader = open("reader", Progress::threads);
    ASSERT_TRUE(reader);
    const auto peer = writer->connect(reader->address(), kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
    const auto into = reader->allocate(64, Access::all);
    ASSERT_TRUE(into);
    const auto far = writer->import_region(*peer, *reader->describe(*into));
    ASSERT_TRUE(far);
    RequestOptions told;
    told.notify = notify_counter(7);
    for (std::uint64_t count = 1; count <= 8; ++count) {
      const auto written = writer->write(*peer, Extent{{from->id, 0, 64}, {far->id, 0}}, told);
      ASSERT_TRUE(written);
      const auto end = std::chrono::steady_clock::now() + kSoon;
      while (reader->counter(7) < count && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      if (count == 8) reader->close();
      const auto done = writer->wait(*written, kSoon);
      ASSERT_TRUE(done) << done.status().to_string();
      ASSERT_TRUE(done->status) << "round " << round << ": " << done->status.to_string();
    }
  }
}

// Who is told that a peer went need not ask again what became of what it had taken.
TEST_P(Leave, IsToldWhenWhatItHadTakenIsKnown) {
  auto writer = open("writer", Progress::threads);
  ASSERT_TRUE(writer);
  for (int round = 0; round < 100; ++round) {
    auto reader = open("reader", Progress::threads);
    ASSERT_TRUE(reader);
    const auto peer = writer->connect(reader->address(), kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
    struct Ends {
      std::atomic<int> all{0}, well{0};
    } ends;
    RequestOptions told;
    told.notify = notify_counter(7);
    told.deliver = Deliver::to_callback;
    told.callback = [](const Completion& completion, void* of) {
      static_cast<Ends*>(of)->well += completion.status ? 1 : 0;
      ++static_cast<Ends*>(of)->all;
    };
    told.user_data = &ends;
    ASSERT_TRUE(writer->write(*peer, std::span<const Extent>(), told));
    const auto end = std::chrono::steady_clock::now() + kSoon;
    while (reader->counter(7) < 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    reader->close();
    bool down = false;
    std::array<PeerEvent, 8> events;
    while (!down && writer->wait_peer_event(kSoon))
      for (std::size_t i = 0, got = writer->poll_peer_events(events); i < got; ++i)
        down = down || (events[i].kind == PeerEvent::Kind::down && events[i].peer == *peer);
    ASSERT_TRUE(down);
    ASSERT_EQ(ends.all, 1) << "round " << round;
    ASSERT_EQ(ends.well, 1) << "round " << round;
  }
}

}  // namespace
}  // namespace fairway
