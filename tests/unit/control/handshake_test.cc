#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "control/connection.h"
#include "pipe.h"

namespace fairway::control {
namespace {

class TestRng final : public Rng {
 public:
  void fill(std::span<std::byte> out) override {
    for (auto& byte : out) byte = static_cast<std::byte>(random_());
  }

 private:
  std::mt19937_64 random_{7};
};

struct Handshake : testing::Test {
  TestRng rng;
  Wire left{"the job's key", rng};
  Wire right{"the job's key", rng};
  std::shared_ptr<Wires> wires;
  std::unique_ptr<Connection> dialer;
  std::unique_ptr<Connection> listener;

  void open() {
    wires = std::make_shared<Wires>();
    dialer = std::make_unique<Connection>(left, std::make_unique<PipeEnd>(wires, 0), Role::dialer);
    listener = std::make_unique<Connection>(right, std::make_unique<PipeEnd>(wires, 1), Role::listener);
  }
  // Lets both talk; `meddle` may change what is on its way before it is read.
  void talk(const std::function<void(int way, std::vector<std::byte>& bytes)>& meddle = {}) {
    for (int round = 0; round < 12; ++round) {
      dialer->pump();
      if (meddle) meddle(0, wires->way[0]);
      listener->pump();
      if (meddle) meddle(1, wires->way[1]);
    }
  }
  void greet() {
    Identity identity;
    identity.incarnation = 5;
    identity.timeout_ms = 1000;
    identity.name = "a";
    identity.address = "b:1";
    if (dialer->is_open()) dialer->put(identity);
    if (listener->is_open()) listener->put(identity);
  }
};

TEST_F(Handshake, BothProveTheKeyAndTalk) {
  open();
  talk();
  ASSERT_TRUE(dialer->is_open() && listener->is_open());
  greet();
  talk();
  const auto there = listener->next();
  const auto back = dialer->next();
  ASSERT_TRUE(there && back);
  EXPECT_EQ(there->type, FrameType::identity);
  EXPECT_EQ(Identity::read(back->body)->name, "a");
}

TEST_F(Handshake, WithoutAnyKeyItOpens) {
  Wire none("", rng);
  wires = std::make_shared<Wires>();
  dialer = std::make_unique<Connection>(none, std::make_unique<PipeEnd>(wires, 0), Role::dialer);
  listener = std::make_unique<Connection>(none, std::make_unique<PipeEnd>(wires, 1), Role::listener);
  talk();
  EXPECT_TRUE(dialer->is_open() && listener->is_open());
}

TEST_F(Handshake, AKeyOnOneSideOnlyIsRefused) {
  Wire none("", rng);
  wires = std::make_shared<Wires>();
  dialer = std::make_unique<Connection>(none, std::make_unique<PipeEnd>(wires, 0), Role::dialer);
  listener = std::make_unique<Connection>(right, std::make_unique<PipeEnd>(wires, 1), Role::listener);
  talk();
  EXPECT_EQ(dialer->failure().code(), ErrorCode::authentication_failed);
  EXPECT_EQ(listener->failure().code(), ErrorCode::authentication_failed);
}

TEST_F(Handshake, ADifferentKeyIsRefusedWithAReasonOnBothSides) {
  Wire other("another key", rng);
  wires = std::make_shared<Wires>();
  dialer = std::make_unique<Connection>(other, std::make_unique<PipeEnd>(wires, 0), Role::dialer);
  listener = std::make_unique<Connection>(right, std::make_unique<PipeEnd>(wires, 1), Role::listener);
  talk();
  for (const auto& status : {dialer->failure(), listener->failure()}) {
    EXPECT_EQ(status.code(), ErrorCode::authentication_failed);
    EXPECT_NE(status.message().find("job_key"), std::string::npos) << status.message();
  }
}

TEST_F(Handshake, NoCommonVersionNamesBothRanges) {
  left.versions = {3, 5};
  right.versions = {1, 2};
  open();
  talk();
  for (const auto& status : {dialer->failure(), listener->failure()}) {
    EXPECT_EQ(status.code(), ErrorCode::version_mismatch);
    EXPECT_NE(status.message().find("3 to 5"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("1 to 2"), std::string::npos) << status.message();
  }
}

TEST_F(Handshake, OverlappingVersionsMeetAtTheHighestCommon) {
  EXPECT_EQ(common_version({1, 4}, {2, 9}).value(), 4);
  EXPECT_EQ(common_version({2, 9}, {1, 4}).value(), 4);
  EXPECT_FALSE(common_version({1, 1}, {2, 2}).is_ok());
}

TEST_F(Handshake, AStrangerGetsNothingBeforeAWholeHello) {
  open();
  wires->way[0].clear();
  std::vector<std::byte> part(kHelloSize - 1, std::byte{'F'});
  wires->way[0] = part;
  listener->pump();
  EXPECT_EQ(wires->carried[1], 0U);
  EXPECT_TRUE(listener->failure().is_ok());
  wires->way[0].assign(1, std::byte{0});
  listener->pump();
  EXPECT_EQ(listener->failure().code(), ErrorCode::protocol_error);
  EXPECT_EQ(wires->carried[1], 0U) << "who does not say hello is not answered";
}

TEST_F(Handshake, OfAStrangerNoMoreThanTheHelloIsRead) {
  open();
  dialer->pump();
  wires->way[0].resize(1 << 20);  // a hello and a megabyte
  listener->pump();
  EXPECT_GE(wires->way[0].size(), (1U << 20) - kHelloSize - sizeof(Mac));
}

TEST_F(Handshake, OnesOwnHelloSentBackIsRefused) {
  wires = std::make_shared<Wires>();
  dialer = std::make_unique<Connection>(left, std::make_unique<PipeEnd>(wires, 0), Role::dialer);
  dialer->pump();
  auto mirrored = wires->way[0];
  wires->way[1] = mirrored;  // as it is: for the wrong end
  dialer->pump();
  EXPECT_EQ(dialer->failure().code(), ErrorCode::protocol_error);

  open();
  dialer->pump();
  mirrored = wires->way[0];
  mirrored[12] = static_cast<std::byte>(Role::listener);  // with the role turned
  wires->way[1] = mirrored;
  dialer->pump();
  EXPECT_EQ(dialer->failure().code(), ErrorCode::authentication_failed);
}

// A man in the middle passes a dialer's proof on as his own, and the other way round: roles are part of the proofs.
TEST_F(Handshake, AProofIsGoodForOneRoleAndOneConnectionOnly) {
  open();
  talk();
  ASSERT_TRUE(listener->is_open());
  std::vector<std::byte> hello;
  std::vector<std::byte> proof;
  open();
  dialer->pump();
  hello = wires->way[0];
  listener->pump();
  dialer->pump();
  proof = wires->way[0];
  ASSERT_EQ(proof.size(), sizeof(Mac));
  open();  // the same hello and proof on a new connection: the listener's nonce is another one
  dialer->pump();
  wires->way[0] = hello;
  listener->pump();
  wires->way[0] = proof;
  listener->pump();
  EXPECT_EQ(listener->failure().code(), ErrorCode::authentication_failed);
}

// Whatever bit of the handshake is changed, no connection opens on both sides, and no wrong frame is believed.
TEST_F(Handshake, AnyChangedBitIsNoticed) {
  open();
  talk();
  const std::size_t total[2] = {wires->carried[0], wires->carried[1]};
  for (int way = 0; way < 2; ++way)
    for (std::size_t bit = 0; bit < total[way] * 8; ++bit) {
      open();
      std::size_t seen = 0;
      bool done = false;
      talk([&](int direction, std::vector<std::byte>& bytes) {
        if (direction != way || done) return;
        if (bit / 8 < seen + bytes.size()) {
          bytes[bit / 8 - seen] ^= static_cast<std::byte>(1U << bit % 8);
          done = true;
        }
        seen += bytes.size();
      });
      greet();
      talk();
      const bool reserved = way == 1 && bit >= (kHelloSize + 1) * 8 && bit < (kHelloSize + 4) * 8;  // after the verdict
      ASSERT_TRUE(reserved || !(dialer->next() && listener->next())) << "way " << way << " bit " << bit;
    }
}

TEST_F(Handshake, ALossOrRepetitionOfAFrameEndsTheConnection) {
  for (const bool repeat : {false, true}) {
    open();
    talk();
    dialer->put(Ack{1});
    dialer->flush();
    const auto first = wires->way[0];
    if (repeat) wires->way[0].insert(wires->way[0].end(), first.begin(), first.end());
    if (!repeat) wires->way[0].clear();
    dialer->put(Ack{2});
    dialer->flush();
    listener->pump();
    int frames = 0;
    while (listener->next()) ++frames;
    EXPECT_EQ(frames, repeat ? 1 : 0);
    EXPECT_EQ(listener->failure().code(), ErrorCode::checksum_mismatch);
  }
}

TEST_F(Handshake, AFrameSentBackIsNotBelieved) {
  open();
  talk();
  dialer->put(Ack{1});
  dialer->flush();
  wires->way[1] = wires->way[0];
  wires->way[0].clear();
  dialer->pump();
  EXPECT_FALSE(dialer->next());
  EXPECT_EQ(dialer->failure().code(), ErrorCode::checksum_mismatch);
}

TEST_F(Handshake, AFrameThatClaimsTooMuchEndsTheConnectionBeforeItIsBuffered) {
  open();
  talk();
  std::vector<std::byte> lie(kHeaderSize);
  ByteWriter(lie).put(std::uint32_t{0x7fffffff}).put(static_cast<std::uint8_t>(FrameType::message));
  wires->way[0] = lie;
  listener->pump();
  EXPECT_FALSE(listener->next());
  EXPECT_EQ(listener->failure().code(), ErrorCode::protocol_error);
}

}  // namespace
}  // namespace fairway::control
