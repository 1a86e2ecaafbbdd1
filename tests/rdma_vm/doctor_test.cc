#include <string>

#include "rdma_vm/ends.h"

// `fairway doctor` on the guest's two devices: as they are, and with faults that are really there.
namespace fairway::rdma {
namespace {

std::string doctor(const std::string& arguments, const std::string& before = "") {
  return said_by(before + " timeout 300 " FAIRWAY_TOOL " doctor " + arguments);
}

bool carries(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

struct Doctor : Ends {};

// What runs RDMA over a device with itself does so by perftest.
struct DoctorRuns : Doctor {
  void SetUp() override {
    Doctor::SetUp();
    if (IsSkipped()) return;
    if (!carries(said_by("command -v ib_read_bw"), "ib_read_bw"))
      GTEST_SKIP() << "perftest is not installed (apt install perftest)";
  }
};

TEST_F(Doctor, TheLabAsItIsHasNoFault) {
  const std::string said = doctor("--quiet");
  EXPECT_EQ(said, "") << "neither a line nor a status but 0";
}

TEST_F(DoctorRuns, WhatItMeasuresHereIsNoFaultOfASoftwareDevice) {
  const std::string said = doctor("--measure");
  EXPECT_TRUE(carries(said, "ok ")) << said;
  EXPECT_FALSE(carries(said, "#rail-slow")) << said;
  EXPECT_FALSE(carries(said, "few-reads: no measured")) << "reads were measured\n" << said;
}

TEST_F(DoctorRuns, AnMtuThatIsTooSmallIsSeenAndConfirmedOnTheDeviceBeside) {
  must("ip link set v1 mtu 560");  // RDMA's 512 and its headers
  const std::string said = doctor("--confirm --json");
  must("ip link set v1 mtu 4200");
  EXPECT_TRUE(carries(said, "\"rule\": \"mtu-differs\"") || carries(said, "\"rule\": \"mtu-small\"")) << said;
  EXPECT_TRUE(carries(said, "\"confidence\": \"confirmed\"")) << said;
}

TEST_F(DoctorRuns, AGidThatDoesNotExistIsSeenAndConfirmed) {
  const std::string said = doctor("--confirm --json", "NCCL_IB_GID_INDEX=77");
  EXPECT_TRUE(carries(said, "\"rule\": \"gid-unroutable\"")) << said;
  EXPECT_TRUE(carries(said, "names no GID")) << said;
  EXPECT_TRUE(carries(said, "\"confidence\": \"confirmed\"")) << said;
  EXPECT_TRUE(carries(said, "(status 512)")) << said;
}

TEST_F(DoctorRuns, ALimitOfLockedMemoryIsSeenAndConfirmed) {
  const std::string said =
      doctor("--confirm --json",
             "setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock sh -c 'ulimit -l 8192; exec \"$@\"' sh");
  EXPECT_TRUE(carries(said, "\"rule\": \"memlock\"")) << said;
  EXPECT_TRUE(carries(said, "\"confidence\": \"confirmed\"")) << said;
}

TEST_F(DoctorRuns, QueuePairsAreTriedInTurn) {
  const std::string said = doctor("--confirm");
  EXPECT_TRUE(carries(said, "1 queue pair ")) << said;
  EXPECT_TRUE(carries(said, "Gb/s, 4 ")) << said;
  EXPECT_FALSE(carries(said, "relaxed ordering of")) << "a software device has no PCIe\n" << said;
}

TEST_F(Doctor, WithoutPerftestItNamesThePackage) {
  must("mkdir -p /tmp/few && ln -sf \"$(command -v timeout)\" /tmp/few/timeout");
  const std::string said = said_by("PATH=/tmp/few timeout 300 " FAIRWAY_TOOL " doctor --measure --json");
  EXPECT_TRUE(carries(said, "rxe0: ib_write_bw is not installed (apt install perftest)")) << said;
  const std::string confirming = said_by("PATH=/tmp/few timeout 300 " FAIRWAY_TOOL " doctor --confirm");
  EXPECT_TRUE(carries(confirming, "queue pairs of rxe0: ib_write_bw is not installed")) << confirming;
}

TEST_F(Doctor, ALegOfABondThatIsDeadIsSeen) {
  must("ip link add bond9 type bond miimon 100 mode balance-xor");
  must(
      "ip link add d0 type dummy; ip link add d1 type dummy; ip link set d0 master bond9; ip link set d1 master bond9; "
      "ip link set bond9 up");
  must("ip link set d1 down; sleep 1");
  const std::string said = doctor("--json");
  must("ip link del bond9; ip link del d0; ip link del d1");
  EXPECT_TRUE(carries(said, "\"rule\": \"bond-leg-down\"")) << said;
  EXPECT_TRUE(carries(said, "d1")) << said;
}

}  // namespace
}  // namespace fairway::rdma
