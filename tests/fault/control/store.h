#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "plain_socket.h"
#include "process/control/live_engine.h"

// What the tests of directories in a store share.
namespace fairway::control {

inline Options named(const std::string& name, const std::string& directory) {
  Options options;
  options.name = name;
  options.directory = directory;
  options.job_key = "the job's key";
  return options;
}

// A server that answers the first bytes of every connection with `lie`, and nothing else.
class Liar {
 public:
  explicit Liar(std::string lie) : lie_(std::move(lie)), listener_(plain_listen(port_)), thread_([this] { serve(); }) {}
  ~Liar() {
    stop_.store(true);
    thread_.join();
  }
  Liar(const Liar&) = delete;
  Liar& operator=(const Liar&) = delete;
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void serve() {
    while (!stop_.load()) {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10) != 1) continue;
      const sys::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char bytes[1024];
      ::recv(client.get(), bytes, sizeof bytes, 0);
      ::send(client.get(), lie_.data(), lie_.size(), MSG_NOSIGNAL);
      closed_within(client.get(), 50);
    }
  }

  const std::string lie_;
  std::uint16_t port_ = 0;
  sys::Fd listener_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// ---- what holds of every store of names; `url`: of one that runs ----

inline void expect_engines_find_each_other(const std::string& url) {
  LiveEngine a(named("a", url));
  LiveEngine b(named("b", url));
  const auto address = a.resolve("b");
  ASSERT_TRUE(address.is_ok()) << address.status().to_string();
  EXPECT_EQ(address.value(), b.address());
  EXPECT_TRUE(a.connect(address.value()).is_ok());
  EXPECT_EQ(a.resolve("nobody", 200 * kMillisecond).status().code(), ErrorCode::not_found);
}

inline void expect_a_name_is_its_last_engines_until_that_closes(const std::string& url) {
  LiveEngine a(named("a", url));
  auto old = std::make_unique<LiveEngine>(named("b", url));
  ASSERT_TRUE(a.resolve("b").is_ok());
  LiveEngine young(named("b", url));
  ASSERT_TRUE(young.until([](const auto& seen) { return !seen.publications.empty(); }, kSecond));
  EXPECT_EQ(a.resolve("b").value(), young.address());
  old.reset();
  EXPECT_EQ(a.resolve("b").value(), young.address()) << "the earlier one took the name away";
  young.control().close();
  EXPECT_EQ(a.resolve("b", 200 * kMillisecond).status().code(), ErrorCode::not_found);
}

// `kill`, `restart`: the server, which may come back empty.
template <class Kill, class Restart>
void expect_sessions_outlive_a_restart(const std::string& url, Kill kill, Restart restart) {
  LiveEngine a(named("a", url));
  LiveEngine b(named("b", url));
  const auto session = a.connect(a.resolve("b").value());
  ASSERT_TRUE(session.is_ok());
  kill();
  const auto during = a.resolve("b", 500 * kMillisecond);
  EXPECT_EQ(during.status().code(), ErrorCode::unreachable) << during.status().to_string();
  ASSERT_TRUE(a.send(session.value(), "during the outage").is_ok());
  EXPECT_TRUE(b.until([](const auto& seen) { return seen.messages.size() == 1; }, kSecond));
  restart();
  const auto after = a.resolve("b", 10 * kSecond);
  ASSERT_TRUE(after.is_ok()) << after.status().to_string();
  EXPECT_EQ(after.value(), b.address());
  EXPECT_TRUE(a.seen().down.empty() && b.seen().down.empty());
}

}  // namespace fairway::control
