#include <cstdlib>

#include <gtest/gtest.h>

#include "process/nccl/ring.h"

// The plugin over RDMA devices, for a guest that has them.
namespace fairway::nccl {
namespace {

TEST(NcclVerbs, EverySizeAroundARingOfTwo) {
  ::setenv("FAIRWAY_TRANSPORTS", "verbs", 1);
  ::setenv("FAIRWAY_PEER_TIMEOUT_MS", "20000", 1);  // the guest is slow
  Ranks ranks(2, [](Board& board, int rank) {
    ring(board, rank, 2, 12, 40);
    if (said().find(" by verbs/") == std::string::npos) throw Failure("not over verbs: " + said());
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl
