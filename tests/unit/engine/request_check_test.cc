#include "engine/tables/request_check.h"

#include <array>
#include <functional>

#include <gtest/gtest.h>

namespace fairway::engine {
namespace {

constexpr std::uint64_t kRegionBytes = 4096;

// One peer, a local region, and some of the peer's.
struct Checked {
  Checked()
      : local(*regions.add(memory.data(), kRegionBytes, MemoryKind::host, Access::none)),
        writable(import(MemoryKind::host, Access::write)),
        readable(import(MemoryKind::host, Access::read)),
        words(import(MemoryKind::host, Access::atomic)),
        device_words(import(MemoryKind::device, Access::atomic)),
        peer(*peers.add(1, {})) {}
  RemoteRegionId import(MemoryKind kind, Access access) {
    const RegionId id = *remotes.add(nullptr, kRegionBytes, kind, access);
    return {id.slot, id.generation};
  }
  Request write(std::uint64_t from, std::uint64_t to, std::uint64_t length) const {
    Request request;
    request.peer = peer;
    request.layout = Extent{{local, from, length}, {writable, to}};
    return request;
  }
  Request with(const std::function<void(Request&)>& spoil) const {
    Request request = write(0, 0, 64);
    spoil(request);
    return request;
  }
  ErrorCode code(const Request& request) const { return check.check(request).code(); }
  ErrorCode code(const std::function<void(Request&)>& spoil) const { return code(with(spoil)); }

