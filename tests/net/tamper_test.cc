#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "net/between.h"

// Bytes that are changed, cut off or held back between two engines, at a place that is known.
namespace fairway::net {
namespace {

using transport::tcp::FrameType;
using transport::tcp::kHeaderBytes;

class Tamper : public Between {
 protected:
  // Alone on its way, so that its outcome is its own.
  Status write_summed(std::uint64_t length = kBytes) {
    RequestOptions options;
    options.checksum = true;
    return near_->finish(near_->write(length, options));
  }
  std::uint64_t link_failures() {
    std::uint64_t sum = 0;
    for (const LinkMetrics& link : near_->links(false)) sum += link.failures;
    return sum;
  }
};

TEST_F(Tamper, AProxyThatDoesNothingIsNotNoticed) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->verify(*far_, 1);
  EXPECT_EQ(proxy_->connections(), 3U) << "control and two lanes, all through the proxy";
  EXPECT_EQ(link_failures(), 0U);
}

TEST_F(Tamper, AFlippedByteOfAWriteIsCaughtByItsChecksumAndByNothingElse) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->fill(7);
  const FrameAim payload{Deed::flip, FrameType::write, 64 * 1024, kHeaderBytes + 33'333, 0x10};
  meddler->arm(payload);
  const Status caught = write_summed();
  ASSERT_TRUE(meddler->done());
  EXPECT_EQ(caught.code(), ErrorCode::checksum_mismatch) << caught.to_string();
  meddler->arm(payload);
  EXPECT_TRUE(near_->finish(near_->write(kBytes))) << "not asked for: the wire has no sum of its own";
  ASSERT_TRUE(meddler->done());
  EXPECT_NE(far_->check(7, kBytes), "") << "the byte was flipped indeed";
  EXPECT_EQ(far_->check_surroundings(), "");
  EXPECT_TRUE(write_summed());
  EXPECT_EQ(far_->check(7, kBytes), "");
}

TEST_F(Tamper, AFlippedByteOfAReadIsCaughtByItsChecksum) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->fill(7);
  ASSERT_TRUE(write_summed());
  RequestOptions options;
  options.checksum = true;
  meddler->arm({Deed::flip, FrameType::data, 64 * 1024, kHeaderBytes + 55'555, 0x80});
  const Status caught = near_->finish(near_->read(kBytes, options));
  ASSERT_TRUE(meddler->done());
  EXPECT_EQ(caught.code(), ErrorCode::checksum_mismatch) << caught.to_string();
  EXPECT_TRUE(near_->finish(near_->read(kBytes, options)));
  EXPECT_EQ(std::memcmp(near_->ours.address, near_->back.address, kBytes), 0);
}

// One bit of one field of a header: its sum notices, the lane is given up, and the transfer is done over another.
struct Field {
  const char* name;
  FrameType type;
  std::uint64_t byte;
  std::uint8_t mask;
};

void PrintTo(const Field& field, std::ostream* out) {
  *out << field.name;
}

class Header : public Tamper, public testing::WithParamInterface<Field> {};

TEST_P(Header, AFlippedBitCostsTheLaneAndNothingElse) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->fill(7);
  const Field& field = GetParam();
  const std::uint64_t payload = field.type == FrameType::write ? 64 * 1024 : 0;
  meddler->arm({Deed::flip, field.type, payload, field.byte, field.mask});
  const Status status = write_summed();
  ASSERT_TRUE(meddler->done());
  EXPECT_EQ(far_->check_surroundings(), "");
  EXPECT_TRUE(status && link_failures() > 0) << status.to_string();
  EXPECT_EQ(status ? far_->check(7, kBytes) : "", "");
  const Status met = meet_again();
  ASSERT_TRUE(met) << met.to_string();
  near_->verify(*far_, 8);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Header,
    testing::Values(Field{"type", FrameType::write, 0, 0x40}, Field{"flags", FrameType::write, 1, 0x80},
                    Field{"reserved", FrameType::write, 2, 0x01}, Field{"token", FrameType::write, 7, 0x40},
                    Field{"slot", FrameType::write, 9, 0x40}, Field{"generation", FrameType::write, 13, 0x40},
                    Field{"offset_inside", FrameType::write, 16, 0x40},
                    Field{"offset_outside", FrameType::write, 21, 0x01},
                    Field{"length_longer", FrameType::write, 25, 0x02},
                    Field{"length_impossible", FrameType::write, 28, 0x01},
                    Field{"immediate", FrameType::write, 32, 0x01}, Field{"count", FrameType::write, 36, 0x02},
                    Field{"token_of_done", FrameType::done, 7, 0x40}, Field{"code_of_done", FrameType::done, 32, 0x01},
                    Field{"unknown_code_of_done", FrameType::done, 33, 0x01}),
    [](const auto& row) { return std::string(row.param.name); });

// So it is with the engines' own records, which are messages, and with the table of a page list.
TEST_F(Tamper, ARecordThatIsChangedCostsItsLaneAndNothingElse) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->fill(7);
  RequestOptions options;
  options.checksum = true;  // asked for by a record
  constexpr std::uint64_t kToken = kHeaderBytes + 5;
  for (int i = 0; i < 3; ++i) {
    meddler->arm({Deed::flip, FrameType::message, 0, kToken, 0x01});
    const Status status = near_->finish(near_->write(4096, options));
    ASSERT_TRUE(meddler->done());
    EXPECT_TRUE(status) << i << ": " << status.to_string();
    EXPECT_GT(link_failures(), 0u);
    const Status met = meet_again();
    ASSERT_TRUE(met) << met.to_string();
  }
  EXPECT_EQ(far_->check_surroundings(), "");
  near_->verify(*far_, 8);
}

