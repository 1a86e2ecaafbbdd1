#include "transport/verbs/handshake.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace fairway::transport::verbs {
namespace {

std::vector<PortAddress> some_ports() {
  std::vector<PortAddress> ports{{Fabric::roce, {}, 0, 1},
                                 {Fabric::infiniband, {}, 9, 32, false, false, 0, true},
                                 {Fabric::iwarp, {}, 0, 2, true, true, 4791}};
  ports[1].gid[3] = std::byte{5};
  return ports;
}

Endpoint an_endpoint() {
  return {some_ports()[2], 17, 0xabcdef, 5, 16, 32, 0x1234'5678'9abc, 77, {std::byte{1}, std::byte{2}}};
}

// What is cut, lengthened or changed in one bit is refused with words, or is what some peer could have said.
template <class Decode>
void expect_exact(const std::vector<std::byte>& whole, Decode decode) {
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto heard = decode(std::span(whole).first(size));
    ASSERT_FALSE(heard) << size;
    EXPECT_EQ(heard.status().code(), ErrorCode::protocol_error);
    EXPECT_TRUE(heard.status().message().starts_with("malformed verbs handshake: ")) << heard.status().message();
  }
  auto longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_EQ(decode(longer).status().code(), ErrorCode::protocol_error);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    auto bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    if (const auto heard = decode(bytes)) {
      EXPECT_EQ(encode(*heard), bytes) << bit;
    }
  }
}

TEST(VerbsHandshake, PortsComeBackAsTheyWereSaid) {
  const auto heard = decode_ports(encode(some_ports()));
  ASSERT_TRUE(heard) << heard.status().to_string();
  EXPECT_EQ(*heard, some_ports());
  expect_exact(encode(some_ports()), decode_ports);
}

TEST(VerbsHandshake, AnEndpointComesBackAsItWasSaid) {
  const auto heard = decode_endpoint(encode(an_endpoint()));
  ASSERT_TRUE(heard) << heard.status().to_string();
  EXPECT_EQ(*heard, an_endpoint());
  expect_exact(encode(an_endpoint()), decode_endpoint);
}

TEST(VerbsHandshake, PortsThatNoSideHasAreRefused) {
  const auto refused = [](auto change) {
    auto ports = some_ports();
    change(ports);
    return !decode_ports(encode(ports));
  };
  EXPECT_TRUE(refused([](auto& ports) { ports.clear(); }));
  EXPECT_TRUE(refused([](auto& ports) { ports.resize(kMaxPorts + 1); }));
  EXPECT_FALSE(refused([](auto& ports) { ports.resize(kMaxPorts); }));
  EXPECT_TRUE(refused([](auto& ports) { ports[0].fabric = static_cast<Fabric>(4); }));
  EXPECT_TRUE(refused([](auto& ports) { ports[1].uses_cm = true; })) << "InfiniBand has its own";
  EXPECT_TRUE(refused([](auto& ports) { ports[2].uses_cm = false; })) << "iWARP has nothing else";
  EXPECT_TRUE(refused([](auto& ports) { ports[0].global = true; })) << "RoCE's packets always have the header";
  EXPECT_TRUE(refused([](auto& ports) { ports[0].queue_pairs = 0; }));
  EXPECT_TRUE(refused([](auto& ports) { ports[0].queue_pairs = kMaxQueuePairs + 1; }));
}

TEST(VerbsHandshake, ValuesThatNoNicHasAreRefused) {
  const auto refused = [](auto change) {
    Endpoint endpoint = an_endpoint();
    change(endpoint);
    return !decode_endpoint(encode(endpoint));
  };
  EXPECT_TRUE(refused([](Endpoint& e) { e.port.fabric = static_cast<Fabric>(0); }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.number = 0; }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.number = 1 << 24; }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.first_psn = 1 << 24; }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.mtu = 0; }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.mtu = 6; }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.reads = 0; }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.receives = kLeastReceives - 1; }));
  EXPECT_TRUE(refused([](Endpoint& e) { e.receives = kMostReceives + 1; }));
}

}  // namespace
}  // namespace fairway::transport::verbs
