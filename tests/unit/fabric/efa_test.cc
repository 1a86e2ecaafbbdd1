#include "unit/fabric/efa.h"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "sys/libfabric.h"
#include "topology/providers.h"
#include "transport/fabric/choice.h"
#include "transport/fabric/domain.h"
#include "transport/fabric/lane.h"

// That opening on a machine with EFA goes well, as far as that can be known without one.
namespace fairway::transport::fabric {
namespace {

using testing::EfaMachine;

struct Hints : testing::Info {
  explicit Hints(const HintSet& wanted) { fill_hints(info, wanted); }
};

TEST(Efa, ItIsUsedWithoutBeingToldTo) {
  EXPECT_NE(std::find(sys::kNicProviders.begin(), sys::kNicProviders.end(), "efa"), sys::kNicProviders.end());
}

TEST(Efa, EachNicIsADomainAndRailsMeet) {
  const EfaMachine here, there;
  const auto ours = usable(here.infos(), {});
  ASSERT_EQ(ours.size(), EfaMachine::kDevices);
  std::vector<DomainAddress> addresses, reversed;
  for (const fi_info* each : ours) addresses.push_back(address_of(*each));
  reversed.assign(addresses.rbegin(), addresses.rend());
  const auto pairs = pair_domains(addresses, reversed);
  ASSERT_EQ(pairs.size(), EfaMachine::kDevices);
  for (const PlannedPair& each : pairs)
    EXPECT_EQ(addresses[each.acceptor].name, reversed[each.initiator].name) << "a rail that crosses";
}

// Ends of the two fabrics do not hear each other, and one side may have an older libfabric.
TEST(Efa, OfItsTwoFabricsTheOneThatEveryVersionHasIsUsed) {
  const EfaMachine machine(true);
  const auto ours = usable(machine.infos(), {});
  ASSERT_EQ(ours.size(), EfaMachine::kDevices);
  for (const fi_info* each : ours) EXPECT_STREQ(each->fabric_attr->name, "efa");
}

// Inside of a host it would take libfabric's shm, in which a killed peer may leave a lock behind; and with it, its
// queues have no descriptor to sleep on. Both end with FI_REMOTE_COMM alone (efa_user_info.c, from 1.17 to 2.6).
TEST(Efa, NothingButTheNicIsAskedFor) {
  for (const HintSet& wanted : hint_sets("efa")) {
    const Hints hints(wanted);
    EXPECT_EQ(hints.info.caps & (FI_REMOTE_COMM | FI_LOCAL_COMM), FI_REMOTE_COMM);
  }
  for (const HintSet& wanted : hint_sets("cxi")) EXPECT_EQ(Hints(wanted).info.caps & FI_REMOTE_COMM, 0u);
}

TEST(Efa, ItsNicMovesTheBytesAndNoCpu) {
  const EfaMachine machine;
  EXPECT_EQ(moved_by(*machine.infos()), MovedBy::nic);
  testing::Info other;
  for (const auto& [name, by] : {std::pair{"tcp;ofi_rxm", MovedBy::sockets},
                                 {"udp;ofi_rxd", MovedBy::sockets},
                                 {"shm", MovedBy::cpu},
                                 {"verbs;ofi_rxm", MovedBy::nic},
                                 {"new", MovedBy::sockets}}) {
    other.fabric.prov_name = const_cast<char*>(name);
    EXPECT_EQ(moved_by(other.info), by) << name;
  }
}

TEST(Efa, TheListOfItsDomainsFitsAHandshake) {
  const EfaMachine machine;
  std::vector<DomainAddress> addresses;
  for (const fi_info* each : usable(machine.infos(), {})) addresses.push_back(address_of(*each));
  const auto decoded = decode_addresses(encode(addresses));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, addresses);
}

TEST(Efa, NothingIsAskedForThatItHasNot) {
  const EfaMachine machine;
  const fi_info& efa = *machine.infos();
  for (const HintSet& wanted : hint_sets("efa")) {
    const Hints hints(wanted);
    EXPECT_EQ(hints.info.caps & ~efa.caps, 0u);
    EXPECT_EQ(hints.info.mode & (FI_MSG_PREFIX | FI_RX_CQ_DATA), 0u);
    // What it wants of memory is offered. FI_MR_HMEM is wanted with FI_HMEM alone.
    const int offered = efa.domain_attr->mr_mode & ~(wanted.gpus ? 0 : FI_MR_HMEM);
    EXPECT_EQ(offered & ~hints.domain.mr_mode, 0);
    EXPECT_LE(hints.tx.size, efa.tx_attr->size);
    EXPECT_LE(hints.rx.size, efa.rx_attr->size);
    EXPECT_EQ(hints.domain.threading, FI_THREAD_SAFE);
    EXPECT_EQ(hints.domain.data_progress, FI_PROGRESS_MANUAL) << "it claims more and has not";
    EXPECT_EQ(hints.tx.msg_order | hints.rx.comp_order, 0u) << "no order is asked for";
  }
  EXPECT_TRUE(hint_sets("efa").front().gpus);
  EXPECT_GE(efa.tx_attr->inject_size, FrameHeader::kBytes) << "words about room are injected";
  EXPECT_LE(efa.src_addrlen, kMaxAddressBytes);
}

TEST(Efa, ThirtyTwoNicsAreAFewLines) {
  const EfaMachine machine;
  const topology::Providers providers{"libfabric.so.1", "1.17", topology::provider_rows(machine.infos())};
  ASSERT_EQ(providers.rows.size(), 1u);
  const std::string text = topology::providers_text(providers);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 9) << text;
  EXPECT_NE(text.find("32 domains of 100 Gb/s"), std::string::npos) << text;
  EXPECT_NE(text.find("without being told"), std::string::npos) << text;
}

TEST(Providers, WhatTheEnvironmentLeavesOutIsSaid) {
  const std::string filter = "FI_PROVIDER=udp is set, so libfabric uses no other provider";
  const topology::Providers none{"libfabric.so.1", "1.17", {}, filter};
  EXPECT_EQ(topology::providers_text(none),
            "libfabric 1.17 (libfabric.so.1)\n" + filter + "\nno provider has anything here\n");
  EXPECT_NE(topology::json(none).find("\"filter\": \"" + filter + "\""), std::string::npos);
  EXPECT_EQ(topology::providers_text({"libfabric.so.1", "1.17", {}}).find("FI_PROVIDER"), std::string::npos);
}

TEST(Fabric, AProviderThatIsNotThereIsNamedWithWhatLeavesItOut) {
  transport::FabricOptions options;
  options.providers = {"tpc"};
  auto library = sys::Libfabric::open();
  if (!library) GTEST_SKIP() << library.status().message();
  ASSERT_EQ(::setenv("FI_PROVIDER", "udp", 1), 0);
  const auto filtered = open_domains(options);
  ASSERT_EQ(::unsetenv("FI_PROVIDER"), 0);
  const auto unfiltered = open_domains(options);
  ASSERT_FALSE(filtered);
  ASSERT_FALSE(unfiltered);
  EXPECT_NE(filtered.status().message().find("provider tpc has no domain here"), std::string::npos);
  EXPECT_NE(filtered.status().message().find("FI_PROVIDER=udp"), std::string::npos) << filtered.status().message();
  EXPECT_NE(unfiltered.status().message().find("topo --providers"), std::string::npos);
}

TEST(Efa, OfItsTwoFabricsOneIsSaidToBeUsed) {
  const EfaMachine machine(true);
  const auto rows = topology::provider_rows(machine.infos());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NE(rows[0].usual, rows[1].usual);
}

}  // namespace
}  // namespace fairway::transport::fabric
