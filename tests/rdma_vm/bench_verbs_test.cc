#include <string>

#include "rdma_vm/ends.h"

// `fairway bench verbs` and `bench peers` as a user types them, on the guest's two devices.
namespace fairway::rdma {
namespace {

std::string bench(const std::string& arguments) {
  return said_by("timeout 60 " FAIRWAY_TOOL " bench " + arguments);
}

std::size_t times(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

struct BenchVerbs : Ends {};

TEST_F(BenchVerbs, EveryOperationOfEveryTypeArrivesAndIsCounted) {
  const std::string said = bench("verbs --size 3,4K --seconds 0 --json -");
  EXPECT_EQ(times(said, "\"format\": \"fairway-bench-verbs\""), 1u) << said;
  EXPECT_EQ(times(said, "\"type\": \"RC\""), 10u) << said;  // of two sizes four, and two atomics
  EXPECT_EQ(times(said, "\"type\": \"UC\""), 6u) << said;
  EXPECT_EQ(times(said, "\"type\": \"UD\""), 2u) << said;
  EXPECT_EQ(times(said, "\"lost\": 0,"), 18u) << said;
  EXPECT_EQ(times(said, "\"verified_bytes\": 0}"), 0u) << said;
  EXPECT_EQ(times(said, "\"doorbells_per_operation\": 1.0000"), 18u) << said;
  EXPECT_EQ(times(said, "\"completions_per_operation\": 1.0000"), 18u) << said;
  EXPECT_EQ(times(said, "\"target_receives_per_operation\": 1.0000"), 10u) << said;  // send, write_immediate
}

TEST_F(BenchVerbs, AListRingsOnceAndSleepersArriveAsWell) {
  const std::string said = bench(
      "verbs --operation write_immediate,send --size 4000 --post-list 16 --queue-pairs 2 --sge 3 --mtu 4096 "
      "--gid 2 --inline 0 --events --seconds 0 --device rxe1,rxe0/1 --json -");
  EXPECT_EQ(times(said, "\"from\": \"rxe1/1\", \"to\": \"rxe0/1\", \"gid_index\": 2"), 5u) << said;
  EXPECT_EQ(times(said, "\"doorbells_per_operation\": 0.0625"), 5u) << said;
  EXPECT_EQ(times(said, "\"work_requests_per_operation\": 1.0000"), 5u) << said;
  EXPECT_EQ(times(said, "\"inline\": false, \"events\": true"), 5u) << said;
  EXPECT_EQ(times(said, "\"lost\": 0,"), 5u) << said;
}

TEST_F(BenchVerbs, WhatUnreliablePairsLoseIsCountedAndWhatArrivesIsRight) {
  must("tc qdisc add dev v0 root netem loss 10%");
  const std::string said = bench("verbs --type UD --size 64 --seconds 0 --json -");
  must("tc qdisc del dev v0 root");
  EXPECT_EQ(times(said, "\"lost\": "), 1u) << said;
  EXPECT_EQ(times(said, "\"lost\": 0,"), 0u) << said;
}

TEST_F(BenchVerbs, WhatDeviceAndPathDoNotHaveIsNamed) {
  const auto refuses = [](const std::string& arguments, const std::string& word, int status) {
    const std::string said = bench("verbs --seconds 0 " + arguments);
    EXPECT_NE(said.find(word), std::string::npos) << arguments << ": " << said;
    EXPECT_NE(said.find("(status " + std::to_string(status << 8) + ")"), std::string::npos)
        << arguments << ": " << said;
  };
  refuses("--type UD --size 4097", "UD send of 4097 B cannot be: a datagram has at most the path's MTU, 4096", 2);
  refuses("--type RC --sge 256", "the device has 32", 2);
  refuses("--gid 77", "no GID of index 77", 1);
  refuses("--device mlx5_9", "--device names mlx5_9, and this host has rxe0/1, rxe1/1", 1);
}

TEST_F(BenchVerbs, OptionsOfNicsReachBothEnginesAndErrorsNameThem) {
  const std::string said = bench(
      "--via verbs --rdma-device rxe0,rxe1 --gid 1 --queue-pairs 2 --mtu 1024 --traffic-class 106 --service-level 3 "
      "--pkey 0xffff --hop-limit 2 --on-demand off --operation write --size 64K --seconds 0 --csv -");
  EXPECT_EQ(said.find("(status"), std::string::npos) << said;
  EXPECT_EQ(times(said, ",write,"), 1u) << said;
  const auto refused = [](const std::string& arguments, const std::string& words) {
    const std::string told = bench("--via verbs --size 64K --seconds 0 " + arguments);
    EXPECT_NE(told.find(words), std::string::npos) << arguments << ": " << told;
  };
  refused("--rdma-device mlx5_9", "--rdma-device names mlx5_9, and this host has rxe0/1, rxe1/1");
  refused("--gid 77", "no GID of index 77 (--gid); it has: 0 fe80");
  refused("--pkey 0x8123", "in no partition 0x8123 (--pkey), only in 0xffff");
}

TEST_F(BenchVerbs, AKilledOtherProcessEndsIt) {
  const std::string said = said_by(FAIRWAY_TOOL
                                   " bench verbs --type RC --operation send --size 8 --seconds 60 2>&1 & "
                                   "sleep 1; kill -9 $(pgrep -P $!); wait $!");
  EXPECT_NE(said.find("the other process has ended"), std::string::npos) << said;
}

}  // namespace
}  // namespace fairway::rdma
