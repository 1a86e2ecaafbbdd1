#include <optional>

#include <gtest/gtest.h>

#include "fault/control/etcd_server.h"
#include "fault/control/store.h"

namespace fairway::control {
namespace {

struct Etcd : testing::Test {
  void SetUp() override {
    if (!EtcdServer::available()) GTEST_SKIP() << "etcd is not installed";
    LiveEngine probe(named("probe", "etcd://127.0.0.1:1"));
    if (probe.open_status.code() == ErrorCode::unsupported) GTEST_SKIP() << probe.open_status.message();
    server.emplace();
  }
  std::optional<EtcdServer> server;
};

TEST_F(Etcd, EnginesFindEachOtherThroughIt) {
  expect_engines_find_each_other(server->url());
  LiveEngine b(named("b", server->url()));
  ASSERT_TRUE(b.until([](const auto& seen) { return !seen.publications.empty(); }, kSecond));
  LiveEngine elsewhere(named("c", "etcd://" + server->address() + "/job8/"));
  EXPECT_EQ(elsewhere.resolve("b", 200 * kMillisecond).status().code(), ErrorCode::not_found) << "another prefix";
}

TEST_F(Etcd, ARestartedEngineTakesItsNameAndAClosedOneGivesItBack) {
  expect_a_name_is_its_last_engines_until_that_closes(server->url());
}

// It takes until the first renewal of the record.
TEST_F(Etcd, AnEarlierEngineIsToldThatItsNameIsAnothers) {
  LiveEngine old(named("b", server->url()));
  ASSERT_TRUE(old.until([](const auto& seen) { return !seen.publications.empty(); }, kSecond));
  LiveEngine young(named("b", server->url()));
  ASSERT_TRUE(old.until([](const auto& seen) { return seen.publications.size() == 2; }, 10 * kSecond));
  EXPECT_EQ(old.seen().publications.back().code(), ErrorCode::already_exists);
  EXPECT_EQ(young.resolve("b").value(), young.address());
}

TEST_F(Etcd, ARecordExpiresTenSecondsAfterItsEngineIsGone) {
  LiveEngine b(named("b", server->url()));
  ASSERT_TRUE(b.until([](const auto& seen) { return !seen.publications.empty(); }, kSecond));
  const std::string record = server->post("/v3/kv/range", R"({"key":"am9iNy9i"})");  // job7/b
  const auto at = record.find(R"("lease":")");
  ASSERT_NE(at, std::string::npos) << record;
  const std::string lease = record.substr(at + 9, record.find('"', at + 9) - at - 9);
  const std::string left = server->post("/v3/lease/timetolive", R"({"ID":")" + lease + R"("})");
  EXPECT_NE(left.find(R"("grantedTTL":"10")"), std::string::npos) << left;
}

TEST_F(Etcd, KilledAndRestartedEmptyItIsFilledAgainAndSessionsDoNotCare) {
  expect_sessions_outlive_a_restart(
      server->url(), [&] { server->kill(); },
      [&] {
        server->forget_everything();
        server->start();
      });
}

TEST_F(Etcd, AMemberThatIsDownIsLeftForTheNext) {
  const std::string both = "etcd://127.0.0.1:1," + server->address() + "/job7/";
  LiveEngine a(named("a", both));
  LiveEngine b(named("b", both));
  const auto address = a.resolve("b", 5 * kSecond);
  ASSERT_TRUE(address.is_ok()) << address.status().to_string();
  EXPECT_EQ(address.value(), b.address());
}

TEST_F(Etcd, UserAndPasswordAreAskedFor) {
  for (const auto& [path, body] :
       {std::pair("/v3/auth/user/add", R"({"name":"root","password":"r"})"),
        std::pair("/v3/auth/user/grant", R"({"user":"root","role":"root"})"), std::pair("/v3/auth/enable", "{}")})
    ASSERT_NE(server->post(path, body).find("200 OK"), std::string::npos) << server->post(path, body);
  const auto as = [&](const std::string& who) { return "etcd://" + who + server->address() + "/job7/"; };
  LiveEngine a(named("a", as("root:r@")));
  LiveEngine b(named("b", as("root:r@")));
  const auto address = a.resolve("b");
  ASSERT_TRUE(address.is_ok()) << address.status().to_string();
  EXPECT_EQ(address.value(), b.address());
  for (const char* const wrong : {"root:w@", "nobody:r@", ""}) {
    LiveEngine refused(named("c", as(wrong)));
    const auto got = refused.resolve("b", kSecond);
    EXPECT_EQ(got.status().code(), ErrorCode::unreachable) << wrong << got.status().to_string();
    EXPECT_NE(got.status().message().find("refused"), std::string::npos) << got.status().to_string();
  }
}

TEST_F(Etcd, AForgedRecordIsRefusedWithAReason) {
  LiveEngine a(named("a", server->url()));
  ASSERT_NE(server->post("/v3/kv/put", R"({"key":"am9iNy9j","value":")" + std::string(120, 'Z') + "\"}").find("200 OK"),
            std::string::npos);  // job7/c
  const auto forged = a.resolve("c");
  EXPECT_EQ(forged.status().code(), ErrorCode::authentication_failed) << forged.status().to_string();
  EXPECT_NE(forged.status().message().find("not signed"), std::string::npos);
}

TEST(EtcdUrl, EachMemberNeedsAHostAndAPort) {
  LiveEngine probe(named("probe", "etcd://127.0.0.1:1"));
  if (probe.open_status.code() == ErrorCode::unsupported) GTEST_SKIP() << probe.open_status.message();
  for (const char* const wrong : {"etcd://", "etcd://host", "etcd://host:", "etcd://:2379", "etcd://a:1,",
                                  "etcd://a:1,,b:2", "etcd://user:password@", "etcd:///prefix"}) {
    LiveEngine engine(named("a", wrong));
    EXPECT_EQ(engine.open_status.code(), ErrorCode::invalid_argument) << wrong;
    EXPECT_NE(engine.open_status.message().find("host:port"), std::string::npos) << engine.open_status.to_string();
    EXPECT_EQ(engine.open_status.message().find("password@:"), std::string::npos) << engine.open_status.to_string();
  }
}

// Whatever the server at the store's address replies, a request must end with an error and without other effects.
TEST(EtcdLies, AreRefusedWithoutHarm) {
  LiveEngine probe(named("probe", "etcd://127.0.0.1:1"));
  if (probe.open_status.code() == ErrorCode::unsupported) GTEST_SKIP() << probe.open_status.message();
  const auto ok = [](const std::string& body) {
    return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  const std::string lies[] = {"-ERR no\r\n",
                              "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{",
                              "HTTP/1.1 400 no\r\n\r\n",
                              ok("{}"),
                              ok("[]"),
                              ok("nonsense"),
                              ok("{\"header\":{},\"kvs\":[{\"value\":\"%%%\"}]}"),
                              ok("{\"header\":{},\"kvs\":[{\"value\":3}]}"),
                              ok("{\"header\":{},\"kvs\":[]}"),
                              ok("{\"header\":{},\"kvs\":3,\"ID\":\"x\"}"),
                              ok("{\"header\":{},\"ID\":7}"),
                              ok("{\"header\":{}}") + ok("{\"header\":{}}"),
                              ok(std::string(70000, '[')),
                              ok(std::string(60000, '[')),
                              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                              "HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\n",
                              "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
                              "HTTP/1.1 500 no\r\nContent-Length: 2\r\n\r\n{}",
                              "HTTP/1.1 401 no\r\nContent-Length: 11\r\n\r\n{\"code\":16}"};
  for (const std::string& lie : lies) {
    const Liar liar(lie);
    LiveEngine engine(named("a", "etcd://" + liar.address()));
    EXPECT_FALSE(engine.resolve("b", 150 * kMillisecond).is_ok()) << lie.substr(0, 100);
  }
}

}  // namespace
}  // namespace fairway::control
