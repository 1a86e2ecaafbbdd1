#include <thread>

#include "process/gpu_collectives/gpu_rank.h"

// Operations of different streams and graphs do not meet: whatever is launched how often and in whatever order.
namespace fairway {
namespace {

using namespace std::chrono_literals;

// all_reduces in place of `count` ints each, which grow by what all ranks add.
class Sum {
 public:
  Sum(GpuRank& rank, std::size_t count) : rank_(rank), count_(count), place_(rank.memory(count * 4)) { reset(); }
  void reset() {
    std::vector<std::byte> bytes(count_ * 4);
    for (std::size_t i = 0; i < count_; ++i) put(bytes.data(), i, DataType::i32, start(rank_.group.rank(), i));
    rank_.fill(place_, bytes);
  }
  bool enqueue(GpuStream stream) { return enqueue(stream, rank_.group); }
  bool enqueue(GpuStream stream, Communicator& by) {
    Collective call{.kind = CollectiveKind::all_reduce, .count = count_, .type = DataType::i32};
    call.input = call.output = place_;
    return rank_.expect(by.stream_run(call, stream), "enqueuing");
  }
  // After so many of them: each multiplies by the number of ranks once all are equal.
  bool is_right(int times) {
    const auto bytes = rank_.read(place_, count_ * 4);
    for (std::size_t i = 0; i < count_; ++i) {
      std::uint32_t want = 0;
      for (int rank = 0; rank < rank_.group.size(); ++rank) want += static_cast<std::uint32_t>(start(rank, i));
      for (int k = 1; k < times; ++k) want *= static_cast<std::uint32_t>(rank_.group.size());
      if (times == 0) want = static_cast<std::uint32_t>(start(rank_.group.rank(), i));
      std::uint32_t got = 0;
      std::memcpy(&got, bytes.data() + i * 4, 4);
      if (got != want)
        return rank_.fail("after " + std::to_string(times) + " of " + std::to_string(count_) + ": element " +
                          std::to_string(i) + " is " + std::to_string(got) + ", not " + std::to_string(want));
    }
    return true;
  }

 private:
  static int start(int rank, std::size_t at) { return rank * 3 + static_cast<int>(at % 11) + 1; }
  GpuRank& rank_;
  const std::size_t count_;
  std::byte* const place_;
};

struct GpuStreams : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuStreams, testing::Values(2, 3));

TEST_P(GpuStreams, OneThatWaitsHoldsUpNoOther) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    for (const std::size_t count : {std::size_t{5}, std::size_t{40'000}}) {
      Sum first(rank, count), second(rank, count);
      const GpuStream held = rank.stream(), other = rank.stream();
      void* word = nullptr;
      rank.gpus.on(rank.gpu, [&] { return rank.gpus.driver()->cuMemHostAlloc(&word, 4, 3); });
      *static_cast<std::uint32_t*>(word) = 0;
      if (rank.group.rank() == 0)  // its operation on `held` comes last of all
        rank.gpus.on(rank.gpu, [&] {
          return rank.gpus.driver()->cuStreamWaitValue32_v2(held, reinterpret_cast<sys::cuda::Address>(word), 1, 0);
        });
      for (int i = 0; i < 3; ++i)
        if (!first.enqueue(held) || !second.enqueue(other)) return;
      if (!rank.synchronize(other)) return (void)rank.fail("the context is broken");
      if (!second.is_right(3)) return;
      if (rank.is_idle(held)) return (void)rank.fail("did not wait for rank 0");
      if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
      std::atomic_ref(*static_cast<std::uint32_t*>(word)).store(1);
      if (!rank.synchronize(held) || !first.is_right(3)) return (void)rank.fail("the held one");
      if (!rank.expect(rank.group.stream_status(), "afterwards")) return;
    }
  });
}

