#include <random>

#include "control/directory.h"
#include "control/frame.h"
#include "engine.h"
#include "scripted_peer.h"

namespace fairway::control {
namespace {

// An engine, an honest peer of it, and one that lies.
struct Lies : testing::Test {
  FakeWorld world;
  Options options;
  std::unique_ptr<TestEngine> engine;
  std::unique_ptr<TestEngine> honest;
  std::unique_ptr<ScriptedPeer> liar;

  void SetUp() override {
    options.job_key = "k";
    options.directory = "serve";
    engine = std::make_unique<TestEngine>(world, options);
    options.directory.clear();
    honest = std::make_unique<TestEngine>(world, options);
    ASSERT_TRUE(honest->connect(engine->control->address()).is_ok());
    liar = std::make_unique<ScriptedPeer>(world, "k");
  }
  void TearDown() override {
    EXPECT_EQ(honest->up.size(), 1U) << "an honest peer suffered";
    ASSERT_TRUE(honest->send(honest->last_up, "fine?").is_ok());
    const std::size_t before = engine->messages.size();
    EXPECT_TRUE(world.run_until([&] { return engine->messages.size() > before; }, kSecond));
  }
  // What one frame of an established session leads to.
  ErrorCode end_after(FrameType type, std::span<const std::byte> body) {
    EXPECT_TRUE(liar->join(engine->control->address()));
    EXPECT_EQ(engine->up.size(), 2U);
    const std::size_t before = engine->down.size();
    liar->connection().put(type, body);
    liar->turn();
    liar->turn();
    ++liar->incarnation;
    return engine->down.size() > before ? engine->down.back().second.code() : ErrorCode::ok;
  }
  template <class Body>
  ErrorCode end_after(const Body& body) {
    std::array<std::byte, kMaxBody> bytes;
    ByteWriter out(bytes);
    body.write(out);
    return end_after(Body::kType, out.written());
  }
};

TEST_F(Lies, AMessageOutOfSequenceEndsTheSession) {
  const std::array<std::byte, 3> text{};
  for (const std::uint64_t sequence : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    EXPECT_EQ(end_after(Message{sequence, 0, text}), ErrorCode::protocol_error) << sequence;
    EXPECT_EQ(engine->messages.size(), 0U);
  }
}

TEST_F(Lies, AcknowledgingWhatWasNeverSentEndsTheSession) {
  for (const std::uint64_t ack : {std::uint64_t{1}, std::uint64_t{100}, ~std::uint64_t{0}}) {
    EXPECT_EQ(end_after(Ack{ack}), ErrorCode::protocol_error) << ack;
    EXPECT_EQ(end_after(Message{1, ack, {}}), ErrorCode::protocol_error) << ack;
    EXPECT_EQ(end_after(Beat{ack, 0, false}), ErrorCode::protocol_error) << ack;
  }
}

TEST_F(Lies, FramesThatDoNotBelongIntoASessionEndIt) {
  for (const FrameType type : {FrameType::identity, FrameType::accept, FrameType::refuse, FrameType::publish,
                               FrameType::withdraw, FrameType::lookup, FrameType::answer})
    EXPECT_EQ(end_after(type, {}), ErrorCode::protocol_error) << static_cast<int>(type);
}

TEST_F(Lies, BodiesOfTheWrongSizeEndTheSession) {
  const std::vector<std::byte> long_body(kMaxBody);
  for (const FrameType type : {FrameType::message, FrameType::ack, FrameType::beat, FrameType::goodbye}) {
    EXPECT_EQ(end_after(type, {}), ErrorCode::protocol_error) << static_cast<int>(type);
    EXPECT_EQ(end_after(type, long_body), ErrorCode::protocol_error) << static_cast<int>(type);
  }
}

TEST_F(Lies, ALongGoodbyeIsCutOutOfTheWay) {
  EXPECT_EQ(end_after(Goodbye{Reason::closed, std::string(512, '\n')}), ErrorCode::closed);
  EXPECT_EQ(engine->down.back().second.message().find('\n'), std::string::npos) << "it ends in logs";
  EXPECT_EQ(end_after(Goodbye{static_cast<Reason>(99), "x"}), ErrorCode::protocol_error);
}

TEST_F(Lies, AnImpossibleIdentityIsRefused) {
  const auto refused_with = [&](const std::function<void(Identity&)>& change) {
    EXPECT_TRUE(liar->dial(engine->control->address()));
    Identity identity = liar->identity(Intent::connect);
    change(identity);
    liar->connection().put(identity);
    EXPECT_EQ(liar->read(), FrameType::identity);  // the engine's own
    EXPECT_EQ(liar->read(), FrameType::refuse);
    const auto refuse = Refuse::read(liar->body);
    return refuse ? refuse->reason : Reason::closed;
  };
  EXPECT_EQ(refused_with([](Identity& id) { id.incarnation = 0; }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.session = 0; }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.timeout_ms = 0; }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.name.clear(); }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.name = "a\x1b[2J"; }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.address.clear(); }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.intent = static_cast<Intent>(9); }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.intent = Intent::none; }), Reason::protocol_error);
  EXPECT_EQ(refused_with([](Identity& id) { id.intent = Intent::resume; }), Reason::stale) << "a session nobody knows";
  EXPECT_EQ(engine->up.size(), 1U);
}

