#include <string>

#include "rdma_vm/ends.h"

// `fairway bench --via verbs` as a user types it, on the guest's two devices.
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

struct BenchOverVerbs : Ends {};

TEST_F(BenchOverVerbs, OptionsOfNicsReachBothEnginesAndErrorsNameThem) {
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
  refused("--pkey 0x8123", "not in partition 0x8123 (--pkey), only in 0xffff");
}

}  // namespace
}  // namespace fairway::rdma
