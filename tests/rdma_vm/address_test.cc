#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "rdma_vm/ends.h"

// The addresses of an RDMA port go and come while engines use it.
namespace fairway::rdma {
namespace {

using Address = Ends;

// What `wire` does for 10.0.0.1, for another address of the same card.
void route(const std::string& address) {
  must("ip route replace local " + address +
       " dev v0 table 101; ip route replace 10.0.0.0/24 dev v0 table 101; "
       "ip rule add pref 20 from " +
       address +
       " iif lo lookup 101; "
       "ip route replace " +
       address +
       " dev v1 src 10.0.0.2 table 100; "
       "ip route replace 10.0.0.2 dev v0 src " +
       address + " table 100");
}

TEST_F(Address, TakenAwayUnderTrafficSendsItAnotherWayAndItComesBackWithTheNextOne) {
  if (over_iwarp()) GTEST_SKIP() << "a connection of iWARP ends by itself";
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000), {"verbs", "tcp"}));
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 6);
  must("ip addr del 10.0.0.1/24 dev v0");
  const auto gone = std::chrono::steady_clock::now();
  ASSERT_TRUE(until_up(false));
  tell("until the link without its address counts as down", since(gone));
  (void)all_end_well(ids, 7);
  must("ip addr add 10.0.0.9/24 dev v0");
  route("10.0.0.9");
  const auto back = std::chrono::steady_clock::now();
  ASSERT_TRUE(until_up(true));
  tell("from another address to the link's return", since(back));
  works();
  Request request;
  request.operation = Operation::write;
  request.peer = near().peer;
  request.layout = Extent{{near().ours.id, 0, 8}, {near().remote.id, 0}};
  const auto told = near().engine->explain(request);
  ASSERT_TRUE(told);
  EXPECT_NE(told->text().find("(10.0.0.9)"), std::string::npos) << told->text();

  must(
      "ip addr del 10.0.0.9/24 dev v0; ip rule del from 10.0.0.9 iif lo lookup 101; ip addr add 10.0.0.1/24 dev "
      "v0; " FAIRWAY_WIRE " up v0");
  ASSERT_TRUE(until_up(true));
  works();
}

class AddressLost : public Ends {
 protected:
  // With `commands` the port loses its address under writes.
  void lose(const std::string& commands) {
    ASSERT_NO_FATAL_FAILURE(meet(kBound));
    near().fill(7);
    std::vector<TransferId> ids;
    start(ids, 4);
    must(commands);
    const auto gone = std::chrono::steady_clock::now();
    for (const TransferId id : ids) {  // those that had arrived by then are well
      const Status status = near().finish(id);
      EXPECT_TRUE(status || status.code() == ErrorCode::link_failed) << status.to_string();
    }
    tell("until transfers end, with a bound of 3000", since(gone));
    ASSERT_TRUE(until_up(false));
  }

  // Soon: the kernel takes an address out of the port's table in its own time, until when the link breaks, and does not
  // come back, for other reasons.
  void transfers_fail_for(const std::string& reason) {
    const auto start_of_it = std::chrono::steady_clock::now();
    for (std::string why; why.find(reason) == std::string::npos; std::this_thread::sleep_for(milliseconds(2))) {
      ASSERT_LT(since(start_of_it), net::kHang) << why;
      std::vector<TransferId> late;
      start(late, 1);
      ASSERT_EQ(late.size(), 1u);
      const Status status = near().finish(late.front());
      ASSERT_EQ(status.code(), ErrorCode::link_failed) << status.to_string();
      why = status.message();
    }
  }

  // In the order in which they were there at first: others name them by their index.
  void give_back(const std::string& commands) {
    must(commands);
    ASSERT_TRUE(until_up(true));
    works();
  }

  static constexpr milliseconds kBound{3000};
};

TEST_F(AddressLost, TransfersEndInTimeWithAReasonThatNamesIt) {
  if (over_iwarp()) GTEST_SKIP() << "a connection of iWARP ends by itself";
  ASSERT_NO_FATAL_FAILURE(lose("ip addr del fd00::1/64 dev v0; ip addr del 10.0.0.1/24 dev v0"));
  ASSERT_NO_FATAL_FAILURE(transfers_fail_for("10.0.0.1 is gone"));
  give_back("ip addr add 10.0.0.1/24 dev v0; ip addr add fd00::1/64 dev v0; " FAIRWAY_WIRE " up v0");
}

TEST_F(AddressLost, TheOneThatIsLeftIsToldWhereItDoesNotReachThePeers) {
  if (over_iwarp()) GTEST_SKIP() << "a connection of iWARP ends by itself";
  ASSERT_NO_FATAL_FAILURE(lose("ip addr del 10.0.0.1/24 dev v0"));
  ASSERT_NO_FATAL_FAILURE(transfers_fail_for("cannot reach"));
  give_back("ip addr add 10.0.0.1/24 dev v0; " FAIRWAY_WIRE " up v0");
}

}  // namespace
}  // namespace fairway::rdma
