#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "collectives/host/choose.h"
#include "process/collectives/case.h"
#include "process/collectives/group.h"
#include "support/sanitized.h"

// Every collective with every type, algorithm and number of ranks, every value compared.
namespace fairway {
namespace {

GroupOptions group(int size, const std::string& transport, std::uint32_t slot_bytes) {
  GroupOptions options;
  options.size = size;
  options.transports = {transport};
  options.communicator.slot_bytes = slot_bytes;
  return options;
}

TEST(NoElements, NeedNoMemory) {
  for (const int size : {1, 2, 3, 5})
    run_group(group(size, "shm", 128), [](Engine&, Communicator& communicator) {
      std::byte place{0x5A};
      for (const CollectiveKind kind : kMoving)
        for (const auto& [type, reproducible] :
             {std::pair(DataType::f32, false), {DataType::f32, true}, {DataType::f8e4m3, true}})
          for (const Algorithm algorithm : collectives::algorithms_of(kind, reproducible))
            for (void* const input : {static_cast<void*>(nullptr), static_cast<void*>(&place)})
              for (void* const output : {static_cast<void*>(nullptr), static_cast<void*>(&place)}) {
                Collective call{.kind = kind, .input = input, .output = output, .type = type};
                call.algorithm = algorithm;
                call.reproducible = reproducible;
                const Status status = communicator.run(call);
                ASSERT_TRUE(status) << status.to_string();
              }
      EXPECT_EQ(place, std::byte{0x5A});
    });
}

struct Matrix : testing::TestWithParam<int> {};
// A sanitizer sees in groups of up to 6 what it sees in larger ones.
INSTANTIATE_TEST_SUITE_P(Ranks, Matrix, testing::Range(1, kSanitized ? 7 : 18), testing::PrintToStringParamName());

// Small slots, so that a few hundred bytes travel in several pieces.
TEST_P(Matrix, EveryAlgorithmGivesEveryValue) {
  run_group(group(GetParam(), "shm", 128), [](Engine&, Communicator& communicator) {
    const int size = communicator.size();
    for (const CollectiveKind kind : kMoving)
      for (const Algorithm algorithm : collectives::algorithms_of(kind))
        for (const std::size_t count : {0, 1, 5, 32, 33, 150})
          for (const bool in_place : {false, true})
            if (!run_case(communicator, {kind, algorithm, DataType::f32, Reduction::sum, count,
                                         static_cast<int>(count) % size, in_place, count % 5}))
              return;
  });
}

TEST_P(Matrix, EveryTypeAndReduction) {
  run_group(group(GetParam(), "shm", 256), [](Engine&, Communicator& communicator) {
    for (const DataType type : kAllTypes)
      for (const Reduction reduction :
           {Reduction::sum, Reduction::product, Reduction::min, Reduction::max, Reduction::average})
        for (const CollectiveKind kind :
             {CollectiveKind::all_reduce, CollectiveKind::reduce, CollectiveKind::reduce_scatter})
          if (!run_case(communicator, {kind, Algorithm::automatic, type, reduction, 37, 0, false, 1})) return;
  });
}

struct Transports : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Transports, testing::Values("loopback", "shm", "tcp"));

TEST_P(Transports, WorkerThreadsDoToo) {
  GroupOptions options = group(3, GetParam(), 1024);
  options.progress = Progress::threads;
  run_group(options, [](Engine&, Communicator& communicator) {
    for (const CollectiveKind kind : kMoving)
      for (const std::size_t count : {1, 3000})
        if (!run_case(communicator, {kind, Algorithm::automatic, DataType::i64, Reduction::max, count, 2, false, 0}))
          return;
  });
}

// Each rank must choose as the others do, by what its links are, before anything has been measured on them.
TEST(Chooser, KnowsFromTheBeginningWhatLinksThereAre) {
  const std::pair<std::vector<std::string>, const collectives::Costs*> expected[] = {
      {{"shm"}, &collectives::kMapped},
      {{"shm", "tcp"}, &collectives::kMapped},
      {{"loopback"}, &collectives::kSameHost},
      {{"tcp"}, &collectives::kNetwork}};
  for (const auto& [transports, costs] : expected) {
    GroupOptions options = group(4, transports.front(), 0);
    options.transports = transports;
    run_group(options, [&, names = transports, by = costs](Engine&, Communicator& communicator) {
      for (const CollectiveKind kind : kMoving)
        for (std::size_t count = 1; count <= (1U << 22); count *= 2)
          EXPECT_EQ(communicator.chosen({.kind = kind, .count = count, .type = DataType::f32}),
                    collectives::choose(kind, communicator.size(), count * 4, 64 << 10, *by))
              << names.front() << ", " << to_string(kind) << " of " << count;
    });
  }
}

// More than 1 MiB is sent from where it lies, but by shm, which stores it at once: nobody may read there once the
// operation has ended. Few elements that are large, since comparing them takes most of the time.
struct MuchData : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, MuchData, testing::Values("shm", "loopback", "tcp"));