// Each is launched a different number of times, on two streams at once, between operations that no graph has.
TEST_P(GpuStreams, GraphsAreLaunchedAnyNumberOfTimes) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    Sum small(rank, 7), large(rank, 30'000), other(rank, 300), loose(rank, 64);
    const GpuStream a = rank.stream(), b = rank.stream();
    Graphs graphs(rank);
    const sys::cuda::ReadyGraph both = graphs.capture(a, [&] { return small.enqueue(a) && large.enqueue(a); });
    const sys::cuda::ReadyGraph one = graphs.capture(a, [&] { return other.enqueue(a); });
    if (both == nullptr || one == nullptr) return (void)rank.fail("no graph");
    if (!small.is_right(0) || !other.is_right(0)) return (void)rank.fail("a capture has run");
    int loosely = 0;
    for (int i = 0; i < 12; ++i) {
      if (!graphs.launch(both, a)) return (void)rank.fail("a launch");
      if (i % 3 == 0 && !graphs.launch(one, b)) return (void)rank.fail("a launch");
      if (i % 4 == 1 && !loose.enqueue(a)) return;
      loosely += i % 4 == 1;
    }
    if (!rank.synchronize(a) || !rank.synchronize(b)) return (void)rank.fail("the context is broken");
    if (!small.is_right(12) || !large.is_right(12) || !other.is_right(4) || !loose.is_right(loosely)) return;
    (void)rank.expect(rank.group.stream_status(), "afterwards");
  });
}

TEST_P(GpuStreams, ThereMayBeAsManyAsOneLikes) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    std::vector<std::unique_ptr<Sum>> sums;
    std::vector<GpuStream> streams;
    for (int i = 0; i < 160; ++i) {  // none waits for another but by a place that both have
      sums.push_back(std::make_unique<Sum>(rank, i % 8 == 7 ? 20'000 : 9));
      streams.push_back(rank.stream());
      for (int k = 0; k < 3; ++k)
        if (!sums.back()->enqueue(streams.back())) return;
      if (i % 10 == 0 && !sums.front()->enqueue(streams.front())) return;  // one that is used all the time
    }
    for (std::size_t i = 0; i < streams.size(); ++i)
      if (!rank.synchronize(streams[i]) || !sums[i]->is_right(i == 0 ? 3 + 16 : 3))
        return (void)rank.fail("stream " + std::to_string(i));
    (void)rank.expect(rank.group.stream_status(), "afterwards");
  });
}

constexpr int kPlaces = 128;

// Its operation is behind all that the other had in flight, on this rank alone. Graphs have the other places: a stream
// that waits may hold up others of the hardware queue that both go through, and there are fewer of those.
TEST(GpuStream, WhoTakesOverAPlaceWaitsForTheOneBefore) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    Sum sum(rank, 9), held_sum(rank, 9), late(rank, 9);
    const GpuStream captured = rank.stream(), held = rank.stream(), last = rank.stream();
    Graphs graphs(rank);
    for (int i = 1; i < kPlaces; ++i)
      if (graphs.capture(captured, [&] { return sum.enqueue(captured); }) == nullptr)
        return (void)rank.fail("no graph " + std::to_string(i));
    void* word = nullptr;
    rank.gpus.on(rank.gpu, [&] { return rank.gpus.driver()->cuMemHostAlloc(&word, 4, 3); });
    *static_cast<std::uint32_t*>(word) = 0;
    if (rank.group.rank() == 0)
      rank.gpus.on(rank.gpu, [&] {
        return rank.gpus.driver()->cuStreamWaitValue32_v2(held, reinterpret_cast<sys::cuda::Address>(word), 1, 0);
      });
    if (!held_sum.enqueue(held) || !late.enqueue(last)) return;
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    if (rank.is_idle(last) || !late.is_right(0)) return (void)rank.fail("did not wait");
    std::atomic_ref(*static_cast<std::uint32_t*>(word)).store(1);
    if (!rank.synchronize(last) || !rank.synchronize(held)) return (void)rank.fail("afterwards");
    if (!held_sum.is_right(1) || !late.is_right(1)) return;
    (void)rank.expect(rank.group.stream_status(), "afterwards");
  });
}