TEST_F(Lies, ResumingWithAFalseCountEndsTheSession) {
  ASSERT_TRUE(liar->join(engine->control->address()));
  ASSERT_TRUE(liar->dial(engine->control->address()));
  Identity identity = liar->identity(Intent::resume);
  identity.received = 1000;  // of nothing
  identity.stamp = 2;
  liar->connection().put(identity);
  liar->turn();
  liar->turn();
  ASSERT_EQ(engine->down.size(), 1U);
  EXPECT_EQ(engine->down[0].second.code(), ErrorCode::protocol_error);
}

// Each of its messages is to be acknowledged.
TEST_F(Lies, WhoWritesAndDoesNotReadCostsNoMemory) {
  ASSERT_TRUE(liar->join(engine->control->address()));
  const std::array<std::byte, 3> text{};
  const std::size_t whole = world.segment;
  std::uint64_t sequence = 1;
  while (sequence < 32'000) {
    for (int i = 0; i < 16; ++i) liar->connection().put(Message{sequence++, 0, text});
    liar->connection().flush();
    world.segment = 0;  // no socket takes anything
    world.run(200 * kMicrosecond);
    world.segment = whole;
    engine->messages.clear();
  }
  std::size_t waited = 0;
  world.on_the_way = [&](const std::string&, std::vector<std::byte>& bytes) {
    waited += bytes.size();
    return true;
  };
  liar->connection().put(Message{sequence, 0, text});  // the engine steps
  liar->connection().flush();
  world.run(20 * kMillisecond);
  world.on_the_way = nullptr;
  EXPECT_EQ(engine->up.size(), 2U);
  EXPECT_LT(waited, 32 * 1024U);
}

// Not a lie: a proposal whose connection was slower than the next try's.
TEST_F(Lies, AProposalThatWasOvertakenChangesNothing) {
  ScriptedPeer slow(world, "k");
  ASSERT_TRUE(slow.dial(engine->control->address()));
  liar->stamp = 2;
  ASSERT_TRUE(liar->join(engine->control->address()));
  const SessionId session = engine->last_up;
  ASSERT_TRUE(engine->send(session, "one").is_ok());
  ASSERT_EQ(liar->read(), FrameType::message);
  liar->connection().put(Ack{1});
  liar->turn();
  slow.connection().put(slow.identity(Intent::connect));
  ASSERT_EQ(slow.read(), FrameType::identity);
  ASSERT_EQ(slow.read(), FrameType::refuse);
  EXPECT_EQ(Refuse::read(slow.body)->reason, Reason::crossed);
  ASSERT_TRUE(engine->send(session, "two").is_ok());
  EXPECT_EQ(liar->read(), FrameType::message);
  EXPECT_TRUE(engine->down.empty());
}

// One that proves itself, too: it has a second for all of the handshake.
TEST_F(Lies, AStrangerThatSaysNoMoreIsLetGoAfterASecond) {
  ASSERT_TRUE(liar->dial(engine->control->address()));
  const std::size_t open = world.open_ends;
  world.run(900 * kMillisecond);
  EXPECT_EQ(world.open_ends, open);
  world.run(200 * kMillisecond);
  EXPECT_EQ(world.open_ends, open - 1);
}

// The same session, asked for on a connection that was slower than the one that carries it by now.
TEST_F(Lies, AConnectionFromBeforeDoesNotTakeASessionOver) {
  liar->stamp = 5;
  ASSERT_TRUE(liar->join(engine->control->address()));
  ASSERT_EQ(engine->up.size(), 2U);
  ScriptedPeer earlier(world, "k");
  earlier.incarnation = liar->incarnation;
  earlier.stamp = 4;
  for (const Intent intent : {Intent::resume, Intent::connect}) {
    ASSERT_TRUE(earlier.dial(engine->control->address()));
    earlier.connection().put(earlier.identity(intent));
    std::optional<FrameType> answer;
    for (int i = 0; i < 20 && answer != FrameType::refuse && answer != FrameType::accept; ++i) answer = earlier.read();
    EXPECT_EQ(answer, FrameType::refuse);
    EXPECT_EQ(engine->down.size(), 0U);
  }
}

