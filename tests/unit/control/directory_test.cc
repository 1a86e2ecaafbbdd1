#include "control/directory.h"

#include "control/directory_server.h"
#include "engine.h"

namespace fairway::control {
namespace {

Options named(const std::string& name, const std::string& directory) {
  Options options;
  options.name = name;
  options.directory = directory;
  options.job_key = "the job's key";
  return options;
}

TEST(Directory, EnginesFindEachOtherByName) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  ASSERT_TRUE(first.open_status.is_ok()) << first.open_status.to_string();
  TestEngine decode(world, named("decode-3", first.control->address()));
  TestEngine prefill(world, named("prefill-0", first.control->address()));
  const auto address = prefill.resolve("decode-3");
  ASSERT_TRUE(address.is_ok()) << address.status().to_string();
  EXPECT_EQ(address.value(), decode.control->address());
  EXPECT_EQ(first.resolve("prefill-0").value(), prefill.control->address());
  EXPECT_EQ(decode.resolve("first").value(), first.control->address());
  EXPECT_TRUE(first.up.empty()) << "asking the directory makes no session";
}

TEST(Directory, ANameThatComesLaterIsWaitedFor) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  ASSERT_TRUE(first.control->resolve("late", 1, 5 * kSecond).is_ok());
  world.run(kSecond);
  EXPECT_TRUE(first.resolved.empty());
  TestEngine late(world, named("late", first.control->address()));
  ASSERT_TRUE(world.run_until([&] { return !first.resolved.empty(); }, kSecond));
  EXPECT_EQ(first.resolved.at(1).value(), late.control->address());
}

TEST(Directory, AnUnknownNameFailsTypedAtItsTimeout) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  const Time start = world.now();
  const auto answer = first.resolve("nobody", 700 * kMillisecond);
  EXPECT_EQ(answer.status().code(), ErrorCode::not_found) << answer.status().to_string();
  EXPECT_NEAR(static_cast<double>(world.now() - start), 7e8, 1e7);
}

TEST(Directory, WithoutOneResolvingSaysWhatToSet) {
  FakeWorld world;
  TestEngine lonely(world);
  const auto answer = lonely.resolve("x");
  EXPECT_EQ(answer.status().code(), ErrorCode::invalid_argument);
  EXPECT_NE(answer.status().message().find("Options::directory"), std::string::npos);
}

TEST(Directory, AnOrderlyCloseWithdrawsTheName) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  {
    TestEngine gone(world, named("gone", first.control->address()));
    ASSERT_TRUE(first.resolve("gone").is_ok());
    gone.control->close();
  }
  EXPECT_EQ(first.resolve("gone", 100 * kMillisecond).status().code(), ErrorCode::not_found);
}

TEST(Directory, AKilledEnginesNameExpires) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  TestEngine dead(world, named("dead", first.control->address()));
  world.run(30 * kSecond);
  ASSERT_TRUE(first.resolve("dead").is_ok()) << "renewed while it lives";
  dead.node.kill();
  world.run(11 * kSecond);
  EXPECT_EQ(first.resolve("dead", 100 * kMillisecond).status().code(), ErrorCode::not_found);
}

TEST(Directory, ARestartedEngineTakesItsNameBack) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  TestEngine old(world, named("worker", first.control->address()));
  ASSERT_TRUE(first.resolve("worker").is_ok());
  old.node.kill();
  world.run(10 * kMillisecond);
  TestEngine young(world, named("worker", first.control->address()));
  world.run(100 * kMillisecond);
  EXPECT_EQ(first.resolve("worker").value(), young.control->address());
}

TEST(Directory, OfTwoLivingEnginesTheLaterHasTheName) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  TestEngine old(world, named("twin", first.control->address()));
  world.run(100 * kMillisecond);
  TestEngine young(world, named("twin", first.control->address()));
  world.run(20 * kSecond);
  EXPECT_EQ(first.resolve("twin").value(), young.control->address());
  EXPECT_EQ(old.publications.back().code(), ErrorCode::already_exists);
  EXPECT_TRUE(young.publications.back().is_ok());
}

