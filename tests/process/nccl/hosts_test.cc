#include "process/nccl/hosts.h"

#include <cstdlib>

#include "process/nccl/ring.h"

namespace fairway::nccl {
namespace {

TEST_F(NcclHosts, AreReachedWithAnAddressAndAKey) {
  Ranks ranks(2, [this](Board& board, int rank) {
    (*hosts_)[static_cast<std::size_t>(rank)].enter();
    ::setenv("FAIRWAY_LISTEN", rank == 0 ? "10.77.1.1" : "10.77.1.2", 1);
    ::setenv("FAIRWAY_JOB_KEY", "of the test", 1);
    ::setenv("NCCL_DEBUG", "INFO", 1);  // only then the log has the route
    ring(board, rank, 2, 12, 120);
    if (!says(" by tcp/one/")) throw Failure("not by the cable: " + said());
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST_F(NcclHosts, AnotherKeyIsRefused) {
  Ranks ranks(2, [this](Board& board, int number) {
    (*hosts_)[static_cast<std::size_t>(number)].enter();
    ::setenv("FAIRWAY_LISTEN", number == 0 ? "10.77.1.1" : "10.77.1.2", 1);
    ::setenv("FAIRWAY_JOB_KEY", number == 0 ? "one" : "another", 1);
    Rank rank(board, number, 2, 12);
    void *listener = nullptr, *sender = nullptr;
    HandleBytes mine{};
    rank.must(rank.table->listen(mine, &listener), "listen");
    board.handles[number][1 - number] = mine;
    board.there[number][1 - number] = true;
    rank.until("a handle", [&] { return board.there[1 - number][number].load(); });
    HandleBytes theirs = board.handles[1 - number][number];
    abi::Code code = abi::kSuccess;
    rank.until("the refusal", [&] {
      code = rank.table->connect(theirs, &sender);
      if (sender != nullptr) throw Failure("they met");
      return code != abi::kSuccess;
    });
    if (said().find("authentication_failed") == std::string::npos) throw Failure(said());
    rank.barrier(0);
    rank.must(rank.table->close_listener(listener), "closeListen");
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl
