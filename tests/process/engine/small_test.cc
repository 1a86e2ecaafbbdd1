#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "process/engine/soon.h"
#include "support/open_engine.h"

// What is small enough to be done within its call, or not quite, between two real processes.
namespace fairway::small {
namespace {

using control::ChildProcess;

constexpr std::uint64_t kLengths[] = {1,    2,    8,    39,   40,   41,   48,   49,   300,  1000,
                                      4095, 4096, 4097, 8000, 8191, 8192, 8193, 8400, 8500, 20'000};
constexpr std::uint64_t kMost = 20'000, kAtOnce = 4, kThere = 1, kBack = 2, kRounds = 2 * std::size(kLengths);
constexpr std::uint32_t kTold = 7;
constexpr auto kFree = std::byte{0x55};

std::uint64_t length_of(std::uint64_t number) {
  return kLengths[number % std::size(kLengths)];
}

std::byte byte_of(std::uint64_t number, std::uint64_t i) {
  return static_cast<std::byte>((i * 131 + (i >> 7) * 37 + number * 197) >> 1);
}

void fill(std::byte* at, std::uint64_t number) {
  for (std::uint64_t i = 0; i < length_of(number); ++i) at[i] = byte_of(number, i);
}

// The first byte that is not the number's; of its length there is none.
std::uint64_t right(const std::byte* at, std::uint64_t number) {
  std::uint64_t i = 0;
  while (i < length_of(number) && at[i] == byte_of(number, i)) ++i;
  return i;
}

// Publishes its memory, sends each message back, and then says how many counts came.
void echo(ChildProcess::Line& line, const std::string& transport) {
  auto engine = open_engine(linked_by("child", transport));
  if (!engine) return line.write(engine.status().to_string());
  const auto memory = engine->allocate(2 * kMost, Access::all);
  const auto letter = engine->allocate(kMost, Access::none);
  if (!memory || !letter || !engine->publish("memory", *memory)) return line.write("no memory");
  std::memset(memory->address, static_cast<int>(kFree), memory->size_bytes);
  line.write(engine->address());
  std::array<PeerEvent, 1> event;
  while (engine->poll_peer_events(event) == 0) (void)engine->wait_peer_event(kSoon);
  Result<TransferId> back = TransferId{};  // of the last one nobody waits: its receiver may not poll any more
  for (std::uint64_t i = 0; i < kRounds * kAtOnce; ++i) {
    const Status sent = i == 0 ? Status() : finish(*engine, back);
    if (!sent) return line.write(sent.to_string());
    const auto in = engine->receive(event[0].peer, kThere, {letter->id, 0, kMost});
    const auto got = in ? engine->wait(*in, kSoon) : Result<Completion>(in.status());
    const Status received = got ? got->status : got.status();
    if (!received) return line.write(received.to_string());
    back = engine->send(event[0].peer, kBack, {letter->id, 0, got->bytes});
  }
  (void)engine->wait_counter(kTold, kRounds, kSoon);
  line.write(std::to_string(engine->counter(kTold)));
  line.read();
}

class Small : public testing::TestWithParam<std::tuple<std::string, Progress>> {
 protected:
  void SetUp() override {
    child_.emplace([](auto& line) { echo(line, std::get<0>(GetParam())); });
    const std::string address = child_->read();
    EngineOptions options = linked_by("parent", std::get<0>(GetParam()));
    options.progress = std::get<1>(GetParam());
    auto engine = open_engine(options);
    ASSERT_TRUE(engine) << engine.status().to_string();
    engine_.emplace(std::move(*engine));
    const auto peer = engine_->connect(address, kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
    peer_ = *peer;
    const auto memory = engine_->allocate(2 * kAtOnce * kMost, Access::none);
    const auto there = engine_->lookup(peer_, "memory", kSoon);
    ASSERT_TRUE(memory && there);
    memory_ = *memory;
    there_ = *there;
  }

  // Several at once, whose lengths and bytes tell them apart.
  void messages_come_back() {
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      std::array<Result<TransferId>, kAtOnce> in{TransferId{}, TransferId{}, TransferId{}, TransferId{}}, out = in;
      for (std::uint64_t i = 0; i < kAtOnce; ++i) {
        fill(memory_.address + i * kMost, round + i);
        out[i] = engine_->send(peer_, kThere, {memory_.id, i * kMost, length_of(round + i)});
        in[i] = engine_->receive(peer_, kBack, {memory_.id, (kAtOnce + i) * kMost, kMost});
      }
      for (std::uint64_t i = 0; i < kAtOnce; ++i) {
        ASSERT_TRUE(ends_well(*engine_, out[i]));
        ASSERT_TRUE(in[i]);
        const auto got = engine_->wait(*in[i], kSoon);
        ASSERT_TRUE(got && got->status) << (got ? got->status : got.status()).to_string();
        ASSERT_EQ(got->bytes, length_of(round + i)) << "out of order, or cut";
        ASSERT_EQ(right(memory_.address + (kAtOnce + i) * kMost, round + i), got->bytes);
      }
    }
  }

  void writes_are_read_back() {
    RequestOptions counts;
    counts.notify = notify_counter(kTold);
    std::byte* const all = memory_.address + kMost;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t length = length_of(round), at = 1 + round % 13;
      fill(memory_.address, round);
      ASSERT_TRUE(ends_well(*engine_, engine_->write(peer_, Extent{{memory_.id, 0, length}, {there_.id, at}}, counts)));
      ASSERT_TRUE(
          ends_well(*engine_, engine_->read(peer_, Extent{{memory_.id, kMost, length + at + 1}, {there_.id, 0}})));
      ASSERT_EQ(right(all + at, round), length);
      ASSERT_EQ(all[0], kFree) << "the byte before the first write";
      ASSERT_EQ(all[at + length], kFree) << "the byte behind a write of " << length;
      clear(at, length);
    }
  }

  void clear(std::uint64_t at, std::uint64_t length) {
    std::memset(memory_.address, static_cast<int>(kFree), length);
    ASSERT_TRUE(ends_well(*engine_, engine_->write(peer_, Extent{{memory_.id, 0, length}, {there_.id, at}})));
  }

  std::optional<ChildProcess> child_;
  std::optional<Engine> engine_;
  PeerId peer_;
  Region memory_;
  RemoteRegion there_;
};

TEST_P(Small, MessagesAndWritesOfEachLengthComeWholeInOrderAndTouchNothingElse) {
  writes_are_read_back();
  if (HasFatalFailure()) return;
  messages_come_back();
  if (HasFatalFailure()) return;
  EXPECT_EQ(child_->read(), std::to_string(kRounds)) << "a count for each write, and no other";
}

INSTANTIATE_TEST_SUITE_P(
    Over, Small, testing::Combine(testing::Values("shm", "tcp"), testing::Values(Progress::caller, Progress::threads)),
    [](const auto& row) {
      return std::get<0>(row.param) + (std::get<1>(row.param) == Progress::caller ? "_caller" : "_threads");
    });

}  // namespace
}  // namespace fairway::small
