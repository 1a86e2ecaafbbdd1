#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"
#include "fairway/loopback.h"

#include "support/open_engine.h"

// Receives of any peer: `here` receives what the others send. Its peers belong to one worker, or to several.
namespace fairway::any_receive {
namespace {

constexpr Timeout kSoon = std::chrono::seconds(20);
constexpr std::size_t kPeers = 3;
constexpr std::size_t kBytes = 1U << 20;

struct Kind {
  std::uint32_t workers = 1;
  Progress progress = Progress::threads;
};

class AnyReceive : public testing::TestWithParam<Kind> {
 protected:
  struct Sender {
    std::optional<Engine> engine;
    PeerId here;   // as it knows it
    PeerId there;  // as `here` knows it
    std::vector<std::byte> bytes = std::vector<std::byte>(kBytes);
    Region region;
  };

  void SetUp() override {
    EngineOptions options;
    options.loopback = make_loopback();
    options.peer_timeout = std::chrono::seconds(60);
    options.workers = GetParam().workers;
    options.progress = GetParam().progress;
    options.name = "here";
    open(options, here_);
    options.workers = 1;
    options.progress = Progress::threads;
    bytes_.resize(4 * kBytes);
    auto region = here_->register_memory(bytes_.data(), bytes_.size(), Access::none);
    ASSERT_TRUE(region);
    region_ = *region;
    for (std::size_t i = 0; i < kPeers; ++i) {
      Sender& one = senders_[i];
      options.name = "sender " + std::to_string(i);
      open(options, one.engine);
      auto memory = one.engine->register_memory(one.bytes.data(), one.bytes.size(), Access::none);
      ASSERT_TRUE(memory);
      one.region = *memory;
      std::atomic<bool> connected{false};
      std::thread steps([&] {
        while (!connected) (void)here_->poll({});
      });
      const auto peer = one.engine->connect(here_->address(), kSoon);
      connected = true;
      steps.join();
      ASSERT_TRUE(peer) << peer.status().to_string();
      one.here = *peer;
      std::array<PeerEvent, 1> event;
      while (here_->poll_peer_events(event) == 0 || event[0].kind != PeerEvent::Kind::up) (void)here_->poll({});
      one.there = event[0].peer;
    }
  }
  static void open(const EngineOptions& options, std::optional<Engine>& out) {
    auto opened = open_engine(options);
    ASSERT_TRUE(opened) << opened.status().to_string();
    out.emplace(std::move(*opened));
  }
  // `value` in its first byte.
  TransferId send(std::size_t from, std::uint64_t tag, std::uint8_t value, std::uint64_t length = 64) {
    Sender& one = senders_[from];
    const std::uint64_t at = next_ % 4096 * 64;
    next_ += length > 64 ? 0 : 1;
    one.bytes[length > 64 ? 0 : at] = std::byte{value};
    const auto id = one.engine->send(one.here, tag, {one.region.id, length > 64 ? 0 : at, length});
    EXPECT_TRUE(id) << id.status().to_string();
    return id ? *id : TransferId{};
  }
  Slice into(std::uint64_t place, std::uint64_t length = 64) const { return {region_.id, place * 64, length}; }
  std::uint8_t value(std::uint64_t place) const { return static_cast<std::uint8_t>(bytes_[place * 64]); }
  Result<TransferId> receive(PeerId peer, std::uint64_t tag, std::uint64_t place, const RequestOptions& options = {}) {
    bytes_[place * 64] = std::byte{0};
    return here_->receive(peer, tag, into(place), options);
  }
  Completion finish(const Result<TransferId>& id) {
    EXPECT_TRUE(id) << id.status().to_string();
    if (!id) return {};
    auto done = here_->wait(*id, kSoon);
    EXPECT_TRUE(done) << done.status().to_string();
    return done ? *done : Completion{};
  }
  // That many messages of the tag wait for a receive, of one peer or of any.
  bool wait_there(std::size_t from, std::uint64_t tag) {
    return here_->probe(senders_[from].there, tag, kSoon).is_ok();
  }