TEST_P(MuchData, IsLeftAloneOnceItsOperationHasEnded) {
  for (int size = 2; size <= (kSanitized ? 3 : 4); ++size)
    run_group(group(size, GetParam(), 0), [size](Engine&, Communicator& communicator) {
      for (const CollectiveKind kind : kMoving)
        for (const Algorithm algorithm : collectives::algorithms_of(kind))
          for (const bool in_place : {false, true}) {
            if (kind == CollectiveKind::barrier) continue;
            const Case with{kind, algorithm, DataType::f64, Reduction::sum, 150'001, size - 1, in_place, 0};
            for (int round = 0; round < (kSanitized ? 1 : 2); ++round) {
              One one(with, communicator.rank(), size);
              const Status status = communicator.run(one.call);
              one.scribble();
              const std::string wrong = status ? one.wrong() : status.to_string();
              ASSERT_EQ(wrong, "") << name_of(with) << ", " << size << " ranks";
            }
          }
    });
}

struct Processes : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Processes, testing::Values("shm", "tcp"));

TEST_P(Processes, HaveEveryValueToo) {
  for (const int size : {2, 4}) {
    const auto ends = run_processes(group(size, GetParam(), 0), [](Engine&, Communicator& communicator) {
      for (const CollectiveKind kind : kMoving) {
        for (const std::size_t count : {1, 1000, 50000}) {
          const Case with{kind, Algorithm::automatic, DataType::f32, Reduction::sum, count, 0, false, 0};
          One one(with, communicator.rank(), communicator.size());
          const Status status = communicator.run(one.call);
          const std::string wrong = status ? one.wrong() : status.to_string();
          if (!wrong.empty()) return std::fprintf(stderr, "%s: %s\n", name_of(with).c_str(), wrong.c_str()), 1;
        }
      }
      return 0;
    });
    for (const RankEnd& end : ends) EXPECT_TRUE(end.well) << end.said;
  }
}

TEST(Collectives, RunAsynchronouslyInTheOrderOfTheirStart) {
  run_group(group(3, "shm", 128), [](Engine&, Communicator& communicator) {
    std::vector<std::unique_ptr<One>> all;
    std::vector<OperationId> ids;
    for (std::size_t i = 0; i < 20; ++i) {
      const Case with{i % 2 == 0 ? CollectiveKind::all_reduce : CollectiveKind::all_to_all,
                      Algorithm::automatic,
                      DataType::i32,
                      Reduction::sum,
                      i * 7,
                      0,
                      false,
                      0};
      all.push_back(std::make_unique<One>(with, communicator.rank(), communicator.size()));
      const auto id = communicator.start(all.back()->call);
      ASSERT_TRUE(id) << id.status().to_string();
      ids.push_back(*id);
    }
    while (!communicator.test(ids[10])) {
    }
    for (std::size_t i = ids.size(); i-- > 0;) {  // collected in any order
      const Status status = communicator.wait(ids[i]);
      ASSERT_TRUE(status) << status.to_string();
      ASSERT_EQ(all[i]->wrong(), "");
    }
    EXPECT_EQ(communicator.wait(ids[0]).code(), ErrorCode::not_found);
  });
}

TEST(Collectives, MoveBlocksOfAnySizes) {
  for (const int size : {1, 2, 5}) {
    run_group(group(size, "shm", 128), [](Engine&, Communicator& communicator) {
      const int n = communicator.size(), me = communicator.rank();
      const auto length = [](int from, int to) { return static_cast<std::size_t>((from * 31 + to * 17) % 90); };
      std::vector<std::size_t> out_counts, out_offsets, in_counts, in_offsets;
      std::size_t out = 0, in = 0;
      for (int peer = 0; peer < n; ++peer) {
        out_counts.push_back(length(me, peer));
        out_offsets.push_back(out);
        in_counts.push_back(length(peer, me));
        in_offsets.push_back(in);
        out += length(me, peer);
        in += length(peer, me);
      }
      std::vector<std::int32_t> input(out + 1), output(in + 1, -1);
      for (int peer = 0; peer < n; ++peer)
        for (std::size_t i = 0; i < length(me, peer); ++i)
          input[out_offsets[static_cast<std::size_t>(peer)] + i] = me * 10000 + peer * 100 + static_cast<int>(i);
      Collective call;
      call.kind = CollectiveKind::all_to_allv;
      call.type = DataType::i32;
      call.input = input.data();
      call.output = output.data();
      call.send = {out_counts, out_offsets};
      call.receive = {in_counts, in_offsets};
      const Status status = communicator.run(call);
      ASSERT_TRUE(status) << status.to_string();
      for (int peer = 0; peer < n; ++peer)
        for (std::size_t i = 0; i < length(peer, me); ++i)
          ASSERT_EQ(output[in_offsets[static_cast<std::size_t>(peer)] + i],
                    peer * 10000 + me * 100 + static_cast<int>(i));
      EXPECT_EQ(output.back(), -1);
    });
  }
}

TEST(Collectives, SplitIntoGroupsThatWorkApart) {
  run_group(group(5, "shm", 128), [](Engine&, Communicator& communicator) {
    const int me = communicator.rank();
    auto part = communicator.split(me == 4 ? -1 : me % 2, -me);
    if (me == 4) {
      EXPECT_EQ(part.status().code(), ErrorCode::not_found);
    } else {
      ASSERT_TRUE(part) << part.status().to_string();
      EXPECT_EQ(part->size(), 2);
      EXPECT_EQ(part->rank(), me < 2 ? 1 : 0);  // the larger key first
      for (int round = 0; round < 3; ++round)
        if (!run_case(*part, {CollectiveKind::all_reduce, Algorithm::automatic, DataType::f64, Reduction::sum, 100, 0,
                              false, 0}))
          return;
    }
    EXPECT_TRUE(communicator.run({}));
  });
}

}  // namespace
}  // namespace fairway
