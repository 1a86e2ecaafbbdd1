#include "transport/fabric/choice.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "transport/fabric/frame.h"
#include "transport/fabric/memory.h"
#include "unit/fabric/efa.h"

namespace fairway::transport::fabric {
namespace {

DomainAddress ip(const std::string& name, std::uint32_t address) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address);
  const auto bytes = std::as_bytes(std::span(&in, 1));
  return {"tcp;ofi_rxm", name, FI_SOCKADDR_IN, {bytes.begin(), bytes.end()}, {}};
}
constexpr std::uint32_t kLoopback = 0x7f000001;

TEST(PairDomains, SubnetsMeetBeforeNames) {
  const std::vector<DomainAddress> here{ip("eth0", 0x0a000001), ip("eth1", 0x0a010001)};
  const std::vector<DomainAddress> there{ip("eth0", 0x0a010002), ip("eth1", 0x0a000002)};
  const auto pairs = pair_domains(here, there);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0], (PlannedPair{0, 1}));
  EXPECT_EQ(pairs[1], (PlannedPair{1, 0}));
}

TEST(PairDomains, LoopbackMeetsLoopbackAlone) {
  EXPECT_TRUE(can_connect(ip("lo", kLoopback), ip("lo", kLoopback)));
  EXPECT_FALSE(can_connect(ip("lo", kLoopback), ip("eth0", 0x0a000001)));
}

TEST(PairDomains, AProviderMeetsItself) {
  DomainAddress efa{"efa", "rdmap79s0-rdm", FI_ADDR_EFA, {}, {}};
  DomainAddress cxi{"cxi", "cxi0", FI_ADDR_CXI, {}, {}};
  EXPECT_TRUE(can_connect(efa, efa));
  EXPECT_FALSE(can_connect(efa, cxi));
}

TEST(PairDomains, SharedMemoryMeetsOnItsHostAndNotInOneProcess) {
  const DomainAddress one{"shm", "shm", FI_ADDR_STR, {std::byte{1}}, "a-boot"};
  DomainAddress other = one;
  EXPECT_FALSE(can_connect(one, other)) << "one process";
  other.address = {std::byte{2}};
  EXPECT_TRUE(can_connect(one, other));
  other.host = "another-boot";
  EXPECT_FALSE(can_connect(one, other));
}