  std::optional<Engine> here_;
  std::array<Sender, kPeers> senders_;
  std::vector<std::byte> bytes_;
  Region region_;
  std::uint64_t next_ = 0;
};

TEST_P(AnyReceive, TakesAMessageOfWhicheverPeerAndSaysWhose) {
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{64}, kBytes})
    for (std::size_t from = 0; from < kPeers; ++from)
      for (const bool first : {false, true}) {  // the receive is there first
        SCOPED_TRACE(std::to_string(length) + " of " + std::to_string(from) + (first ? " later" : " before"));
        bytes_[0] = std::byte{0};
        Result<TransferId> id = first ? here_->receive({}, 7, into(0, kBytes)) : Result<TransferId>(TransferId{});
        const TransferId sent = send(from, 7, 9, length);
        if (!first) {
          ASSERT_TRUE(wait_there(from, 7));
          id = here_->receive({}, 7, into(0, kBytes));
        }
        const Completion done = finish(id);
        EXPECT_TRUE(done.status) << done.status.to_string();
        EXPECT_EQ(done.peer, senders_[from].there);
        EXPECT_EQ(done.bytes, length);
        EXPECT_EQ(value(0), length == 0 ? 0 : 9);
        const auto there = senders_[from].engine->wait(sent, kSoon);
        ASSERT_TRUE(there && there->status);
        EXPECT_EQ(there->peer, PeerId{}) << "a send's";
      }
  EXPECT_EQ(here_->metrics().transfers_in_use, 0U);
}

// Among the receives of one peer it is one more, wherever it was submitted.
TEST_P(AnyReceive, KeepsItsPlaceAmongTheReceivesOfAPeer) {
  for (std::size_t from = 0; from < kPeers; ++from)
    for (std::uint8_t any = 0; any < 4; ++any)
      for (const bool first : {false, true}) {
        SCOPED_TRACE(std::to_string(from) + ", the any is number " + std::to_string(any));
        const auto send_all = [&] {
          for (std::uint8_t i = 0; i < 4; ++i) send(from, 3, static_cast<std::uint8_t>(i + 1));
          send(from, 4, 1);
          EXPECT_TRUE(wait_there(from, 4));
        };
        if (!first) send_all();
        std::vector<Result<TransferId>> ids;
        for (std::uint8_t i = 0; i < 4; ++i) ids.push_back(receive(i == any ? PeerId{} : senders_[from].there, 3, i));
        if (first) send_all();
        for (std::uint8_t i = 0; i < 4; ++i) {
          const Completion done = finish(ids[i]);
          EXPECT_TRUE(done.status) << done.status.to_string();
          EXPECT_EQ(done.peer, senders_[from].there);
          EXPECT_EQ(value(i), i + 1);
        }
        EXPECT_TRUE(finish(receive({}, 4, 9)).status);
      }
}

TEST_P(AnyReceive, LetsOtherTagsAndOtherPeersReceivesPass) {
  const auto any = receive({}, 1, 0), of_first = receive(senders_[0].there, 1, 1), other = receive({}, 2, 2);
  send(1, 1, 11);
  EXPECT_EQ(finish(any).peer, senders_[1].there);
  send(0, 1, 12);
  EXPECT_EQ(finish(of_first).peer, senders_[0].there);
  EXPECT_EQ(value(0), 11);
  EXPECT_EQ(value(1), 12);
  EXPECT_EQ(here_->wait(*other, Timeout(0)).status().code(), ErrorCode::timed_out);
  send(2, 2, 13);
  EXPECT_EQ(finish(other).peer, senders_[2].there);
}

// A receive that waits for another transfer keeps its place: what comes behind it waits, too.
TEST_P(AnyReceive, WaitsBehindAReceiveThatIsNotReady) {
  RequestOptions behind;
  const auto before = receive(senders_[0].there, 90, 5);
  behind.after = *before;
  const auto not_ready = receive(senders_[0].there, 6, 0, behind), any = receive({}, 6, 1);
  send(0, 6, 1);
  send(0, 6, 2);
  send(0, 91, 1);
  ASSERT_TRUE(wait_there(0, 91));
  EXPECT_EQ(here_->wait(*any, Timeout(0)).status().code(), ErrorCode::timed_out);
  send(0, 90, 1);
  EXPECT_TRUE(finish(before).status);
  EXPECT_TRUE(finish(not_ready).status);
  EXPECT_TRUE(finish(any).status);
  EXPECT_EQ(value(0), 1);
  EXPECT_EQ(value(1), 2);
}

