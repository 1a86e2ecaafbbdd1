#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "collectives/host/choose.h"
#include "collectives/host/schedule.h"
#include "unit/collectives/schedule_model.h"

// Ranks that a launcher has dealt over hosts and NUMA nodes like cards: rings and trees go along hosts all the same.
namespace fairway::collectives {
namespace {

constexpr int kHosts = 3, kNodes = 2;

// Rank r is on host r % 3, and there on node r / 3 % 2.
std::vector<Words> dealt(int size) {
  std::vector<Words> words(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    words[static_cast<std::size_t>(rank)].host = static_cast<std::uint64_t>(100 - rank % kHosts);
    words[static_cast<std::size_t>(rank)].node = static_cast<std::int16_t>(rank / kHosts % kNodes);
  }
  return words;
}

Shape shape_of(CollectiveKind kind, Algorithm algorithm, int size) {
  Shape shape;
  shape.kind = kind;
  shape.algorithm = algorithm;
  shape.size = size;
  shape.count = 24;
  shape.element_bytes = 8;
  shape.piece_bytes = 1024;
  return shape;
}

// Pairs of a sender and a receiver of bytes on two hosts, and on two nodes of one.
std::pair<int, int> crossings(Shape shape, const std::vector<int>& order, const std::vector<Words>& words) {
  std::vector<std::pair<int, int>> pairs;
  for (shape.rank = 0; shape.rank < shape.size; ++shape.rank) {
    Schedule schedule;
    make_schedule_along(order, shape, schedule);
    for (const Step& step : schedule.steps)
      if (step.kind == Step::Kind::send && step.bytes > 0) pairs.emplace_back(shape.rank, step.peer);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::pair<int, int> crossed;
  for (const auto& [from, to] : pairs) {
    const Words &a = words[static_cast<std::size_t>(from)], &b = words[static_cast<std::size_t>(to)];
    if (a.host != b.host)
      ++crossed.first;
    else if (a.node != b.node)
      ++crossed.second;
  }
  return crossed;
}

TEST(ScheduleOrder, RanksOfAHostAndANodeAreBesideEachOther) {
  EXPECT_EQ(order_of(dealt(12)), (std::vector<int>{0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11}));
  EXPECT_TRUE(order_of(std::vector<Words>(5)).empty()) << "one host";
  EXPECT_TRUE(order_of(dealt(3)).empty()) << "a host for each";
}

TEST(ScheduleOrder, RingsAndChainsCrossHostsAndNodesOnce) {
  const auto words = dealt(12);
  const auto order = order_of(words);
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    const Shape ring = shape_of(kind, Algorithm::ring, 12);
    EXPECT_EQ(crossings(ring, order, words), std::pair(kHosts, kHosts * (kNodes - 1))) << to_string(kind);
    EXPECT_EQ(crossings(ring, {}, words).first, 12) << "else every step goes to another host";
  }
  for (const CollectiveKind kind : {CollectiveKind::broadcast, CollectiveKind::reduce})
    EXPECT_EQ(crossings(shape_of(kind, Algorithm::chain, 12), order, words),
              std::pair(kHosts - 1, kHosts * (kNodes - 1)));
  const Shape tree = shape_of(CollectiveKind::broadcast, Algorithm::binomial, 12);
  EXPECT_LT(crossings(tree, order, words).first, crossings(tree, {}, words).first);
}

TEST(ScheduleOrder, EveryCollectiveIsRightInAnyOrder) {
  for (const int size : {2, 3, 5, 8, 12, 17})
    for (const CollectiveKind kind :
         {CollectiveKind::barrier, CollectiveKind::all_reduce, CollectiveKind::reduce, CollectiveKind::broadcast,
          CollectiveKind::all_gather, CollectiveKind::gather, CollectiveKind::scatter, CollectiveKind::reduce_scatter,
          CollectiveKind::all_to_all})
      for (const bool ordered : {false, true})
        for (const Algorithm algorithm : algorithms_of(kind, ordered))
          for (const bool in_place : {false, true})
            for (const std::uint64_t count : {0, 1, 24, 301}) {
              Shape shape = shape_of(kind, algorithm, size);
              shape.count = count;
              shape.piece_bytes = 100;
              shape.in_place = in_place;
              shape.ordered = ordered;
              shape.premul = count == 24;
              shape.root = size / 2;
              std::vector<int> order;  // backwards, and turned
              for (int i = 0; i < size; ++i) order.push_back((2 * size - i) % size);
              ScheduleModel model(shape, {}, order);
              ASSERT_EQ(model.run(ScheduleModel::Order::random, count, kLeastRoom), "")
                  << to_string(kind) << " by " << to_string(algorithm) << ", " << size << " ranks, " << count;
            }
}

TEST(Nearness, KnowsTheNodeOfAProcessThatIsHeldToOne) {
  EXPECT_EQ(numbers_of("0-2,7"), (std::vector<int>{0, 1, 2, 7}));
  const std::string nodes = testing::TempDir() + "nodes" + std::to_string(::getpid());
  for (const auto& [node, cpus] : {std::pair("node0", "0-3,8-11"), std::pair("node1", "4-7,12-15")}) {
    std::filesystem::create_directories(nodes + "/" + node);
    std::ofstream(nodes + "/" + node + "/cpulist") << cpus << '\n';
  }
  std::ofstream(nodes + "/online") << "0-1\n";
  EXPECT_EQ(node_of_cpus("2,9", nodes), 0);
  EXPECT_EQ(node_of_cpus("\t4-7", nodes), 1);
  EXPECT_EQ(node_of_cpus("3-4", nodes), -1) << "of both";
  EXPECT_EQ(node_of_cpus("2", nodes + "/nowhere"), -1);
  std::filesystem::remove_all(nodes);
}

}  // namespace
}  // namespace fairway::collectives