struct Answer {
  fi_info info{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
  sockaddr_in address{};
  std::string name, provider = "tcp;ofi_rxm";
  Answer(std::string domain_name, std::uint32_t at) : name(std::move(domain_name)) {
    address.sin_addr.s_addr = htonl(at);
    domain.name = name.data();
    fabric.prov_name = provider.data();
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
    info.addr_format = FI_SOCKADDR_IN;
    info.src_addr = &address;
    info.src_addrlen = sizeof address;
  }
};

TEST(Usable, NothingListensWhereTheEngineDoesNot) {
  Answer eth("eth0", 0x0a000001), lo("lo", kLoopback), link_local("eth1", 0xa9fe0001);
  eth.info.next = &lo.info;
  lo.info.next = &link_local.info;
  const auto names = [&](const std::string& host) {
    FabricOptions options;
    options.listen_host = host;
    std::string all;
    for (const fi_info* each : usable(&eth.info, options)) all += std::string(each->domain_attr->name) + " ";
    return all;
  };
  EXPECT_EQ(names("127.0.0.1"), "lo ");
  EXPECT_EQ(names("0.0.0.0"), "eth0 ");
  EXPECT_EQ(names("10.0.0.1"), "eth0 ");
  EXPECT_EQ(names("10.0.0.9"), "");
}

TEST(Usable, AnAddressOfVersionSixListensWhereItIsNamed) {
  Answer eth("eth0", 0);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr.s6_addr[0] = 0xfd;
  six.sin6_addr.s6_addr[15] = 2;
  eth.info.addr_format = FI_SOCKADDR_IN6;
  eth.info.src_addr = &six;
  eth.info.src_addrlen = sizeof six;
  FabricOptions options;
  for (const auto& [host, listens] :
       {std::pair{"fd00::2", true}, std::pair{"fd00:0:0::2", true}, std::pair{"fd00::3", false}, std::pair{"::", true},
        std::pair{"10.0.0.1", false}}) {
    options.listen_host = host;
    EXPECT_EQ(usable(&eth.info, options).size(), listens ? 1u : 0u) << host;
  }
}

TEST(Usable, ADomainIsOneThoughItHasSeveralAddresses) {
  Answer first("eth0", 0x0a000001), second("eth0", 0x0a000002);
  first.info.next = &second.info;
  FabricOptions options;
  options.listen_host = "0.0.0.0";
  EXPECT_EQ(usable(&first.info, options).size(), 1u);
}

TEST(Wishes, EndWithMessagesAlone) {
  EXPECT_FALSE(hint_sets("tcp").back().rma);
  for (const HintSet& each : hint_sets("tcp")) EXPECT_FALSE(each.gpus);
}

// A provider that has less than is asked for has nothing at all, to fi_getinfo.
TEST(Wishes, EachIsTriedWithoutSizesToo) {
  for (const std::string provider : {"tcp", "efa"}) {
    const auto all = hint_sets(provider);
    for (std::size_t i = 0; i < all.size(); i += 2) {
      EXPECT_TRUE(all[i].sized);
      EXPECT_FALSE(all[i + 1].sized);
      EXPECT_EQ(all[i].rma, all[i + 1].rma);
      EXPECT_EQ(all[i].delivery, all[i + 1].delivery);
      EXPECT_EQ(all[i].gpus, all[i + 1].gpus);
    }
  }
}

// Else its losses would not be looked for: a libfabric may answer with the order that was asked for, and no other.
TEST(Wishes, WhereMessagesMayBeLostTheirOrderIsAskedForFirst) {
  constexpr std::uint64_t kInOrder = FI_ORDER_SAS | FI_ORDER_SAW;
  for (const std::string provider : {"tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "net"}) {
    testing::Info asked;
    fill_hints(asked.info, hint_sets(provider).front());
    EXPECT_EQ(asked.tx.msg_order & kInOrder, kInOrder) << provider;
    testing::Info unordered;
    fill_hints(unordered.info, hint_sets(provider).back());
    EXPECT_EQ(unordered.tx.msg_order, 0u) << "it may have none";
  }
  for (const HintSet& each : hint_sets("efa")) EXPECT_FALSE(each.in_order);
}

struct Queues : Answer {
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  Queues(std::size_t sends, std::size_t receives) : Answer("eth0", kLoopback) {
    tx.size = sends;
    rx.size = receives;
    info.tx_attr = &tx;
    info.rx_attr = &rx;
  }
};

TEST(Sizes, AreTheProvidersButNoMoreThanAnEndUses) {
  EXPECT_EQ(sizes_of(Queues(64, 32).info), (Sizes{64, 32}));
  EXPECT_EQ(sizes_of(Queues(4096, 32768).info), (Sizes{256, 256}));
  EXPECT_EQ(sizes_of(Queues(0, 0).info), (Sizes{256, 256})) << "it does not say";
}

TEST(Sizes, GetSmallerUntilAnEndNeedsAsMuch) {
  std::size_t steps = 0;
  for (std::optional<Sizes> sizes = Sizes{256, 256}; sizes; sizes = smaller(*sizes), ++steps) {
    EXPECT_GE(sizes->operations, 16u);
    EXPECT_GE(sizes->receives, kIn);
    ASSERT_LT(steps, 10u);
  }
  EXPECT_EQ(steps, 3u);
  EXPECT_FALSE(smaller(Sizes{8, 4})) << "a provider that has no more than that";
}

TEST(WritesCarryData, WhereThereIsRoomForAnImmediateAndTheProviderTakesIt) {
  Answer tcp("eth0", kLoopback), cxi("cxi0", kLoopback);
  EXPECT_FALSE(writes_carry_data(tcp.info));
  tcp.domain.cq_data_size = cxi.domain.cq_data_size = 8;
  EXPECT_TRUE(writes_carry_data(tcp.info));
  cxi.provider = "cxi";
  cxi.fabric.prov_name = cxi.provider.data();
  EXPECT_FALSE(writes_carry_data(cxi.info));
}

TEST(Note, SaysTheSameAgain) {
  for (const Note::Kind kind : {Note::Kind::revoke, Note::Kind::revoked, Note::Kind::ask_key, Note::Kind::key}) {
    const Note note{kind, 0x123456789abcdef0, 3, 7, true, 0xfedcba9876543210};
    const auto bytes = encode(note);
    const auto again = decode_note(bytes);
    ASSERT_TRUE(again);
    EXPECT_EQ(encode(*again), bytes);
    EXPECT_FALSE(decode_note(std::span(bytes).first(bytes.size() - 1)));
  }
}

TEST(Key, SaysTheSameAgain) {
  const auto key = decode_key(encode(Key{0x1000, 42, true}));
  ASSERT_TRUE(key);
  EXPECT_EQ(key->key, 42u);
  EXPECT_TRUE(key->by_link);
}

}  // namespace
}  // namespace fairway::transport::fabric