// Until then the next is refused, by all.
TEST(GpuStream, ACapturesPlaceComesBackOnceNoRankHasItsGraph) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    Sum sum(rank, 300);
    const GpuStream stream = rank.stream();
    Graphs graphs(rank);
    std::vector<sys::cuda::ReadyGraph> all;
    const auto capture = [&] {
      all.push_back(graphs.capture(stream, [&] { return sum.enqueue(stream); }));
      return all.back() != nullptr || rank.fail("no graph " + std::to_string(all.size()));
    };
    const auto is_full = [&] {
      const Status full = rank.group.stream_run({}, rank.stream());
      return full.code() == ErrorCode::resource_exhausted || rank.fail(full.to_string());
    };
    for (int i = 0; i < kPlaces; ++i)
      if (!capture()) return;
    for (const int i : {5, 77, 127})
      if (!graphs.launch(all[i], stream)) return (void)rank.fail("a launch");
    if (!rank.synchronize(stream) || !sum.is_right(3)) return;
    if (rank.group.rank() == 0) graphs.destroy(all[3]);
    if (!is_full()) return;
    if (rank.group.rank() == 1) graphs.destroy(all[3]);
    graphs.destroy(all[77]);
    for (int i = 0; i < 2; ++i)
      if (!capture() || !graphs.launch(all.back(), stream)) return;
    if (!graphs.launch(all[5], stream) || !rank.synchronize(stream) || !sum.is_right(6)) return;
    if (!is_full()) return;
    (void)rank.expect(rank.group.stream_status(), "afterwards");
  });
}

TEST(GpuStream, AGraphOfACommunicatorThatIsGoneEndsAtOnceAndMovesNothing) {
  run_gpu_ranks(2, 20s, [](GpuRank& rank) {
    Sum small(rank, 300), large(rank, 30'000), after(rank, 9);
    const GpuStream stream = rank.stream();
    Graphs graphs(rank);
    sys::cuda::ReadyGraph graph = nullptr;
    {
      auto ends = rank.group.split(0);
      if (!rank.expect(ends.status(), "split")) return;
      if (!rank.expect(ends->use_gpu(rank.gpu, {.nccl = NcclUse::never}), "use_gpu")) return;
      graph = graphs.capture(stream, [&] { return small.enqueue(stream, *ends) && large.enqueue(stream, *ends); });
      if (graph == nullptr || !graphs.launch(graph, stream)) return (void)rank.fail("no graph");
      if (!rank.synchronize(stream) || !small.is_right(1) || !large.is_right(1)) return;
    }
    if (!rank.expect(rank.group.run({}), "both have left")) return;
    for (int i = 0; i < 3; ++i)
      if (!graphs.launch(graph, stream)) return (void)rank.fail("a launch");
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    if (!small.is_right(1) || !large.is_right(1)) return;
    if (after.enqueue(stream) && rank.synchronize(stream)) (void)after.is_right(1);
  });
}

TEST(GpuStream, GraphsThatTakeTurnsAreAsManyAsOneLikes) {
  run_gpu_ranks(2, 10min,
                [](GpuRank& rank) {
                  Sum sum(rank, 300), loose(rank, 9);
                  const GpuStream stream = rank.stream();
                  Graphs graphs(rank);
                  std::vector<sys::cuda::ReadyGraph> all;
                  for (int i = 0; i < kPlaces + 12; ++i) {
                    all.push_back(graphs.capture(stream, [&] { return sum.enqueue(stream); }));
                    if (all.back() == nullptr) return (void)rank.fail("no graph " + std::to_string(i));
                  }
                  if (!loose.enqueue(stream)) return;
                  for (int i = 0; i < 2 * (kPlaces + 12); ++i)
                    if (!graphs.launch(all[static_cast<std::size_t>(i) * 3 % all.size()], stream))
                      return (void)rank.fail("a launch");
                  if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
                  if (!sum.is_right(2 * (kPlaces + 12)) || !loose.is_right(1)) return;
                  (void)rank.expect(rank.group.stream_status(), "afterwards");
                },
                -1, {.graphs_in_turn = true});
}

TEST(GpuStream, WhetherGraphsTakeTurnsIsTheSameOnEveryRank) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  GroupOptions options;
  options.transports = {"shm", "cuda"};
  const auto ends = run_processes(options, [](Engine&, Communicator& communicator) {
    GpuRank rank(communicator);
    const Status differ = communicator.use_gpu(rank.gpu, {.graphs_in_turn = communicator.rank() == 0});
    if (differ.code() != ErrorCode::invalid_argument || differ.message().find("graphs_in_turn") == std::string::npos)
      (void)rank.fail(differ.to_string());
    (void)rank.expect(communicator.use_gpu(rank.gpu), "the same");
    return rank.well ? 0 : 1;
  });
  for (const auto& end : ends) EXPECT_TRUE(end.well) << end.said;
}

