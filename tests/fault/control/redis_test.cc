#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "fault/control/redis_server.h"
#include "fault/control/store.h"

namespace fairway::control {
namespace {

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

// An error is one short line, whatever a server writes into it.
TEST(RedisLies, ALongAnswerFullOfEscapesIsCutAndPlain) {
  LiveEngine probe(named("probe", "redis://127.0.0.1:1"));
  if (probe.open_status.code() == ErrorCode::unsupported) GTEST_SKIP() << probe.open_status.message();
  const Liar liar("-ERR \x1b[2J\x07\xff" + std::string(50'000, 'x') + "\r\n");
  LiveEngine engine(named("a", "redis://" + liar.address()));
  // The liar closes behind its answer, which may be what is seen first.
  Status refused;
  for (int tries = 0; tries < 10 && refused.message().find("ERR") == std::string::npos; ++tries)
    refused = engine.resolve("b", kSecond).status();
  EXPECT_FALSE(refused);
  EXPECT_NE(refused.message().find("ERR"), std::string::npos) << refused.message();
  EXPECT_LT(refused.message().size(), 600u);
  EXPECT_TRUE(std::ranges::all_of(refused.message(), [](char each) { return each >= 32 && each < 127; }));
}

TEST(RedisUrl, ThatCannotBeMeantIsRefusedWithoutItsPassword) {
  LiveEngine probe(named("probe", "redis://127.0.0.1:1"));
  if (probe.open_status.code() == ErrorCode::unsupported) GTEST_SKIP() << probe.open_status.message();
  for (const char* url : {"redis://hunter2@127.0.0.1:6379", "redis://:hunter2@127.0.0.1", "redis://:hunter2@:6379/p",
                          "redis://:@127.0.0.1:6379", "redis://127.0.0.1", "redis://127.0.0.1:", "redis://"}) {
    LiveEngine engine(named("a", url));
    EXPECT_EQ(engine.open_status.code(), ErrorCode::invalid_argument) << url;
    EXPECT_EQ(engine.open_status.message().find("hunter2"), std::string::npos) << engine.open_status.message();
    EXPECT_NE(engine.open_status.message().find("[user]:password@]host:port"), std::string::npos);
  }
  for (const char* url : {"redis://:a/b:c@d@127.0.0.1:1/p", "redis://me:a/b@127.0.0.1:1", "redis://127.0.0.1:1/p"}) {
    LiveEngine engine(named("a", url));
    EXPECT_TRUE(engine.open_status) << engine.open_status.to_string();
  }
}

}  // namespace
}  // namespace fairway::control
