#include <algorithm>
#include <thread>

#include "fairway/collectives.h"

#include "net/side.h"

// The ranks of a job on two hosts find each other by one key.
namespace fairway::net {
namespace {

class JoinHosts : public TwoHosts {
 protected:
  // Two ranks at each host, a thread each; the third and fourth are `there`.
  void join_all(const std::function<std::vector<std::string>(int rank)>& variables) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank)
      threads.emplace_back([&, rank] {
        const Inside inside(rank < 2 ? here() : there());
        const std::vector<std::string> lines = variables(rank);
        std::vector<const char*> environment;
        for (const std::string& line : lines) environment.push_back(line.c_str());
        environment.push_back(nullptr);
        JobOptions options;
        options.environment = environment.data();
        options.communicator.timeout = kHang;
        auto group = Communicator::join(options);
        ASSERT_TRUE(group) << group.status().to_string();
        EXPECT_EQ(group->engine()->address().substr(0, 10), rank < 2 ? "10.77.1.1:" : "10.77.1.2:");
        int sum = rank;
        const Status status = group->run({CollectiveKind::all_reduce, &sum, &sum, 1, DataType::i32});
        EXPECT_TRUE(status) << status.to_string();
        EXPECT_EQ(sum, 6);
      });
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(JoinHosts, PlainVariables) {
  join_all([](int rank) -> std::vector<std::string> {
    return {"RANK=" + std::to_string(rank), "WORLD_SIZE=4", "MASTER_ADDR=10.77.1.1", "MASTER_PORT=4000",
            "FAIRWAY_JOB_KEY=secret"};
  });
}

TEST_F(JoinHosts, MpiWithTheFirstRanksAddress) {
  join_all([](int rank) -> std::vector<std::string> {
    return {"OMPI_COMM_WORLD_RANK=" + std::to_string(rank),
            "OMPI_COMM_WORLD_SIZE=4",
            "OMPI_COMM_WORLD_LOCAL_RANK=" + std::to_string(rank % 2),
            "OMPI_COMM_WORLD_LOCAL_SIZE=2",
            "FAIRWAY_MASTER=10.77.1.1:4001",
            "FAIRWAY_JOB_KEY=secret"};
  });
}

// Dealt to the hosts like cards: rings and trees go along hosts, and every value is where its rank's number says.
TEST_F(JoinHosts, RanksDealtToHostsInTurnsGetTheirOwn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      const Inside inside(rank % 2 == 0 ? here() : there());
      const std::string own = "RANK=" + std::to_string(rank);
      const char* const environment[] = {own.c_str(),        "WORLD_SIZE=4",           "MASTER_ADDR=10.77.1.1",
                                         "MASTER_PORT=4003", "FAIRWAY_JOB_KEY=secret", nullptr};
      JobOptions options;
      options.environment = environment;
      options.communicator.timeout = kHang;
      auto group = Communicator::join(options);
      ASSERT_TRUE(group) << group.status().to_string();
      constexpr int kCount = 40'000;  // of each rank: several pieces
      std::vector<int> mine(kCount * 4, rank + 1), all(kCount * 4, -1);
      const auto run = [&](Collective call) {
        call.type = DataType::i32;
        const Status status = group->run(call);
        EXPECT_TRUE(status) << status.to_string();
      };
      Collective call{CollectiveKind::all_reduce, mine.data(), all.data(), kCount};
      call.algorithm = Algorithm::ring;
      run(call);
      EXPECT_EQ(std::count(all.begin(), all.begin() + kCount, 10), kCount);
      call.kind = CollectiveKind::all_gather;
      run(call);
      for (int of = 0; of < 4; ++of)
        EXPECT_EQ(std::count(all.begin() + of * kCount, all.begin() + (of + 1) * kCount, of + 1), kCount) << of;
      for (int to = 0; to < 4; ++to) std::fill_n(mine.begin() + to * kCount, kCount, 10 * rank + to);
      call.kind = CollectiveKind::reduce_scatter;
      run(call);
      EXPECT_EQ(std::count(all.begin(), all.begin() + kCount, 60 + 4 * rank), kCount);
      std::fill(all.begin(), all.end(), rank == 1 ? 7 : 0);
      call.kind = CollectiveKind::broadcast;
      call.algorithm = Algorithm::chain;
      call.root = 1;
      call.input = call.output = all.data();
      run(call);
      EXPECT_EQ(std::count(all.begin(), all.begin() + kCount, 7), kCount);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(JoinHosts, AnotherKeyKeepsARankOut) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const Inside inside(rank == 0 ? here() : there());
      const std::string own = "RANK=" + std::to_string(rank), key = "FAIRWAY_JOB_KEY=" + std::to_string(rank);
      const char* const environment[] = {own.c_str(),        "WORLD_SIZE=2", "MASTER_ADDR=10.77.1.1",
                                         "MASTER_PORT=4002", key.c_str(),    nullptr};
      JobOptions options;
      options.environment = environment;
      options.communicator.timeout = std::chrono::seconds(3);
      const auto group = Communicator::join(options);
      ASSERT_FALSE(group);
      if (rank == 0) return;
      EXPECT_EQ(group.status().code(), ErrorCode::authentication_failed) << group.status().to_string();
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fairway::net
