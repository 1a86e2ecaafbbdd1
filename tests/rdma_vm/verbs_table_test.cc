#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <set>

#include <gtest/gtest.h>

#include "rdma_vm/verbs_attempt.h"

// What the two RDMA devices of this machine really do: each operation on each kind of queue pair, printed, and compared
// with what InfiniBand's specification allows. A transport that takes a device's word for more is better warned here.
namespace fairway::rdma_vm {
namespace {

class VerbsTable : public testing::Test {
 protected:
  void SetUp() override {
    left_ = Side::open(0);
    if (left_) right_ = Side::open(1);
    if (left_ && right_) return;
    const std::string why = std::string("two RDMA devices with IPv4 addresses: ") + std::strerror(errno);
    ASSERT_EQ(std::getenv("FAIRWAY_VM"), nullptr) << "this guest should have " << why;
    GTEST_SKIP() << "needs " << why << "; tests/rdma_vm/vm has them";
  }

  Fate shown(const char* kind_name, ibv_qp_type kind, Operation operation, std::size_t size) {
    const Fate fate = attempt(*left_, *right_, kind, operation, size);
    std::printf("%s  %-9s  %5zu B  %s\n", kind_name, name_of(operation), size, fate.words.c_str());
    return fate;
  }

  void expect_carried(const char* kind_name, ibv_qp_type kind, const std::set<Operation>& allowed) {
    for (const Operation operation : kOperations) {
      const Fate fate = shown(kind_name, kind, operation, 64);
      EXPECT_EQ(fate.carried, allowed.contains(operation))
          << kind_name << " " << name_of(operation) << ": " << fate.words;
    }
  }

  std::unique_ptr<Side> left_;
  std::unique_ptr<Side> right_;
};

TEST_F(VerbsTable, ReliableConnectionsDoEverything) {
  expect_carried("RC", IBV_QPT_RC, {kOperations.begin(), kOperations.end()});
}

TEST_F(VerbsTable, UnreliableConnectionsNeitherReadNorAdd) {
  expect_carried("UC", IBV_QPT_UC,
                 {Operation::send, Operation::receive, Operation::write, Operation::write_with_immediate});
}

TEST_F(VerbsTable, DatagramsOnlySendAndReceive) {
  expect_carried("UD", IBV_QPT_UD, {Operation::send, Operation::receive});
}

TEST_F(VerbsTable, DatagramsEndAtTheMtu) {
  const std::size_t mtu = left_->mtu();
  EXPECT_TRUE(shown("UD", IBV_QPT_UD, Operation::send, mtu).carried);
  EXPECT_FALSE(shown("UD", IBV_QPT_UD, Operation::send, mtu + 1).carried);
}

TEST_F(VerbsTable, ConnectionsPassTheMtu) {
  const std::size_t mtu = left_->mtu();
  for (const Operation operation : {Operation::send, Operation::write, Operation::read}) {
    EXPECT_TRUE(shown("RC", IBV_QPT_RC, operation, mtu + 1).carried);
  }
}

}  // namespace
}  // namespace fairway::rdma_vm
