#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "sys/address.h"
#include "sys/system_runtime.h"

namespace fairway::sys {
namespace {

class Idle : public Stepper {
 public:
  Time step(Time) override { return kNever; }
};

// Channels of a task that this test steps itself.
struct Networks : testing::Test {
  SystemRuntime system;
  Runtime runtime = system.runtime();
  Idle idle;
  std::unique_ptr<Signal> signal;
  std::unique_ptr<Task> task;

  void SetUp() override {
    signal = std::move(runtime.executor.make_signal()).value();
    TaskOptions options;
    options.caller_steps = true;
    options.signal = signal.get();
    task = std::move(runtime.executor.start(options, idle)).value();
  }
  std::unique_ptr<Listener> listen(const std::string& address) {
    auto listener = runtime.network.listen(address, *task);
    EXPECT_TRUE(listener.is_ok()) << listener.status().to_string();
    return std::move(listener).value();
  }
  std::unique_ptr<Channel> dial(const std::string& address) {
    auto channel = runtime.network.dial(address, *task);
    EXPECT_TRUE(channel.is_ok()) << channel.status().to_string();
    return std::move(channel).value();
  }
  std::unique_ptr<Channel> accept(Listener& listener) {
    for (int i = 0; i < 2000; ++i) {
      auto channel = listener.accept(*task);
      EXPECT_TRUE(channel.is_ok()) << channel.status().to_string();
      if (!channel || channel.value()) return std::move(channel).value();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return nullptr;
  }
  static Result<std::size_t> receive(Channel& channel, std::span<std::byte> into) {
    for (int i = 0; i < 5000; ++i) {
      auto got = channel.receive(into);
      if (!got || got.value() != 0) return got;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Status(ErrorCode::timed_out, "nothing came");
  }
  static void send_all(Channel& channel, std::string_view text) {
    auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    for (int i = 0; i < 5000 && !bytes.empty(); ++i) {
      auto sent = channel.send(bytes);
      ASSERT_TRUE(sent.is_ok()) << sent.status().to_string();
      bytes = bytes.subspan(sent.value());
      if (sent.value() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(bytes.empty());
  }
  void exchange(const std::string& at) {
    auto listener = listen(at);
    auto near = dial(listener->address());
    auto far = accept(*listener);
    ASSERT_TRUE(far);
    send_all(*near, "over there");
    std::array<std::byte, 64> into{};
    auto got = receive(*far, into);
    ASSERT_TRUE(got.is_ok());
    EXPECT_EQ(std::string(reinterpret_cast<char*>(into.data()), got.value()), "over there");
    near.reset();
    got = receive(*far, into);
    EXPECT_EQ(got.status().code(), ErrorCode::closed);
  }
};

TEST_F(Networks, CarriesBytesOverIpv4) {
  exchange("127.0.0.1:0");
}
TEST_F(Networks, CarriesBytesOverIpv6) {
  if (!runtime.network.listen("[::1]:0", *task)) GTEST_SKIP() << "this host has no IPv6 loopback";
  exchange("[::1]:0");
}
TEST_F(Networks, CarriesBytesToAHostName) {
  exchange("localhost:0");
}

// What the peer's system has taken counts as arrived, read or not; what waits here, or in between, does not.
TEST_F(Networks, KnowsWhatThePeersSystemHasNotAcknowledged) {
  auto listener = listen("127.0.0.1:0");
  auto near = dial(listener->address());
  auto far = accept(*listener);
  ASSERT_TRUE(far);
  const std::vector<std::byte> much(1 << 20);
  std::uint64_t sent = 0;
  for (int dry = 0; dry < 20;) {
    const auto taken = near->send(much);
    ASSERT_TRUE(taken) << taken.status().to_string();
    sent += *taken;
    dry = *taken == 0 ? dry + 1 : 0;
    if (*taken == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::uint64_t waiting = near->unacknowledged();
  EXPECT_GT(waiting, 0u) << "nobody reads, and both sides' buffers are full";
  EXPECT_LE(waiting, sent);
  EXPECT_EQ(near->swallowed_segment(), 0u) << "a peer that does not read is no way that swallows";
  std::vector<std::byte> into(1 << 20);
  for (std::uint64_t got = 0; got < sent;) {
    const auto more = receive(*far, into);
    ASSERT_TRUE(more) << more.status().to_string();
    got += *more;
  }
  for (int i = 0; i < 5000 && near->unacknowledged() != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(near->unacknowledged(), 0u);
}

TEST_F(Networks, CarriesBytesInSegmentsThatAreLimited) {
  auto listener = listen("127.0.0.1:0");
  auto near = std::move(runtime.network.dial_in_segments(listener->address(), 1024, *task)).value();
  auto far = accept(*listener);
  ASSERT_TRUE(far);
  send_all(*near, std::string(5000, 'x'));
  std::vector<std::byte> into(8192);
  std::size_t got = 0;
  while (got < 5000) {
    const auto more = receive(*far, into);
    ASSERT_TRUE(more) << more.status().to_string();
    got += *more;
  }
  EXPECT_EQ(got, 5000u);
}

// Reads its channel only when the channel's list says so.
class Visitor final : public Stepper {
 public:
  Time step(Time) override {
    Channel* const channel = reads.load();
    if (channel == nullptr) return kNever;
    if (!begun_) {
      can_tell = channel->announce_in(&list_, 7);
      if (channel->announced()) list_.push_back(7);  // before there was a list
      begun_ = true;
    }
    for (const std::uint32_t number : std::exchange(list_, {})) {
      ++(number == 7 ? told : others);
      std::array<std::byte, 64> into{};
      for (auto got = channel->receive(into); got && got.value() != 0; got = channel->receive(into))
        bytes += static_cast<int>(got.value());
    }
    return kNever;
  }
  std::atomic<Channel*> reads{nullptr};
  std::atomic<bool> can_tell{false};
  std::atomic<int> told{0}, others{0}, bytes{0};

 private:
  bool begun_ = false;
  std::vector<std::uint32_t> list_;
};

// An owner of many channels visits those alone that told its list.
TEST_F(Networks, AChannelTellsItsListOfWhatCame) {
  Visitor visitor;
  TaskOptions options;
  options.name = "visitor";
  auto thread = std::move(runtime.executor.start(options, visitor)).value();
  auto listener = listen("127.0.0.1:0");
  auto near = dial(listener->address());
  std::unique_ptr<Channel> far;
  for (int i = 0; i < 2000 && !far; ++i) {
    far = std::move(listener->accept(*thread)).value();
    if (!far) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(far);
  visitor.reads = far.get();
  thread->wake();
  for (int sent = 3; sent <= 9; sent += 3) {
    send_all(*near, "abc");
    for (int i = 0; i < 5000 && visitor.bytes < sent; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(visitor.bytes, sent);
  }
  EXPECT_TRUE(visitor.can_tell);
  EXPECT_GE(visitor.told, 3);
  EXPECT_LE(visitor.told, 6) << "it tells of what came, not at every step";
  EXPECT_EQ(visitor.others, 0);
  thread.reset();  // before its channel
  EXPECT_FALSE(near->announce_in(nullptr, 0)) << "nobody harvests the epoll of a task that its caller steps";
}

// A socket whose owner reads it in each step is left out of what a sleeper waits on, until the owner says so, or the
// descriptor is given away.
TEST_F(Networks, AChannelWakesNobodyWhileItIsNotToAndAfterwardsForWhatCameMeanwhile) {
  auto listener = listen("127.0.0.1:0");
  auto near = dial(listener->address());
  auto far = accept(*listener);
  ASSERT_TRUE(far);
  std::array<std::byte, 8> into;
  // By bytes that come.
  const auto wakes = [&] {
    for (int look = 0; look < 3; ++look) signal->clear_at(runtime.clock.now() + kSecond * look);  // what was before
    send_all(*near, "abc");
    const Time begin = runtime.clock.now();
    signal->clear();
    signal->wait(after(begin, 20 * kMillisecond));
    return runtime.clock.now() < after(begin, 19 * kMillisecond);
  };
  EXPECT_TRUE(wakes());
  EXPECT_EQ(*receive(*far, into), 3u);
  EXPECT_FALSE(far->wake_for_input(false));
  EXPECT_FALSE(wakes());
  EXPECT_TRUE(far->wake_for_input(true));
  const Time begin = runtime.clock.now();
  signal->clear();
  signal->wait(after(begin, 10 * kSecond));
  EXPECT_LT(runtime.clock.now(), after(begin, 5 * kSecond)) << "the bytes came before it was to wake";
  EXPECT_EQ(*receive(*far, into), 3u);
  EXPECT_FALSE(far->wake_for_input(false));
  (void)signal->fd();
  EXPECT_TRUE(wakes()) << "somebody may sleep on the descriptor";
  EXPECT_TRUE(far->wake_for_input(false));
}

// Where nobody may ask for a while, a connection is announced, and one that was there when it was asked is not lost.
TEST_F(Networks, AListenerAnnouncesWhatComesAfterItWasAsked) {
  auto listener = listen("127.0.0.1:0");
  auto none = listener->accept(*task);
  ASSERT_TRUE(none) << none.status().to_string();
  EXPECT_EQ(none.value(), nullptr);
  for (int look = 0; look < 3; ++look) signal->clear_at(runtime.clock.now() + kSecond * look);
  EXPECT_FALSE(listener->announced());
  auto near = dial(listener->address());
  for (int i = 0; i < 2000 && !listener->announced(); ++i) {
    signal->clear_at(runtime.clock.now() + kSecond);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(listener->announced());
  EXPECT_NE(std::move(listener->accept(*task)).value(), nullptr);
}

TEST_F(Networks, ARefusedConnectionSaysSo) {
  std::string address;
  { address = listen("127.0.0.1:0")->address(); }
  auto channel = runtime.network.dial(address, *task);
  Status status = channel.status();
  if (channel) {
    std::array<std::byte, 8> into{};
    status = receive(*channel.value(), into).status();
  }
  EXPECT_EQ(status.code(), ErrorCode::unreachable);
  EXPECT_NE(status.message().find(address), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("Connection refused"), std::string::npos) << status.message();
}

TEST_F(Networks, ARefusedConnectionIsNotCalledClosedOnceASendWasTold) {
  auto listener = listen("127.0.0.1:0");
  const std::string address = listener->address();
  listener.reset();
  auto near = dial(address);
  Status sent;
  for (int tries = 0; tries < 1000 && sent; ++tries) {
    sent = near->send(std::vector<std::byte>(8)).status();
    if (sent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_FALSE(sent);
  std::vector<std::byte> into(8);
  const Status received = receive(*near, into).status();
  EXPECT_EQ(received.to_string(), sent.to_string());
  EXPECT_NE(received.message().find("Connection refused"), std::string::npos) << received.to_string();
}

TEST_F(Networks, ATakenPortIsNamedWithARemedy) {
  auto first = listen("127.0.0.1:0");
  auto second = runtime.network.listen(first->address(), *task);
  ASSERT_FALSE(second.is_ok());
  EXPECT_EQ(second.status().code(), ErrorCode::already_exists);
  EXPECT_NE(second.status().message().find(first->address()), std::string::npos);
  EXPECT_NE(second.status().message().find("ss -ltnp"), std::string::npos);
}

TEST_F(Networks, ANameThatDoesNotResolveFailsTyped) {
  auto channel = dial("no-such-host.invalid:1");
  std::array<std::byte, 8> into{};
  const auto got = receive(*channel, into);
  EXPECT_TRUE(got.status().code() == ErrorCode::not_found || got.status().code() == ErrorCode::timed_out)
      << got.status().to_string();
}

TEST_F(Networks, SendingToAClosedPeerFailsWithoutASignal) {
  auto listener = listen("127.0.0.1:0");
  auto near = dial(listener->address());
  auto far = accept(*listener);
  ASSERT_TRUE(far);
  far.reset();
  Status status;
  const std::vector<std::byte> block(4096);
  for (int i = 0; i < 1000 && status; ++i) {
    auto sent = near->send(block);
    status = sent.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(status.code(), ErrorCode::link_failed) << status.to_string();
}

TEST_F(Networks, AFullSocketTakesNothingAndLosesNothing) {
  auto listener = listen("127.0.0.1:0");
  auto near = dial(listener->address());
  auto far = accept(*listener);
  ASSERT_TRUE(far);
  const std::vector<std::byte> block(65536, std::byte{7});
  std::size_t sent = 0;
  for (int zeros = 0; zeros < 20;) {
    auto taken = near->send(block);
    ASSERT_TRUE(taken.is_ok());
    sent += taken.value();
    zeros = taken.value() == 0 ? zeros + 1 : 0;
    if (zeros) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(sent, 0U);
  std::vector<std::byte> into(65536);
  std::size_t got = 0;
  while (got < sent) {
    auto part = receive(*far, into);
    ASSERT_TRUE(part.is_ok()) << part.status().to_string();
    got += part.value();
  }
  EXPECT_EQ(got, sent);
}

TEST_F(Networks, AChannelMayOutliveItsTask) {
  auto listener = listen("127.0.0.1:0");
  auto near = dial(listener->address());
  auto named = dial("localhost:1");
  task.reset();
  near.reset();
  named.reset();
  listener.reset();
}

TEST_F(Networks, KnowsLoopbackAddresses) {
  for (const char* address : {"127.0.0.1:0", "127.8.9.10:4000", "[::1]:80", "localhost:0", "[::ffff:127.0.0.1]:1"})
    EXPECT_TRUE(runtime.network.is_loopback(address).is_ok() && runtime.network.is_loopback(address).value())
        << address;
  for (const char* address : {"0.0.0.0:0", "10.0.0.7:4000", "[::]:1", "[fd00::7]:1"})
    EXPECT_TRUE(runtime.network.is_loopback(address).is_ok() && !runtime.network.is_loopback(address).value())
        << address;
}

TEST(Addresses, WhatCannotBeOneIsRefusedWithTheForm) {
  for (const char* text : {"", "host", "host:", ":1", "host:65536", "host:-1", "host:1x", "::1:80", "[]:1", "[::1]"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_EQ(parsed.status().code(), ErrorCode::invalid_argument);
    EXPECT_NE(parsed.status().message().find("host:port"), std::string::npos);
  }
}

}  // namespace
}  // namespace fairway::sys
