#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "fault/control/store.h"

namespace fairway::control {
namespace {

// A process of the system's redis-server, on its own port, without persistence.
class RedisServer {
 public:
  static bool available() {
    return std::system("command -v redis-server > /dev/null 2>&1") == 0;
  }  // NOLINT(cert-env33-c)
  RedisServer() {
    plain_listen(port_).reset();
    start();
  }
  ~RedisServer() { kill(); }
  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1);
      ::dup2(null, 2);
      const std::string port = std::to_string(port_);
      ::execlp("redis-server", "redis-server", "--port", port.c_str(), "--bind", "127.0.0.1", "--save", "",
               "--appendonly", "no", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    for (int i = 0; i < 500 && !plain_connect(port_); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string command(const std::string& text) const {
    auto socket = plain_connect(port_);
    ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    char answer[4096];
    const ssize_t got = ::recv(socket.get(), answer, sizeof(answer), 0);
    return got > 0 ? std::string(answer, static_cast<std::size_t>(got)) : std::string();
  }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_) + "/job7:"; }

 private:
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
};

std::string resp_set(const std::string& key, const std::string& value) {
  const auto bulk = [](const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; };
  return "*3\r\n" + bulk("SET") + bulk(key) + bulk(value);
}

struct Redis : testing::Test {
  void SetUp() override {
    if (!RedisServer::available()) GTEST_SKIP() << "redis-server is not installed";
    LiveEngine probe(named("probe", "redis://127.0.0.1:1"));
    if (probe.open_status.code() == ErrorCode::unsupported) GTEST_SKIP() << probe.open_status.message();
    server.emplace();
  }
  std::optional<RedisServer> server;
};

TEST_F(Redis, EnginesFindEachOtherThroughIt) {
  expect_engines_find_each_other(server->url());
}

TEST_F(Redis, ARestartedEngineTakesItsNameAndAClosedOneGivesItBack) {
  expect_a_name_is_its_last_engines_until_that_closes(server->url());
}

TEST_F(Redis, KilledAndRestartedItIsFilledAgainAndSessionsDoNotCare) {
  expect_sessions_outlive_a_restart(
      server->url(), [&] { server->kill(); }, [&] { server->start(); });
}

TEST_F(Redis, AForgedRecordIsRefusedWithAReason) {
  LiveEngine a(named("a", server->url()));
  LiveEngine b(named("b", server->url()));
  ASSERT_TRUE(a.resolve("b").is_ok());
  ASSERT_EQ(server->command(resp_set("job7:c", std::string(120, 'f'))), "+OK\r\n");
  const auto forged = a.resolve("c");
  EXPECT_EQ(forged.status().code(), ErrorCode::authentication_failed) << forged.status().to_string();
  EXPECT_NE(forged.status().message().find("not signed"), std::string::npos);
  // A valid record under another name must not redirect anyone.
  server->command("EVAL \"redis.call('SET','job7:d',redis.call('GET','job7:b'))\" 0\r\n");
  EXPECT_EQ(a.resolve("d").status().code(), ErrorCode::authentication_failed);
}

// Whatever the server at the store's address replies, a request must end with an error and without other effects.
TEST(RedisLies, AreRefusedWithoutHarm) {
  LiveEngine probe(named("probe", "redis://127.0.0.1:1"));
  if (probe.open_status.code() == ErrorCode::unsupported) GTEST_SKIP() << probe.open_status.message();
  for (const char* lie : {"*1000000000\r\n", "$999999999\r\nxx", ":12\r\n:12\r\n:12\r\n:12\r\n:12\r\n",
                          "HTTP/1.1 400 no\r\n\r\n", "$-1\r\n", "-ERR no\r\n-ERR\r\n", "$5\r\nabcdeXX", "$-7\r\n",
                          "*-1\r\n", "+OK\r\n+OK\r\n", ",1.5\r\n", "#t\r\n", "%1\r\n"}) {
    const Liar liar(lie);
    LiveEngine engine(named("a", "redis://" + liar.address()));
    EXPECT_FALSE(engine.resolve("b", 150 * kMillisecond).is_ok()) << lie;
  }
}

}  // namespace
}  // namespace fairway::control
