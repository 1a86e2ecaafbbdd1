#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "process/engine/soon.h"
#include "support/open_engine.h"

// Receives that the sender is told ahead, and that end while their messages are on the way.
namespace fairway {
namespace {

using control::ChildProcess;

constexpr std::uint64_t kMost = 300'000, kMessages = 300;
constexpr std::uint64_t kLengths[] = {9'000, 65'536, 100, 200'000, 262'144, kMost};
constexpr std::uint64_t kStream = 1, kEnd = 2;  // tags
constexpr auto kFree = std::byte{0x55};         // memory that is the receiver's alone

std::uint64_t length_of(std::uint64_t number) {
  return kLengths[number % std::size(kLengths)];
}

std::byte byte_of(std::uint64_t number, std::uint64_t i) {
  return static_cast<std::byte>((i * 131 + number * 197) >> 3);
}

struct Ends {
  std::uint64_t lost = 0, wrong = 0;  // sends whose receive ended under them, and other failures
};

// Sends every message in order, four at a time, then how they ended.
void send_all(ChildProcess::Line& line, const std::string& transport) {
  constexpr std::uint64_t kDepth = 4;
  auto engine = open_engine(linked_by("child", transport));
  if (!engine) return line.write(engine.status().to_string());
  const auto memory = engine->allocate(kDepth * kMost, Access::none);
  line.write(engine->address());
  std::array<PeerEvent, 1> event;
  while (engine->poll_peer_events(event) == 0) (void)engine->wait_peer_event(kSoon);
  std::array<Result<TransferId>, kDepth> sent{TransferId{}, TransferId{}, TransferId{}, TransferId{}};
  Ends ends;
  for (std::uint64_t number = 0; number < kMessages + kDepth; ++number) {
    Result<TransferId>& id = sent[number % kDepth];
    if (number >= kDepth) {
      const Status status = finish(*engine, id);
      if (!status) ++(status.code() == ErrorCode::cancelled ? ends.lost : ends.wrong);
      if (!status && status.code() != ErrorCode::cancelled)
        std::fprintf(stderr, "  child: message %d: %s\n", static_cast<int>(number - kDepth),
                     status.to_string().c_str());
    }
    if (number >= kMessages) continue;
    const std::uint64_t at = number % kDepth * kMost;
    for (std::uint64_t i = 0; i < length_of(number); ++i) memory->address[at + i] = byte_of(number, i);
    std::memcpy(memory->address + at, &number, sizeof number);
    id = engine->send(event[0].peer, kStream, {memory->id, at, length_of(number)});
  }
  std::memcpy(memory->address, &ends, sizeof ends);
  (void)finish(*engine, engine->send(event[0].peer, kEnd, {memory->id, 0, sizeof ends}));
  (void)line.read();
}

bool is_free(const std::byte* place) {
  return std::all_of(place, place + kMost, [](std::byte byte) { return byte == kFree; });
}

class ToldReceives : public testing::TestWithParam<std::string> {};

TEST_P(ToldReceives, ThatAreCancelledLeaveTheirMessagesToTheNextAndTheirMemoryAlone) {
  ChildProcess child([](auto& line) { send_all(line, GetParam()); });
  const std::string address = child.read();
  auto engine = open_engine(linked_by("parent", GetParam()));
  ASSERT_TRUE(engine) << engine.status().to_string();
  const auto memory = engine->allocate(3 * kMost, Access::none);
  ASSERT_TRUE(memory);
  const auto peer = engine->connect(address, kSoon);
  ASSERT_TRUE(peer) << peer.status().to_string();
  const auto end = engine->receive(*peer, kEnd, {memory->id, 2 * kMost, sizeof(Ends)});
  ASSERT_TRUE(end);
  std::mt19937 random(7);
  std::int64_t last = -1;
  std::uint64_t received = 0, cancelled = 0;
  std::byte* fenced = nullptr;  // memory of the receive before, if it was cancelled
  std::optional<Ends> ends;
  for (std::uint64_t round = 0;; ++round) {
    std::byte* const place = memory->address + round % 2 * kMost;
    const auto id = engine->receive(*peer, kStream, {memory->id, round % 2 * kMost, kMost});
    ASSERT_TRUE(id) << id.status().to_string();
    bool stops = random() % 3 == 0;
    if (stops) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    auto done = engine->wait(*id, stops ? Timeout(0) : std::chrono::milliseconds(20));
    while (!done && !stops) {
      ASSERT_EQ(done.status().code(), ErrorCode::timed_out) << done.status().to_string();
      if (const auto all = engine->wait(*end, Timeout(0))) {  // no message comes any more
        ASSERT_TRUE(all->status) << all->status.to_string();
        ends.emplace();
        std::memcpy(&*ends, memory->address + 2 * kMost, sizeof(Ends));
        stops = true;
      } else {
        done = engine->wait(*id, std::chrono::milliseconds(20));
      }
    }
    if (!done) {
      const auto result = engine->cancel(*id, kSoon);
      ASSERT_TRUE(result) << result.status().to_string();
      ASSERT_TRUE(result->fenced);
      done = engine->wait(*id, kSoon);
    }
    ASSERT_TRUE(done) << done.status().to_string();
    if (fenced != nullptr) {
      ASSERT_TRUE(is_free(fenced)) << "round " << round;
    }
    fenced = nullptr;
    if (done->status) {
      std::uint64_t number = 0;
      std::memcpy(&number, place, sizeof number);
      ASSERT_GT(static_cast<std::int64_t>(number), last);
      last = static_cast<std::int64_t>(number);
      ASSERT_EQ(done->bytes, length_of(number));
      for (std::uint64_t i = sizeof number; i < done->bytes; ++i) ASSERT_EQ(place[i], byte_of(number, i)) << number;
      ++received;
    } else {
      ASSERT_EQ(done->status.code(), ErrorCode::cancelled) << done->status.to_string();
      ++cancelled;
      fenced = place;
      std::fill_n(place, kMost, kFree);
    }
    if (ends) break;
  }
  EXPECT_EQ(ends->wrong, 0u);
  EXPECT_EQ(received + ends->lost, kMessages);
  EXPECT_GT(cancelled, 0u);
  child.write("enough");
}

INSTANTIATE_TEST_SUITE_P(Over, ToldReceives, testing::Values("shm", "tcp"), [](const auto& row) { return row.param; });

}  // namespace
}  // namespace fairway