  std::array<std::byte, kRegionBytes> memory{};
  transport::RegionTable regions{4}, remotes{8};
  PeerTable peers{2};
  TransferTable transfers{4};
  RegionId local;
  RemoteRegionId writable, readable, words, device_words;
  PeerId peer;
  RequestCheck check{regions, remotes, peers, transfers};
};

TEST(RequestCheck, BytesStayInsideBothRegions) {
  const Checked c;
  EXPECT_EQ(c.code(c.write(0, 0, kRegionBytes)), ErrorCode::ok);
  EXPECT_EQ(c.code(c.write(kRegionBytes, kRegionBytes, 0)), ErrorCode::ok);
  EXPECT_EQ(c.code(c.write(1, 0, kRegionBytes)), ErrorCode::out_of_range);
  EXPECT_EQ(c.code(c.write(0, 1, kRegionBytes)), ErrorCode::out_of_range);
  EXPECT_EQ(c.code(c.write(~std::uint64_t{0}, 0, 2)), ErrorCode::out_of_range);
  EXPECT_NE(c.check.check(c.write(1, 0, kRegionBytes)).message().find("local"), std::string::npos);
  EXPECT_NE(c.check.check(c.write(0, 1, kRegionBytes)).message().find("remote"), std::string::npos);
}

TEST(RequestCheck, TheLastBlockOfAStrideIsCheckedOnBothSides) {
  const Checked c;
  const auto strided = [&](std::uint64_t local_stride, std::uint64_t remote_stride, std::uint64_t count) {
    return c.with([&](Request& r) {
      r.layout = Strided{{{c.local, 0, 64}, {c.writable, 0}}, local_stride, remote_stride, count};
    });
  };
  EXPECT_EQ(c.code(strided(64, 64, 64)), ErrorCode::ok);
  EXPECT_EQ(c.code(strided(64, 64, 65)), ErrorCode::out_of_range);
  EXPECT_EQ(c.code(strided(65, 64, 64)), ErrorCode::out_of_range);
  EXPECT_EQ(c.code(strided(64, 65, 64)), ErrorCode::out_of_range);
}

TEST(RequestCheck, RemoteRegionsGrantWhatIsDoneToThem) {
  const Checked c;
  EXPECT_EQ(c.code([&](Request& r) { r.operation = Operation::read; }), ErrorCode::access_denied);
  EXPECT_EQ(c.code([&](Request& r) {
    r.operation = Operation::read;
    std::get<Extent>(r.layout).remote.region = c.readable;
  }),
            ErrorCode::ok);
  EXPECT_EQ(c.code([&](Request& r) { std::get<Extent>(r.layout).remote.region = c.readable; }),
            ErrorCode::access_denied);
  const auto atomic = [&](RemoteRegionId region, std::uint64_t offset) {
    return c.with([&](Request& r) {
      r.operation = Operation::fetch_add;
      r.target = {region, offset};
    });
  };
  EXPECT_EQ(c.code(atomic(c.words, kRegionBytes - 8)), ErrorCode::ok);
  EXPECT_EQ(c.code(atomic(c.words, kRegionBytes)), ErrorCode::out_of_range);
  EXPECT_EQ(c.code(atomic(c.words, 4)), ErrorCode::invalid_argument);
  EXPECT_EQ(c.code(atomic(c.writable, 0)), ErrorCode::access_denied);
}

TEST(RequestCheck, RegionsThatEndedAreRefused) {
  Checked c;
  const Request request = c.write(0, 0, 64);
  ASSERT_TRUE(c.regions.revoke(c.local));
  EXPECT_EQ(c.code(request), ErrorCode::revoked);
  Checked d;
  ASSERT_TRUE(d.remotes.revoke({d.writable.slot, d.writable.generation}));
  EXPECT_EQ(d.code(d.write(0, 0, 64)), ErrorCode::revoked);
}

TEST(RequestCheck, ASignalIsAWordThatMayBeChanged) {
  const Checked c;
  const auto signal = [&](RemoteRegionId region, std::uint64_t offset, bool add) {
    return c.with([&](Request& r) {
      r.options.notify = add ? add_to_signal({region, offset}, 1) : set_signal({region, offset}, 1);
    });
  };
  EXPECT_EQ(c.code(signal(c.words, 8, false)), ErrorCode::ok);
  EXPECT_EQ(c.code(signal(c.words, 4, false)), ErrorCode::invalid_argument);
  EXPECT_EQ(c.code(signal(c.words, kRegionBytes, false)), ErrorCode::out_of_range);
  EXPECT_EQ(c.code(signal(c.writable, 8, false)), ErrorCode::access_denied);
  EXPECT_EQ(c.code(signal(c.device_words, 8, true)), ErrorCode::ok);
  EXPECT_EQ(c.code(signal(c.device_words, 8, false)), ErrorCode::unsupported) << "its region does not grant writes";
}

TEST(RequestCheck, MessagesTakeOneExtentAndNoOtherNotification) {
  const Checked c;
  const auto send = [&](const std::function<void(Request&)>& spoil) {
    return c.with([&](Request& r) {
      r.operation = Operation::send;
      std::get<Extent>(r.layout).remote = {};
      spoil(r);
    });
  };
  EXPECT_EQ(c.code(send([](Request&) {})), ErrorCode::ok);
  EXPECT_EQ(c.code(send([&](Request& r) {
    r.layout = Strided{{{c.local, 0, 64}, {}}, 64, 64, 2};
  })),
            ErrorCode::invalid_argument);
  EXPECT_EQ(c.code(send([](Request& r) { r.options.notify = notify_counter(3); })), ErrorCode::invalid_argument);
  EXPECT_EQ(c.code(send([](Request& r) { r.options.start_after = &r; })), ErrorCode::invalid_argument);
  EXPECT_EQ(c.code(send([](Request& r) { r.options.local_completion = true; })), ErrorCode::ok);
  EXPECT_EQ(c.code([](Request& r) { r.options.local_completion = true; }), ErrorCode::invalid_argument);  // a write
  EXPECT_EQ(c.code(send([&](Request& r) {
    r.layout = Extent{{c.local, 0, kRegionBytes + 1}, {}};
  })),
            ErrorCode::out_of_range);
}

// Most messages are passed by one look, which must see all that check() refuses.
TEST(RequestCheck, APlainMessageIsOneThatIsAccepted) {
  Checked c;
  const RegionId fixed = *c.regions.add(c.memory.data(), kRegionBytes, MemoryKind::host, Access::none, true);
  for (const Operation operation : {Operation::send, Operation::receive}) {
    const auto code = [&](const std::function<void(Request&)>& spoil) {
      const Request request = c.with([&](Request& r) {
        r.operation = operation;
        r.layout = Extent{{c.local, 0, 64}, {}};
        spoil(r);
      });
      const ErrorCode all = c.code(request);
      EXPECT_TRUE(all == ErrorCode::ok || !c.check.is_plain_message(request)) << to_string(all);
      return all;
    };
    const bool receives = operation == Operation::receive;
    EXPECT_EQ(code([](Request&) {}), ErrorCode::ok);
    EXPECT_EQ(code([&](Request& r) {
                std::get<Extent>(r.layout).local = {c.local, 1, kRegionBytes};
              }),
              ErrorCode::out_of_range);
    EXPECT_EQ(code([&](Request& r) { std::get<Extent>(r.layout).local.region = fixed; }),
              receives ? ErrorCode::access_denied : ErrorCode::ok);
    EXPECT_EQ(code([](Request& r) { r.options.local_completion = true; }),
              receives ? ErrorCode::invalid_argument : ErrorCode::ok);
    EXPECT_EQ(code([](Request& r) { r.options.notify = notify_counter(3); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code([&](Request& r) { r.options.notify.message = std::span(c.memory).first(4); }),
              ErrorCode::invalid_argument);
    EXPECT_EQ(code([](Request& r) { r.options.start_after = &r; }), ErrorCode::invalid_argument);
    EXPECT_EQ(code([](Request& r) { r.options.after = {0, 1}; }), ErrorCode::invalid_argument);
    EXPECT_EQ(code([](Request& r) { r.options.deadline = -std::chrono::seconds(1); }), ErrorCode::ok) << "it completes";
    EXPECT_EQ(code([](Request& r) { r.options.priority = static_cast<Priority>(3); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code([](Request& r) { r.options.deliver = Deliver::to_callback; }), ErrorCode::invalid_argument);
    EXPECT_EQ(code([](Request& r) { ++r.peer.generation; }), ErrorCode::stale_incarnation);
  }
  const Request plain = c.with([](Request& r) { r.operation = Operation::send; });
  EXPECT_TRUE(c.check.is_plain_message(plain));
  EXPECT_FALSE(c.check.is_plain_message(c.write(0, 0, 64)));
  ASSERT_TRUE(c.regions.revoke(c.local));
  EXPECT_FALSE(c.check.is_plain_message(plain));
}

TEST(RequestCheck, PeersAndEarlierTransfersAreOfThisEngine) {
  Checked c;
  EXPECT_EQ(c.code([](Request& r) { r.peer = {}; }), ErrorCode::not_found);
  EXPECT_EQ(c.code([](Request& r) { ++r.peer.generation; }), ErrorCode::stale_incarnation);
  EXPECT_EQ(c.code([](Request& r) { r.options.after = {0, 1}; }), ErrorCode::invalid_argument);
  const TransferId given = c.transfers.id(c.transfers.acquire());
  EXPECT_EQ(c.code([&](Request& r) { r.options.after = given; }), ErrorCode::ok);
  ASSERT_TRUE(c.peers.set_down(c.peer, {ErrorCode::peer_dead, "no sign of life"}));
  EXPECT_EQ(c.code([](Request&) {}), ErrorCode::peer_dead);
}

}  // namespace
}  // namespace fairway::engine
