#include <gtest/gtest.h>

#include "collectives/host/choose.h"
#include "process/collectives/case.h"
#include "process/collectives/group.h"
#include "support/sanitized.h"

// Ranks of several hosts: those of one store into each other's memory, the others go by the engine, in one operation.
namespace fairway {
namespace {

GroupOptions on_hosts(std::vector<int> hosts, std::uint32_t slot_bytes) {
  GroupOptions options;
  options.size = static_cast<int>(hosts.size());
  options.transports = {"shm", "tcp"};
  options.hosts = std::move(hosts);
  options.communicator.slot_bytes = slot_bytes;
  return options;
}

const std::vector<std::vector<int>> kHosts = {{0, 0, 1, 1}, {0, 1, 0}, {0, 1, 2, 0, 1}, {0, 0, 0, 1, 1, 1, 2, 2}};

TEST(Hosts, EveryAlgorithmGivesEveryValue) {
  for (const std::vector<int>& hosts : kHosts) {
    if (kSanitized && hosts.size() > 5) continue;
    run_group(on_hosts(hosts, 128), [](Engine&, Communicator& communicator) {
      const int size = communicator.size();
      for (const CollectiveKind kind : kMoving) {
        const auto flat = collectives::algorithms_of(kind);
        std::vector<Algorithm> algorithms(flat.begin(), flat.end());
        if (kind == CollectiveKind::all_reduce) algorithms.push_back(Algorithm::hierarchical);
        for (const Algorithm algorithm : algorithms)
          for (const std::size_t count : {0, 1, 5, 32, 33, 150, 3000})
            for (const bool in_place : {false, true})
              if (!run_case(communicator, {kind, algorithm, DataType::f32, Reduction::sum, count,
                                           static_cast<int>(count) % size, in_place, count % 5}))
                return;
      }
    });
  }
}

// With the usual slots, and sizes around a piece within a host, one between hosts, and where bytes are sent from where
// they lie.
TEST(Hosts, MuchDataGivesEveryValue) {
  for (const std::vector<int>& hosts : kHosts) {
    if (kSanitized && hosts.size() > 4) continue;
    run_group(on_hosts(hosts, 0), [](Engine&, Communicator& communicator) {
      for (const Reduction reduction : {Reduction::sum, Reduction::average})
        for (const std::size_t count : {1, 511, 512, 8191, 8192, 16385, 65537, 150'001, 700'001})
          for (const bool in_place : {false, true}) {
            const Case with{
                CollectiveKind::all_reduce, Algorithm::hierarchical, DataType::f64, reduction, count, 0, in_place, 0};
            One one(with, communicator.rank(), communicator.size());
            const Status status = communicator.run(one.call);
            one.scribble();
            const std::string wrong = status ? one.wrong() : status.to_string();
            if (!wrong.empty()) return (void)(ADD_FAILURE() << name_of(with) << ": " << wrong);
          }
    });
  }
}

// What combines in the order of ranks knows no hosts; a rank for each host is no group.
TEST(Hosts, AreOnlyUsedWhereTheyHelp) {
  run_group(on_hosts({0, 0, 1, 1}, 0), [](Engine&, Communicator& communicator) {
    Collective call{.kind = CollectiveKind::all_reduce, .type = DataType::f32};
    for (call.count = 1; call.count < (4U << 20); call.count *= 4)
      EXPECT_EQ(communicator.chosen(call), Algorithm::hierarchical) << call.count;
    call.reproducible = true;
    EXPECT_NE(communicator.chosen(call), Algorithm::hierarchical);
  });
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1, 2}, std::vector<int>{0, 0, 0}})
    run_group(on_hosts(hosts, 0), [](Engine&, Communicator& communicator) {
      EXPECT_NE(communicator.chosen({.kind = CollectiveKind::all_reduce, .count = 1000, .type = DataType::f32}),
                Algorithm::hierarchical);
    });
}

// Its counter rides on its write: no record of the engine follows, which would take a round trip more.
TEST(Hosts, AMessageByTcpIsOneSlice) {
  GroupOptions options = on_hosts({0, 1}, 0);
  options.transports = {"tcp"};
  run_group(options, [](Engine& engine, Communicator& communicator) {
    const auto slices = [&engine] {
      std::uint64_t all = 0;
      for (const LinkMetrics& link : engine.metrics().links) all += link.slices;
      return all;
    };
    constexpr std::uint64_t kMessages = 64, kGivenBack = kMessages / 4;  // of this rank, one in each barrier
    const std::uint64_t before = slices();
    for (std::uint64_t i = 0; i < kMessages; ++i)
      ASSERT_TRUE(communicator.run({.kind = CollectiveKind::barrier}).is_ok());
    EXPECT_LE(slices() - before, kMessages + kGivenBack + 8);
  });
}

// Messages between pairs, and operations in any order, beside each other.
TEST(Hosts, ManySmallOperationsInARow) {
  run_group(on_hosts({0, 0, 1, 1}, 0), [](Engine&, Communicator& communicator) {
    for (int round = 0; round < 300; ++round)
      for (const CollectiveKind kind : kMoving)
        if (!run_case(communicator, {kind, Algorithm::automatic, DataType::i32, Reduction::max,
                                     static_cast<std::size_t>(1 + round % 7), round % 4, false, 0}))
          return;
  });
}

}  // namespace
}  // namespace fairway