// Another communicator's kernel runs meanwhile, until the other rank comes.
TEST(GpuStream, UseGpuWaitsForNoKernelThatRuns) {
  run_gpu_ranks(2, 20s, [](GpuRank& rank) {
    Sum first(rank, 300), second(rank, 300);
    const GpuStream stream = rank.stream(), other = rank.stream();
    const auto another = [&] {
      auto made = rank.group.split(0);
      if (rank.expect(made.status(), "split"))
        rank.expect(made->use_gpu(rank.gpu, {.nccl = NcclUse::never}), "use_gpu");
      return made;
    };
    auto held = another();
    if (!rank.well || (rank.group.rank() == 0 && !first.enqueue(stream, *held))) return;
    auto made = another();
    if (!rank.well) return;
    if (!second.enqueue(other, *made) || !rank.synchronize(other) || !second.is_right(1)) return;
    if (rank.group.rank() == 0 && rank.is_idle(stream)) return (void)rank.fail("the first has ended");
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    if (rank.group.rank() == 1 && !first.enqueue(stream, *held)) return;
    if (rank.synchronize(stream) && first.is_right(1)) (void)rank.expect(held->stream_status(), "afterwards");
  });
}

TEST(GpuStream, WhatCannotRunIsRefused) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    std::byte* const place = rank.memory(64);
    std::vector<float> ordinary(16);
    const auto refused = [&](const Collective& call, void* on, ErrorCode code, const char* word) {
      const Status status = rank.group.stream_run(call, on);
      return status.code() == code && status.message().find(word) != std::string::npos ? true
                                                                                       : rank.fail(status.to_string());
    };
    Collective good{.kind = CollectiveKind::all_reduce, .count = 4, .type = DataType::f32};
    good.input = good.output = place;
    Collective bad = good;
    bad.input = bad.output = ordinary.data();
    (void)refused(bad, stream, ErrorCode::invalid_argument, "input");
    // The kernel would end the context beyond the part that is pinned.
    std::vector<float> half(2048);
    (void)rank.gpus.on(rank.gpu, [&] { return rank.gpus.driver()->cuMemHostRegister_v2(half.data(), 4096, 0); });
    bad.input = bad.output = half.data();
    bad.count = half.size();
    (void)refused(bad, stream, ErrorCode::invalid_argument, "first 4096 bytes");
    (void)rank.gpus.on(rank.gpu, [&] { return rank.gpus.driver()->cuMemHostUnregister(half.data()); });
    (void)refused(good, nullptr, ErrorCode::invalid_argument, "stream");
    bad = good;
    bad.reduction = Reduction::custom;
    bad.custom = {[](void*, const void*, const void*, std::size_t, void*) {}, nullptr, 4};
    (void)refused(bad, stream, ErrorCode::unsupported, "custom");
    bad = good;
    bad.algorithm = Algorithm::ring;
    (void)refused(bad, stream, ErrorCode::invalid_argument, "algorithm");
    bad = good;
    bad.kind = CollectiveKind::scatter;
    bad.root = rank.group.rank();
    bad.output = ordinary.data();
    bad.input = place;
    (void)refused(bad, stream, ErrorCode::invalid_argument, "output");
    const StreamMessage to_itself{.data = place, .size_bytes = 4, .peer = rank.group.rank()};
    if (const Status own = rank.group.stream_messages({&to_itself, 1}, stream);
        own.message().find("no other rank") == std::string::npos)
      return (void)rank.fail(own.to_string());
    if (rank.expect(rank.group.stream_run(good, stream), "a good one")) (void)rank.synchronize(stream);
  });
}

}  // namespace
}  // namespace fairway