TEST_F(Lies, AnAbsurdHeartbeatWishCostsNothing) {
  ASSERT_TRUE(liar->dial(engine->control->address()));
  Identity identity = liar->identity(Intent::connect);
  identity.timeout_ms = 1;
  liar->connection().put(identity);
  liar->turn();
  const auto steps = world.steps;
  world.run(kSecond);
  EXPECT_LT(world.steps - steps, 400U);
}

TEST_F(Lies, ADirectoryRefusesNonsense) {
  ASSERT_TRUE(liar->join(engine->control->address(), Intent::directory));
  liar->connection().put(Publish{9, std::string(200, 'r')});
  ASSERT_EQ(liar->read(), FrameType::answer);
  EXPECT_EQ(Answer::read(liar->body)->verdict, Verdict::refused);
  liar->connection().put(Lookup{10, "nobody"});
  ASSERT_EQ(liar->read(), FrameType::answer);
  EXPECT_EQ(Answer::read(liar->body)->verdict, Verdict::absent);
  liar->connection().put(Message{1, 0, {}});
  liar->turn();
  liar->turn();
  EXPECT_FALSE(liar->connection().failure().is_ok()) << "closed";
}

template <class Body>
void mutate(const Body& sample) {
  std::array<std::byte, kMaxBody> bytes;
  ByteWriter out(bytes);
  sample.write(out);
  const std::vector<std::byte> valid(out.written().begin(), out.written().end());
  const auto same_again = [](std::span<const std::byte> body) {
    const auto parsed = Body::read(body);
    if (!parsed) return;
    std::array<std::byte, kMaxBody> again;
    ByteWriter writer(again);
    parsed->write(writer);
    EXPECT_TRUE(Body::read(writer.written()).is_ok()) << "what is read can be written and read";
  };
  ASSERT_TRUE(Body::read(valid).is_ok());
  for (std::size_t size = 0; size < valid.size(); ++size) same_again(std::span(valid).first(size));
  for (std::size_t at = 0; at < valid.size(); ++at)
    for (const int value : {0, 1, 2, 0x7f, 0x80, 0xfe, 0xff}) {
      auto changed = valid;
      changed[at] = static_cast<std::byte>(value);
      same_again(changed);
    }
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    auto changed = valid;
    for (int i = 0; i < 4 && !changed.empty(); ++i)
      changed[random() % changed.size()] = static_cast<std::byte>(random());
    if (round % 3 == 0) changed.resize(random() % kMaxBody);
    same_again(changed);
  }
}

TEST(Parsers, TakeAnyBytes) {
  Identity identity;
  identity.incarnation = identity.session = identity.received = identity.stamp = 3;
  identity.timeout_ms = 2000;
  identity.intent = Intent::connect;
  identity.name = "decode-3";
  identity.address = "10.0.0.7:4000";
  mutate(identity);
  mutate(Accept{1, 2, 3});
  mutate(Refuse{Reason::full, "full"});
  mutate(Goodbye{Reason::closed, "closed"});
  const std::array<std::byte, 40> bytes{};
  mutate(Message{1, 2, bytes});
  mutate(Ack{7});
  mutate(Beat{7, 8, true});
  mutate(Publish{1, std::string(150, 'r')});
  mutate(Withdraw{1, "decode-3", std::string(kStartedText, '0')});
  mutate(Lookup{1, "decode-3"});
  mutate(Answer{1, Verdict::done, "record"});
}

TEST(Parsers, ASignedRecordOfAnyContentIsParsedOrRefused) {
  JobKey key("k");
  std::mt19937_64 random(5);
  const std::string valid = encode_record(key, {"n", "a:1", 1, 2, ~std::uint64_t{0} / 4}).value();
  for (int round = 0; round < 5000; ++round) {
    std::string content = valid.substr(0, valid.size() - sizeof(Mac));
    for (int i = 0; i < 3; ++i) content[random() % content.size()] = static_cast<char>(random());
    if (round % 4 == 0) content.resize(random() % content.size());
    const auto mac = key.derive(kRecordProof, {std::as_bytes(std::span(content.data(), content.size()))});
    content.append(reinterpret_cast<const char*>(mac->data()), mac->size());
    const auto record = decode_record(key, content, 0);
    EXPECT_TRUE(!record || encode_record(key, record.value()).is_ok());
  }
}

}  // namespace
}  // namespace fairway::control
