// Promise 13, private: a peer must prove that it knows the job's key before anything beyond one fixed hello is parsed,
// and the defaults expose nothing beyond the host. Cases, on whole engines: wrong keys and none; bytes from
// unauthenticated peers at the engine's port; addresses beyond loopback; what a description reveals. tests/unit/control
// and tests/fault/control test the handshake itself.
#include <algorithm>
#include <array>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nodes.h"

namespace fairway::promises {
namespace {

EngineOptions keyed(const std::shared_ptr<Loopback>& loopback, const std::string& key) {
  EngineOptions options = options_of(loopback, "key:" + key);
  options.job_key = key;
  return options;
}

TEST(Private, AnotherKeyOrNoneIsRefusedInBothDirectionsAndSeesNoPeer) {
  const auto loopback = make_loopback();
  Node right(keyed(loopback, "the key of the job"), 4096);
  for (const char* key : {"another key", "", "the key of the jo", "the key of the job2"}) {
    Node wrong(keyed(loopback, key), 4096);
    const auto there = wrong.engine().connect(right.engine().address(), kSoon);
    EXPECT_EQ(there.status().code(), ErrorCode::authentication_failed) << there.status().to_string();
    const auto back = right.engine().connect(wrong.engine().address(), kSoon);
    EXPECT_EQ(back.status().code(), ErrorCode::authentication_failed) << back.status().to_string();
    std::array<PeerEvent, 4> events;
    EXPECT_EQ(wrong.engine().poll_peer_events(events), 0u);
  }
  std::array<PeerEvent, 4> events;
  EXPECT_EQ(right.engine().poll_peer_events(events), 0u);
  EXPECT_TRUE(right.engine().metrics().peers.empty());
}

TEST(Private, ListeningBeyondLoopbackNeedsAKey) {
  EngineOptions options;
  options.listen = "0.0.0.0:0";
  const auto open = Engine::open(options);
  EXPECT_FALSE(open);
  EXPECT_NE(open.status().message().find("key"), std::string::npos) << open.status().to_string();
  options.job_key = "a key";
  EXPECT_TRUE(Engine::open(options));
}

TEST(Private, TheDefaultListensOnThisHostAlone) {
  const auto engine = Engine::open({});
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->address().substr(0, 10), "127.0.0.1:") << engine->address();
}

// Whatever unauthenticated peers send, they are rejected, and the engine keeps serving its peers.
TEST(Private, StrangersBytesReachNobody) {
  Pair pair;
  const std::string address = pair.right.engine().address();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  for (int kind = 0; kind < 40; ++kind) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(socket, 0);
    ASSERT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    std::vector<char> bytes(static_cast<std::size_t>(kind) * 37 + 1, static_cast<char>(kind * 17));
    (void)::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (kind % 2 == 0) ::shutdown(socket, SHUT_WR);
    ::close(socket);
  }
  EXPECT_TRUE(finish(pair.left.engine(), pair.left.engine().write(pair.to_right, pair.extent(0, 0, 64))).status);
  EXPECT_EQ(pair.right.engine().metrics().peers.size(), 1u);
}

TEST(Private, ADescriptionGivesNoAddressAway) {
  Pair pair;
  const auto bytes = *pair.right.engine().describe(pair.right.region());
  const auto address = reinterpret_cast<std::uintptr_t>(pair.right.region().address);
  const auto looked_for = std::as_bytes(std::span(&address, 1)).first(6);
  EXPECT_EQ(std::search(bytes.begin(), bytes.end(), looked_for.begin(), looked_for.end()), bytes.end());
}

// A description is a name, not a capability: only a connected peer can use it, and only as the region permits.
TEST(Private, ADescriptionOfAnotherEngineIsRefused) {
  Pair pair;
  Node third(options_of(pair.loopback, "third"), 4096);
  const auto stranger = *third.engine().describe(third.region());
  EXPECT_EQ(pair.left.engine().import_region(pair.to_right, stranger).status().code(), ErrorCode::stale_incarnation);
}

}  // namespace
}  // namespace fairway::promises
