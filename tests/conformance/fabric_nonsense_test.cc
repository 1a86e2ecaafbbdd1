#include <array>
#include <chrono>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/fabric_shim.h"
#include "engine/open.h"
#include "process/control/child_process.h"
#include "support/alone.h"
#include "sys/system_runtime.h"
#include "transport/fabric/fabric.h"

// A frame that arrives otherwise than it was sent, over providers whose own word is all that a sender hears: what was
// in it is lost, though it was told that it had arrived. Two processes, as libfabric's shm wants it.
namespace fairway::conformance {
namespace {

using control::ChildProcess;

constexpr Timeout kNonsensePatience = std::chrono::seconds(20);
constexpr std::uint64_t kNonsenseBytes = 4096;

struct Over {
  const char* name;
  const char* provider;
  ShimSetting shim;
};

void PrintTo(const Over& over, std::ostream* out) {
  *out << over.name;
}

struct Side {
  explicit Side(const Over& over) {
    EngineOptions options;
    options.transports = {"fabric"};
    options.peer_timeout = std::chrono::milliseconds(1000);
    auto made = EngineAccess::open(options, runtime, [&over](transport::RegionTable& regions, Runtime& its) {
      transport::FabricOptions fabric;
      fabric.providers = {over.provider};
      fabric.calls = shim_calls(over.shim);
      return support::alone(transport::open_fabric_transport(regions, its, fabric));
    });
    if (!made) {
      opened = made.status();
      return;
    }
    engine = std::make_unique<Engine>(std::move(*made));
    if (auto got = engine->allocate(kNonsenseBytes, Access::none)) memory = *got;
  }
  std::string outcome(const Result<TransferId>& id) const {
    if (!id) return id.status().to_string();
    const auto done = engine->wait(*id, kNonsensePatience);
    return (done ? done->status : done.status()).to_string();
  }
  // Why the peer is gone, or "" when it does not go.
  std::string parting() const {
    std::array<PeerEvent, 1> event;
    while (engine->wait_peer_event(kNonsensePatience))
      while (engine->poll_peer_events(event) == 1)
        if (event[0].kind == PeerEvent::Kind::down) return event[0].reason.to_string();
    return {};
  }
  PeerId first_peer() const {
    std::array<PeerEvent, 1> event;
    while (engine->wait_peer_event(kNonsensePatience))
      while (engine->poll_peer_events(event) == 1)
        if (event[0].kind == PeerEvent::Kind::up) return event[0].peer;
    return {};
  }

  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  Status opened;
  std::unique_ptr<Engine> engine;
  Region memory;
};

// Says its address; then, when told to, how its receive and the session end.
void receives_one(ChildProcess::Line& line, const Over& over) {
  const Side side(over);
  if (!side.opened) return line.write("none: " + side.opened.to_string());
  line.write(side.engine->address());
  const PeerId peer = side.first_peer();
  const auto in = side.engine->receive(peer, 1, {side.memory.id, 0, kNonsenseBytes});
  line.read();
  shim_lengthen(1);
  line.write("ready");
  line.write(side.outcome(in));
  line.write(side.parting());
}

class FabricNonsense : public testing::TestWithParam<Over> {};

TEST_P(FabricNonsense, EndsTheSessionAndNobodyWaits) {
  if (shim_calls({}) == nullptr) GTEST_SKIP() << "no libfabric";
  ChildProcess child([](auto& line) { receives_one(line, GetParam()); });
  const std::string address = child.read();
  ASSERT_FALSE(address.starts_with("none")) << address;
  const Side side(GetParam());
  ASSERT_TRUE(side.opened) << side.opened.to_string();
  const auto peer = side.engine->connect(address, kNonsensePatience);
  ASSERT_TRUE(peer) << peer.status().to_string();
  child.write("go on");
  ASSERT_EQ(child.read(), "ready");
  const auto answer = side.engine->receive(*peer, 2, {side.memory.id, 0, kNonsenseBytes});
  const auto sent = side.engine->send(*peer, 1, {side.memory.id, 0, 64});
  const std::string cause = "malformed frame from the peer";
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& ended :
       {side.outcome(sent), side.outcome(answer), side.parting(), child.read(), child.read()}) {
    EXPECT_TRUE(ended.starts_with("protocol_error")) << ended;
    EXPECT_NE(ended.find(cause), std::string::npos) << ended;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kNonsensePatience);
}

INSTANTIATE_TEST_SUITE_P(Over, FabricNonsense,
                         testing::Values(Over{"fabric_shm", "shm", {}},
                                         Over{"fabric_tcp_unordered", "tcp", {.unordered = true}}),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace fairway::conformance