TEST(Directory, AnOutageIsSurvivedAndRecordsAreBackAfterIt) {
  FakeWorld world;
  Options served = named("first", "serve");
  served.listen = "127.0.0.1:6000";
  auto first = std::make_unique<TestEngine>(world, served);
  TestEngine a(world, named("a", "127.0.0.1:6000"));
  TestEngine b(world, named("b", "127.0.0.1:6000"));
  ASSERT_TRUE(a.connect(a.resolve("b").value()).is_ok());
  first->node.kill();
  world.run(kSecond);
  const auto during = a.resolve("b", 500 * kMillisecond);
  EXPECT_EQ(during.status().code(), ErrorCode::unreachable) << during.status().to_string();
  EXPECT_NE(during.status().message().find("127.0.0.1:6000"), std::string::npos) << during.status().message();
  EXPECT_TRUE(a.down.empty()) << "sessions do not care";
  TestEngine again(world, served);
  world.run(3 * kSecond);
  EXPECT_EQ(again.resolve("b", kSecond).value(), b.control->address()) << "published again";
  EXPECT_EQ(a.resolve("b", kSecond).value(), b.control->address());
}

TEST(Directory, AnEngineThatServesNoneSaysSo) {
  FakeWorld world;
  TestEngine plain(world, named("plain", ""));
  TestEngine asks(world, named("asks", plain.control->address()));
  const auto answer = asks.resolve("x", kSecond);
  EXPECT_EQ(answer.status().code(), ErrorCode::unsupported) << answer.status().to_string();
}

TEST(Directory, AWrongKeyIsRefused) {
  FakeWorld world;
  TestEngine first(world, named("first", "serve"));
  Options other = named("other", first.control->address());
  other.job_key = "not the job's key";
  TestEngine asks(world, other);
  const auto answer = asks.resolve("first", kSecond);
  EXPECT_EQ(answer.status().code(), ErrorCode::authentication_failed) << answer.status().to_string();
}

struct Records : testing::Test {
  JobKey key{"the job's key"};
  const std::uint64_t now = 1'700'000'000'000'000'000U;
  Record record{"decode-3", "10.0.0.7:4000", 77, now, now / 1'000'000 + 10'000};
};

TEST_F(Records, SurviveTheWayThere) {
  const auto bytes = encode_record(key, record);
  ASSERT_TRUE(bytes.is_ok());
  const auto back = decode_record(key, bytes.value(), now);
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(back->name, record.name);
  EXPECT_EQ(back->address, record.address);
  EXPECT_EQ(back->incarnation, record.incarnation);
  EXPECT_EQ(back->started_unix_ns, record.started_unix_ns);
  EXPECT_LE(bytes->size(), kMaxRecord);
}

TEST_F(Records, AForgedOneIsRefusedWithAReason) {
  const std::string bytes = encode_record(key, record).value();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    ASSERT_EQ(decode_record(key, changed, now).status().code(), ErrorCode::authentication_failed) << bit;
  }
  JobKey other("another key");
  const auto forged = decode_record(key, encode_record(other, record).value(), now);
  EXPECT_EQ(forged.status().code(), ErrorCode::authentication_failed);
  EXPECT_NE(forged.status().message().find("not signed"), std::string::npos);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_record(key, bytes.substr(0, size), now).is_ok());
}

TEST_F(Records, ExpireAndToleratesASmallSkewOfClocks) {
  const std::string bytes = encode_record(key, record).value();
  EXPECT_TRUE(decode_record(key, bytes, now + 14'000'000'000U).is_ok());
  EXPECT_EQ(decode_record(key, bytes, now + 16'000'000'000U).status().code(), ErrorCode::not_found);
}

TEST_F(Records, TheLongestNamesFit) {
  record.name = std::string(255, 'n');
  record.address = std::string(255, 'a');
  EXPECT_TRUE(encode_record(key, record).is_ok());
  record.name += 'n';
  EXPECT_EQ(encode_record(key, record).status().code(), ErrorCode::invalid_argument);
}

TEST_F(Records, ATableIsBounded) {
  DirectoryTable table(key);
  EXPECT_EQ(table.publish("nonsense", now).code(), ErrorCode::protocol_error);
  ASSERT_TRUE(table.publish(encode_record(key, record).value(), now).is_ok());
  Record older = record;
  older.started_unix_ns -= 1;
  EXPECT_EQ(table.publish(encode_record(key, older).value(), now).code(), ErrorCode::already_exists);
  EXPECT_EQ(table.withdraw("decode-3", started_text(older.started_unix_ns)).code(), ErrorCode::already_exists);
  EXPECT_TRUE(table.withdraw("decode-3", started_text(record.started_unix_ns)).is_ok());
  EXPECT_EQ(table.size(), 0U);
}

}  // namespace
}  // namespace fairway::control
