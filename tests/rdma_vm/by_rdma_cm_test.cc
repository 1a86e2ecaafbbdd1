#include <sstream>

#include "rdma_vm/ends.h"

// Links of RoCE that rdma_cm connects, as it does iWARP's.
namespace fairway::rdma {
namespace {

struct ByRdmaCm : Ends {
  void meet_by_it(bool near_asks, bool far_asks, std::int32_t gid_index = -1) {
    EngineOptions here = on("rxe0"), there = on("rxe1");
    here.rdma.connection_manager = near_asks;
    there.rdma.connection_manager = far_asks;
    here.rdma.gid_index = there.rdma.gid_index = gid_index;
    meet_between(here, there);
  }
  // What the kernel's connection manager has, of all processes.
  static std::size_t its(const std::string& state) {
    std::istringstream lines(said_by("rdma resource show cm_id"));
    std::size_t found = 0;
    for (std::string line; std::getline(lines, line);) found += line.find(state) != std::string::npos;
    return found;
  }
};

TEST_F(ByRdmaCm, IsUsedWhereEitherSideAsksForIt) {
  for (const bool near_asks : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(meet_by_it(near_asks, !near_asks));
    works();
    EXPECT_EQ(its("state CONNECT"), 2u) << said_by("rdma resource show cm_id");
    EXPECT_EQ(its("state LISTEN"), 1u);
    TearDown();
  }
  ASSERT_NO_FATAL_FAILURE(meet_by_it(false, false));
  works();
  EXPECT_EQ(its("cm-idn"), 0u) << said_by("rdma resource show cm_id");
}

// Not by its cable: on 6.1 soft-RoCE hears of no connection any more once it had to say something while it was down.
TEST_F(ByRdmaCm, ALinkComesBackOnceTheNetworkCarriesIt) {
  ASSERT_NO_FATAL_FAILURE(meet_by_it(true, true));
  works();
  disturb("loss 100%");
  std::vector<TransferId> ids;
  start(ids, 1);
  ASSERT_TRUE(until_up(false));
  calm();
  ASSERT_TRUE(until_up(true));
  works();
  EXPECT_EQ(its("state CONNECT"), 2u) << said_by("rdma resource show cm_id");
}

TEST_F(ByRdmaCm, LinksThatCameAndWentLeaveNothing) {
  Held before;
  for (int i = 0; i < 6; ++i) {
    if (i == 2) before = held();  // librdmacm is loaded, its devices open
    ASSERT_NO_FATAL_FAILURE(meet_by_it(i % 2 == 0, true));
    works();
    TearDown();
  }
  const Held after = held();
  EXPECT_EQ(before, after) << text(before) << "; then " << text(after);
  EXPECT_EQ(its("cm-idn"), 0u) << said_by("rdma resource show cm_id");
}

}  // namespace
}  // namespace fairway::rdma