TEST_P(AnyReceive, EndsAsOthersDo) {
  RequestOptions late;
  late.deadline = std::chrono::milliseconds(20);
  Completion done = finish(receive({}, 1, 0, late));
  EXPECT_EQ(done.status.code(), ErrorCode::deadline_exceeded);
  EXPECT_EQ(done.status.effect(), Effect::not_applied);
  EXPECT_EQ(done.peer, PeerId{});
  late.deadline = Timeout(0);
  send(0, 1, 1);
  ASSERT_TRUE(wait_there(0, 1));
  EXPECT_EQ(finish(receive({}, 1, 0, late)).status.code(), ErrorCode::deadline_exceeded);
  EXPECT_EQ(finish(receive({}, 1, 0)).bytes, 64U) << "the message still waits";

  const auto unwanted = receive({}, 1, 0);
  const auto cancelled = here_->cancel(*unwanted, kSoon);
  ASSERT_TRUE(cancelled && cancelled->fenced) << cancelled.status().to_string();
  EXPECT_EQ(cancelled->far_side, Cancelled::Far::nothing);
  EXPECT_EQ(finish(unwanted).status.code(), ErrorCode::cancelled);

  for (const bool waits : {false, true}) {
    std::vector<std::byte> other(64);
    const auto memory = here_->register_memory(other.data(), other.size(), Access::none);
    ASSERT_TRUE(memory);
    const auto into_other = here_->receive({}, 1, {memory->id, 0, 64});
    if (waits) {
      EXPECT_EQ(here_->explain(*into_other)->peer, "any") << "its workers have it by then";
    }
    EXPECT_TRUE(here_->deregister(*memory, kSoon));
    EXPECT_EQ(finish(into_other).status.code(), ErrorCode::cancelled);
  }

  send(0, 1, 7);  // none of them takes it
  EXPECT_EQ(finish(receive({}, 1, 0)).bytes, 64U);
  RequestOptions dependent;
  dependent.after = *unwanted;
  EXPECT_EQ(receive({}, 1, 0, dependent).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(here_->metrics().transfers_in_use, 0U);
  const auto last = receive({}, 1, 0);
  here_->close();
  done = finish(last);
  EXPECT_EQ(done.status.code(), ErrorCode::cancelled) << done.status.to_string();
  EXPECT_EQ(receive({}, 1, 0).status().code(), ErrorCode::closed);
}

TEST_P(AnyReceive, IsTruncatedAsOthersAre) {
  const auto any = here_->receive({}, 1, into(0, 8));
  const TransferId sent = send(1, 1, 1);
  const Completion done = finish(any);
  EXPECT_EQ(done.status.code(), ErrorCode::truncated);
  EXPECT_EQ(done.peer, senders_[1].there);
  const auto there = senders_[1].engine->wait(sent, kSoon);
  ASSERT_TRUE(there);
  EXPECT_EQ(there->status.code(), ErrorCode::truncated);
}

// Others may still send.
TEST_P(AnyReceive, OutlivesPeersThatLeave) {
  const auto any = receive({}, 1, 0);
  senders_[0].engine->close();
  std::array<PeerEvent, 1> event;
  do {
    (void)here_->poll({});
  } while (here_->poll_peer_events(event) == 0 || event[0].kind != PeerEvent::Kind::down);
  EXPECT_EQ(here_->wait(*any, Timeout(0)).status().code(), ErrorCode::timed_out);
  send(2, 1, 5);
  const Completion done = finish(any);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(done.peer, senders_[2].there);
}

TEST_P(AnyReceive, IsWaitedForByOthers) {
  RequestOptions behind;
  const auto any = receive({}, 1, 0);
  behind.after = *any;
  std::vector<Result<TransferId>> answers;
  for (const Sender& one : senders_) answers.push_back(here_->send(one.there, 8, into(0), behind));
  const auto unheard = receive({}, 2, 1);
  behind.after = *unheard;
  for (const Sender& one : senders_) answers.push_back(here_->send(one.there, 8, into(0), behind));
  ASSERT_EQ(here_->explain(*any)->peer, "any");
  send(1, 1, 77);
  EXPECT_TRUE(finish(any).status);
  ASSERT_TRUE(here_->cancel(*unheard, kSoon));
  EXPECT_EQ(finish(unheard).status.code(), ErrorCode::cancelled);
  for (Sender& one : senders_) {
    const auto got = one.engine->receive(one.here, 8, {one.region.id, 4096 * 64, 64});
    ASSERT_TRUE(got);
    while (one.engine->wait(*got, Timeout(0)).status().code() == ErrorCode::timed_out) (void)here_->poll({});
    EXPECT_EQ(one.bytes[4096 * 64], std::byte{77});
  }
  for (std::size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(finish(answers[i]).status.code(), i < kPeers ? ErrorCode::ok : ErrorCode::dependency_failed);
  const auto said = here_->explain(*any);
  ASSERT_TRUE(said);
  EXPECT_NE(said->peer.find("sender 1"), std::string::npos) << said->peer;
}

// Once each, and those of one peer in their order.
TEST_P(AnyReceive, EveryMessageGoesToOneInItsOrder) {
  constexpr std::uint32_t kMessages = 1000, kAtOnce = 16;
  std::vector<std::thread> threads;
  for (Sender& one : senders_)
    threads.emplace_back([&one] {
      RequestOptions local;
      local.local_completion = true;
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        std::memcpy(one.bytes.data() + i % 64 * 64, &i, sizeof i);
        const auto id = one.engine->send(one.here, 5, {one.region.id, i % 64 * 64, 64}, local);
        ASSERT_TRUE(id) << id.status().to_string();
        ASSERT_TRUE(one.engine->wait(*id, kSoon));
      }
    });
  std::map<PeerId, std::uint32_t> next;
  std::array<Result<TransferId>, kAtOnce> ids = [&] {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::array<Result<TransferId>, kAtOnce>{receive({}, 5, i)...};
    }
    (std::make_index_sequence<kAtOnce>());
  }();
  std::uint32_t left = kPeers * kMessages, wrong = 0;
  for (std::uint32_t at = 0; left > 0 && wrong == 0; at = (at + 1) % kAtOnce) {
    const Completion done = finish(ids[at]);
    std::uint32_t number = 0;
    std::memcpy(&number, bytes_.data() + at * 64, sizeof number);
    wrong += done.status && number == next[done.peer]++ ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << done.status.to_string() << " " << number;
    if (--left >= kAtOnce) ids[at] = receive({}, 5, at);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(here_->metrics().transfers_in_use, 0U);
}

TEST_P(AnyReceive, TooManyAreHeldBackUntilOthersEnd) {
  std::vector<TransferId> ids;
  Result<TransferId> one = TransferId{};
  while ((one = receive({}, 1, 0))) ids.push_back(*one);
  EXPECT_EQ(ids.size(), 1024U);
  EXPECT_EQ(one.status().code(), ErrorCode::queue_full);
  EXPECT_EQ(here_->metrics().transfers_in_use, 1024U);
  send(0, 1, 1);
  EXPECT_TRUE(finish(ids.front()).status);
  Result<TransferId> again = receive({}, 1, 0);
  while (again.status().code() == ErrorCode::queue_full) again = receive({}, 1, 0);  // each worker forgets it soon
  EXPECT_TRUE(again) << again.status().to_string();
}

std::string name_of(const testing::TestParamInfo<Kind>& kind) {
  return std::to_string(kind.param.workers) + (kind.param.workers == 1 ? "Worker" : "Workers") +
         (kind.param.progress == Progress::caller ? "OfTheCaller" : "");
}
INSTANTIATE_TEST_SUITE_P(Of, AnyReceive,
                         testing::Values(Kind{1, Progress::threads}, Kind{3, Progress::threads},
                                         Kind{1, Progress::caller}, Kind{2, Progress::caller}),
                         name_of);

}  // namespace
}  // namespace fairway::any_receive
