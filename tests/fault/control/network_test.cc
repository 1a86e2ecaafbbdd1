#include <cstdio>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "plain_socket.h"
#include "process/control/child_process.h"
#include "process/control/live_engine.h"
#include "proxy.h"

namespace fairway::control {
namespace {

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Runs two engines whose only network between them corrupts bits and cuts connections.
void talk_through(std::uint32_t flip_every, std::uint32_t cut_every, std::uint64_t seed) {
  Proxy to_a(seed);
  Proxy to_b(seed + 1);
  const auto behind = [](Proxy& proxy) {
    std::uint16_t port = 0;
    plain_listen(port).reset();  // reserves a free port
    Options options;
    options.listen = "127.0.0.1:" + std::to_string(port);
    options.advertise = proxy.address();
    // On busy cores several attempts in a row may be corrupted, with back-off between them.
    options.peer_timeout = 10 * kSecond;
    proxy.set_target(options.listen);
    return options;
  };
  LiveEngine a(behind(to_a));
  LiveEngine b(behind(to_b));
  ASSERT_TRUE(a.open_status.is_ok() && b.open_status.is_ok());
  const auto session = a.connect(to_b.address());
  ASSERT_TRUE(session.is_ok()) << session.status().to_string();
  ASSERT_TRUE(b.until([](const auto& seen) { return !seen.up.empty(); }, kSecond));
  const SessionId back = b.seen().up.begin()->first;
  for (Proxy* proxy : {&to_a, &to_b}) {
    proxy->flip_every = flip_every;
    proxy->cut_every = cut_every;
  }
  constexpr int kMessages = 400;
  for (int i = 0; i < kMessages; ++i) {
    const std::string text = std::to_string(i) + std::string(static_cast<std::size_t>(i) % 700, 'x');
    ASSERT_TRUE(a.send(session.value(), text).is_ok());
    ASSERT_TRUE(b.send(back, text).is_ok());
    if (i % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  for (Proxy* proxy : {&to_a, &to_b}) proxy->flip_every = proxy->cut_every = 0;
  const auto all = [](const auto& seen) { return seen.messages.size() >= kMessages || !seen.down.empty(); };
  EXPECT_TRUE(a.until(all, 15 * kSecond));
  EXPECT_TRUE(b.until(all, 15 * kSecond));
  std::printf("%llu bits changed, %llu connections cut\n", static_cast<unsigned long long>(to_a.flips + to_b.flips),
              static_cast<unsigned long long>(to_a.cuts + to_b.cuts));
  EXPECT_GT(to_a.flips + to_b.flips + to_a.cuts + to_b.cuts, 0U);
  for (LiveEngine* engine : {&a, &b}) {
    const auto seen = engine->seen();
    EXPECT_TRUE(seen.down.empty()) << seen.down[0].reason.to_string();
    ASSERT_EQ(seen.messages.size(), static_cast<std::size_t>(kMessages));
    for (int i = 0; i < kMessages; ++i) EXPECT_EQ(std::stoi(seen.messages[static_cast<std::size_t>(i)].second), i);
    EXPECT_EQ(seen.wrong, 0U);
  }
}

TEST(ControlFault, ChangedBitsAreNoticedAndEveryMessageArrivesOnce) {
  talk_through(4000, 0, 11);
}
TEST(ControlFault, CutConnectionsResumeAndEveryMessageArrivesOnce) {
  talk_through(0, 4000, 22);
}
TEST(ControlFault, BothAtOnceLoseNothing) {
  talk_through(9000, 9000, 33);
}

TEST(ControlFault, ATakenPortIsRefusedWithARemedy) {
  LiveEngine first;
  Options options;
  options.listen = first.address();
  LiveEngine second(options);
  EXPECT_EQ(second.open_status.code(), ErrorCode::already_exists) << second.open_status.to_string();
  EXPECT_NE(second.open_status.message().find(first.address()), std::string::npos);
}

TEST(ControlFault, ListeningBeyondTheHostNeedsAKey) {
  Options options;
  options.listen = "0.0.0.0:0";
  LiveEngine open_to_all(options);
  EXPECT_EQ(open_to_all.open_status.code(), ErrorCode::invalid_argument);
  EXPECT_NE(open_to_all.open_status.message().find("job_key"), std::string::npos);
  options.job_key = "0123456789abcdef";
  LiveEngine keyed(options);
  EXPECT_TRUE(keyed.open_status.is_ok()) << keyed.open_status.to_string();
  Options near;
  near.job_key = options.job_key;
  LiveEngine peer(near);
  const auto port = keyed.address().substr(keyed.address().rfind(':'));
  ASSERT_TRUE(peer.connect("127.0.0.1" + port).is_ok());
  EXPECT_EQ(peer.seen().up.begin()->second.address, "127.0.0.1" + port) << "a wildcard is replaced by what was seen";
}

// Slow-loris attack: unauthenticated peers hold connections open and send a byte now and then. Peers must still
// connect, and the connections must not pile up.
TEST(ControlFault, ASlowLorisKeepsNobodyOut) {
  LiveEngine engine;
  const std::uint16_t port = port_of(engine.address());
  std::vector<sys::Fd> connections;
  for (int i = 0; i < 300; ++i) connections.push_back(plain_connect(port));
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    while (!stop.load()) {
      for (auto& connection : connections) ::send(connection.get(), "F", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const double before = cpu_seconds();
  LiveEngine peer;
  const Time start = peer.clock().now();
  const auto session = peer.connect(engine.address());
  EXPECT_TRUE(session.is_ok()) << session.status().to_string();
  std::printf("connected past 300 unauthenticated connections in %.0f ms, %.1f ms of CPU\n",
              static_cast<double>(peer.clock().now() - start) / 1e6, (cpu_seconds() - before) * 1e3);
  EXPECT_LT(peer.clock().now() - start, 2 * kSecond);
  stop.store(true);
  drip.join();
  int open = 0;
  for (auto& connection : connections) open += closed_within(connection.get(), 3000) ? 0 : 1;
  EXPECT_EQ(open, 0) << "unauthenticated connections are still open";
}

TEST(ControlFault, APortScanCostsNothingAndHarmsNothing) {
  LiveEngine engine;
  LiveEngine peer;
  const auto session = peer.connect(engine.address());
  ASSERT_TRUE(session.is_ok());
  const std::uint16_t port = port_of(engine.address());
  const double before = cpu_seconds();
  for (int i = 0; i < 500; ++i) {
    auto scan = plain_connect(port);
    if (i % 3 == 1) ::send(scan.get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    if (i % 3 == 2) {
      const std::string noise(200, static_cast<char>(i));
      ::send(scan.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::printf("500 scans: %.1f ms of CPU, the scanner's included\n", (cpu_seconds() - before) * 1e3);
  ASSERT_TRUE(peer.send(session.value(), "still here").is_ok());
  EXPECT_TRUE(engine.until([](const auto& seen) { return seen.messages.size() == 1; }, kSecond));
  EXPECT_TRUE(peer.seen().down.empty());
}

// A child process runs out of file descriptors. It must neither hang nor spin, name the limit, and recover.
TEST(ControlFault, OutOfDescriptorsIsTypedBoundedAndPasses) {
  ChildProcess child([](ChildProcess::Line& line) {
    LiveEngine engine;
    {
      LiveEngine other;  // by then, threads have opened and closed everything that they open and close only once
      (void)engine.connect(other.address());
    }
    line.write(engine.address());
    std::vector<sys::Fd> hoard;
    // Repeats until no descriptor becomes free for a while: a thread may hold one for a moment, and the other engine's
    // sockets close.
    const auto fill = [&] {
      for (int quiet = 0; quiet < 100; ++quiet) {
        for (sys::Fd more(::dup(1)); more; more = sys::Fd(::dup(1)), quiet = 0) hoard.push_back(std::move(more));
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
    };
    const rlimit limit{128, 128};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    fill();
    const auto out = engine.connect(line.read(), 300 * kMillisecond);
    line.write(std::string(to_string(out.status().code())) + " " + out.status().message());
    const double before = cpu_seconds();
    line.write("full");
    line.read();
    line.write(std::to_string(cpu_seconds() - before));
    hoard.clear();
    line.write("free");
    line.read();
  });
  const std::string address = child.read();
  LiveEngine engine;
  child.write(engine.address());
  const std::string typed = child.read();
  EXPECT_TRUE(typed.starts_with("resource_exhausted")) << typed;
  EXPECT_NE(typed.find("ulimit -n"), std::string::npos) << typed;
  ASSERT_EQ(child.read(), "full");
  const auto during = engine.connect(address, kSecond);
  EXPECT_FALSE(during.is_ok());
  EXPECT_EQ(during.status().code(), ErrorCode::resource_exhausted) << during.status().to_string();
  EXPECT_NE(during.status().message().find("the peer's process is out of file descriptors"), std::string::npos);
  child.write("more");
  const double cpu = std::stod(child.read());
  std::printf("without descriptors, while dialed for 1 s: %.1f ms of CPU\n", cpu * 1e3);
  EXPECT_LT(cpu, 0.25) << "it spins";
  ASSERT_EQ(child.read(), "free");
  const auto after = engine.connect(address, 5 * kSecond);
  EXPECT_TRUE(after.is_ok()) << after.status().to_string();
  child.write("done");
}

}  // namespace
}  // namespace fairway::control