TEST_F(Tamper, AChangedBlockTableCostsItsLaneAndNothingElse) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->fill(7);
  constexpr std::uint64_t kPage = 4096, kPages = 64;
  std::vector<std::uint64_t> index(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) index[i] = i;
  meddler->arm({Deed::flip, FrameType::write, kPage * kPages, kHeaderBytes + 8 * 5 + 1, 0x10});
  const Status status = near_->finish(
      near_->engine->write(near_->peer, Paged{near_->ours.id, near_->remote.id, kPage, kPage, kPage, index, index}));
  ASSERT_TRUE(meddler->done());
  EXPECT_TRUE(status && link_failures() > 0) << status.to_string();
  EXPECT_EQ(far_->check_surroundings(), "");
  EXPECT_EQ(far_->check(7, kPage * kPages), "");
}

// ---- cut and held back ----

TEST_F(Tamper, ALaneCutInTheMiddleOfAFrameCostsNoTransfer) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->fill(7);
  for (const std::uint64_t byte : {std::uint64_t{11}, kHeaderBytes + 40'000, std::uint64_t{kHeaderBytes}}) {
    meddler->arm({Deed::cut, FrameType::write, 64 * 1024, byte});
    const Status status = write_summed();
    EXPECT_TRUE(status) << status.to_string();
    ASSERT_TRUE(meddler->done()) << byte;
    EXPECT_EQ(far_->check(7, kBytes), "");
  }
  EXPECT_EQ(link_failures(), 3U);
  meddler->arm({Deed::cut, FrameType::data, 64 * 1024, kHeaderBytes + 40'000});
  EXPECT_TRUE(near_->finish(near_->read(kBytes)));
  ASSERT_TRUE(meddler->done());
  EXPECT_EQ(std::memcmp(near_->ours.address, near_->back.address, kBytes), 0);
  near_->verify(*far_, 8);
}

TEST_F(Tamper, ALaneThatIsHeldBackIsGivenUpAtTheBoundAndItsWorkMoves) {
  const auto meddler = std::make_shared<InFrame>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  near_->fill(7);
  meddler->arm({Deed::stall, FrameType::write, 64 * 1024, kHeaderBytes + 40'000});
  const auto start = std::chrono::steady_clock::now();
  const Status status = write_summed();
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(status) << status.to_string();
  ASSERT_TRUE(meddler->done());
  EXPECT_EQ(link_failures(), 1U);
  EXPECT_GE(took, kBound);
  EXPECT_LT(took, 6 * kBound);
  EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0)));
  proxy_->release();  // what was held back comes now, over a connection that nobody reads any more
  near_->verify(*far_, 8);
}

TEST_F(Tamper, ControlThatIsHeldBackIsAPeerThatDiedAtTheBound) {
  const auto meddler = std::make_shared<AtByte>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  meddler->arm({Deed::stall, true, false, 0, 0});
  const auto start = std::chrono::steady_clock::now();
  const auto down = near_->next(PeerEvent::Kind::down);
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(down && meddler->done());
  EXPECT_EQ(down->reason.code(), ErrorCode::peer_dead) << down->reason.to_string();
  EXPECT_LT(took, 4 * kBound);
  proxy_->release();
  const Status met = meet_again();
  ASSERT_TRUE(met) << met.to_string();
  near_->verify(*far_, 8);
}

// Each frame of control is authenticated: whatever is changed or cut off ends the connection, and the session goes on
// over another one.
TEST_F(Tamper, ControlThatIsChangedOrCutOffResumesAndNothingIsLost) {
  const auto meddler = std::make_shared<AtByte>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  std::uint64_t connections = proxy_->connections();
  for (const bool to_listener : {true, false})
    for (const Deed deed : {Deed::flip, Deed::cut})
      for (const std::uint64_t byte : {0, 2, 4, 9, 20, 37}) {
        const std::string what = fmt::format("deed {} at {} {}", static_cast<int>(deed), byte, to_listener);
        meddler->arm({deed, true, to_listener, byte, 0x04});
        const auto found = near_->engine->lookup(near_->peer, "memory", kHang);
        EXPECT_TRUE(found) << what << ": " << found.status().to_string();
        for (int i = 0; i < 2000 && (!meddler->done() || proxy_->connections() == connections); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT_TRUE(meddler->done()) << what;
        EXPECT_GT(proxy_->connections(), connections) << what << ": not noticed";
        connections = proxy_->connections();
      }
  EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0)));
  EXPECT_EQ(link_failures(), 0U);
  near_->verify(*far_, 8);
}

}  // namespace
}  // namespace fairway::net
