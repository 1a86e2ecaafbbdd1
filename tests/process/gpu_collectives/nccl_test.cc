#include "process/gpu_collectives/nccl_rank.h"

// Operations on streams that NCCL does: the right bytes, on streams and in graphs, and only what it can do.
namespace fairway {
namespace {

using namespace std::chrono_literals;

// One call of that kind, its values compared. `by_nccl`: who is to do it.
bool moves(GpuRank& rank, Collective call, bool by_nccl) {
  const auto size = static_cast<std::size_t>(rank.group.size());
  const int me = rank.group.rank(), root = rank.group.size() - 1;
  const bool to_each = call.kind == CollectiveKind::reduce_scatter || call.kind == CollectiveKind::all_to_all ||
                       call.kind == CollectiveKind::scatter;
  const bool gathers = call.kind == CollectiveKind::all_gather || call.kind == CollectiveKind::all_to_all ||
                       call.kind == CollectiveKind::gather;
  const bool rooted = call.kind == CollectiveKind::reduce || call.kind == CollectiveKind::gather;
  const std::size_t block = call.count * size_of(call.type), in = to_each ? size : 1;
  const std::size_t out = rooted && me != root ? 0 : gathers ? size : 1;
  std::byte *const input = rank.memory(in * block), *const output = rank.memory(out * block);
  std::vector<std::byte> values(in * block);
  for (std::size_t b = 0; b < in; ++b)
    for (std::size_t i = 0; i < call.count; ++i)
      put(values.data() + b * block, i, call.type, given(me, static_cast<int>(b), i, Reduction::sum));
  rank.fill(input, values);
  call.input = input;
  call.output = output;
  call.root = root;
  const std::string what(to_string(call.kind));
  const long before = nccl_operations();
  const GpuStream stream = rank.stream();
  if (!rank.expect(rank.group.stream_run(call, stream), what.c_str())) return false;
  if (!rank.synchronize(stream) || !rank.expect(rank.group.stream_status(), what.c_str())) return false;
  if (is_standin() && (nccl_operations() > before) != by_nccl) return rank.fail(what + " went the other way");
  if ((rank.group.explain_stream(call).find("by NCCL 2.") != std::string::npos) != by_nccl)
    return rank.fail(rank.group.explain_stream(call));
  const auto seen = rank.read(output, out * block);
  for (std::size_t b = 0; b < out && call.kind != CollectiveKind::barrier; ++b)
    for (std::size_t i = 0; i < call.count; ++i) {
      const bool reduces = call.kind == CollectiveKind::all_reduce || call.kind == CollectiveKind::reduce_scatter ||
                           call.kind == CollectiveKind::reduce;
      const bool of_root = call.kind == CollectiveKind::broadcast || call.kind == CollectiveKind::scatter;
      const double want = reduces ? reduced(rank.group.size(), to_each ? me : 0, i, Reduction::sum, call.type)
                                  : given(of_root ? root : static_cast<int>(b), to_each ? me : 0, i, Reduction::sum);
      if (get(seen.data() + b * block, i, call.type) != want)
        return rank.fail(what + " of " + std::string(to_string(call.type)));
    }
  return true;
}

TEST(NcclWay, EveryKindIsRight) {
  for (int size = 2; size <= some_ranks(); ++size)
    for (const bool guarded : {true, false}) {
      NcclCase one;
      one.size = size;
      one.options.guarded = guarded;
      run_nccl_ranks(one, [](GpuRank& rank) {
        for (const CollectiveKind kind :
             {CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::all_gather,
              CollectiveKind::reduce_scatter, CollectiveKind::all_to_all, CollectiveKind::reduce,
              CollectiveKind::gather, CollectiveKind::scatter})
          for (const std::size_t count : {std::size_t{1}, std::size_t{50'000}})
            if (!moves(rank, {.kind = kind, .count = count, .type = DataType::f32}, true)) return;
      });
    }
}

TEST(NcclWay, WhatItDoesNotDoGoesByKernels) {
  run_nccl_ranks({}, [](GpuRank& rank) {
    if (!moves(rank, {.kind = CollectiveKind::barrier}, false)) return;
    if (!moves(rank, {.kind = CollectiveKind::all_reduce, .count = 9, .type = DataType::i16}, false)) return;
    if (!moves(rank, {.kind = CollectiveKind::all_reduce, .count = 9, .type = DataType::f32, .reproducible = true},
               false))
      return;
    (void)moves(
        rank, {.kind = CollectiveKind::all_reduce, .count = 9, .type = DataType::f32, .algorithm = Algorithm::one_shot},
        false);
  });
}

// By turns with kernels, on two streams, and in a graph that is launched again and again.
TEST(NcclWay, StreamsAndGraphsAreMixed) {
  run_nccl_ranks({}, [](GpuRank& rank) {
    NcclSum loose(rank, 1000), captured(rank, 7), other(rank, 100);
    for (NcclSum* sum : {&loose, &captured, &other}) sum->fill();
    const GpuStream a = rank.stream(), b = rank.stream();
    Graphs graphs(rank);
    const sys::cuda::ReadyGraph graph =
        graphs.capture(a, [&] { return rank.group.stream_run(captured.call(), a).is_ok(); });
    if (graph == nullptr) return (void)rank.fail("no graph");
    Collective mine = other.call();
    mine.reproducible = true;  // a kernel
    for (int i = 0; i < 5; ++i) {
      if (!graphs.launch(graph, a) || !rank.expect(rank.group.stream_run(loose.call(), a), "NCCL's")) return;
      if (!rank.expect(rank.group.stream_run(mine, i % 2 == 0 ? a : b), "a kernel")) return;
      if (!rank.synchronize(a) || !rank.synchronize(b)) return (void)rank.fail("the context is broken");
    }
    if (!rank.expect(rank.group.stream_status(), "afterwards")) return;
    (void)(loose.is_right(5, 2) && captured.is_right(5, 2) && other.is_right(5, 2));
  });
}

// So a loaded library is used without a word, and none is searched for.
TEST(NcclWay, TheProcesssOwnLibraryIsFound) {
  FAIRWAY_NEEDS_STANDIN();
  NcclCase one;
  one.options.nccl_library.clear();
  run_ranks(one, [&](GpuRank& rank) {
    const Status none = rank.group.use_gpu(rank.gpu, one.options);
    if (none.code() != ErrorCode::unsupported || none.message().find("FAIRWAY_NCCL_LIBRARY") == std::string::npos)
      return (void)rank.fail("without: " + none.to_string());
    if (nccl_operations() != 0) return;  // loads it
    if (!rank.expect(rank.group.use_gpu(rank.gpu, one.options), "with")) return;
    NcclSum sum(rank, 10);
    sum.fill();
    const GpuStream stream = rank.stream();
    if (rank.expect(rank.group.stream_run(sum.call(), stream), "a sum") && rank.synchronize(stream))
      (void)sum.is_right(1, 2);
    if (nccl_operations() == 0) (void)rank.fail("it went by kernels");
  });
}

TEST(NcclWay, OneRankNeedsNone) {
  NcclCase one;
  one.size = 1;
  run_nccl_ranks(one, [](GpuRank& rank) {
    (void)moves(rank, {.kind = CollectiveKind::all_reduce, .count = 9, .type = DataType::f32}, false);
  });
}

TEST(NcclWay, WithoutItTheExplanationIsRightToo) {
  NcclCase one;
  one.options.nccl = NcclUse::never;
  run_nccl_ranks(one, [](GpuRank& rank) {
    const auto expect = [&](CollectiveKind kind, const std::string& words) {
      const std::string why = rank.group.explain_stream({.kind = kind, .count = 32});
      return why == std::string(to_string(kind)) + words || rank.fail(why);
    };
    for (const CollectiveKind kind :
         {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all})
      if (!expect(kind, " of 64 bytes: by Fairway's kernels: NCCL was not asked for")) return;
    for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce})
      if (!expect(kind, " of 32 bytes: by Fairway's kernels: NCCL was not asked for")) return;
    for (const CollectiveKind kind : {CollectiveKind::gather, CollectiveKind::scatter})
      if (!expect(kind, " of 64 bytes: by Fairway's kernels: NCCL was not asked for")) return;
    const std::size_t counts[] = {7, 5};
    Collective blocks{.kind = CollectiveKind::all_to_allv, .type = DataType::f32};
    blocks.send = blocks.receive = {counts, counts};
    if (const std::string why = rank.group.explain_stream(blocks); why.find("all_to_allv of 48 bytes: by Fai") != 0)
      (void)rank.fail(why);
  });
}

// What use_gpu() says on each rank, and that it can be called again.
void refused(NcclCase one, const std::string& rank_0, const std::string& others,
             const std::function<void(GpuRank&, GpuOptions&)>& change = {}) {
  run_ranks(one, [&](GpuRank& rank) {
    GpuOptions options = one.options;
    if (change) change(rank, options);
    const Status status = rank.group.use_gpu(rank.gpu, options);
    const std::string& want = rank.group.rank() == 0 ? rank_0 : others;
    if (status || status.message().find(want) == std::string::npos) return (void)rank.fail(status.to_string());
    (void)rank.expect(rank.group.use_gpu(rank.gpu, {.nccl = NcclUse::never}), "without NCCL");
  });
}

TEST(NcclRefused, AWrongLibraryIsNamedOnEveryRank) {
  FAIRWAY_NEEDS_STANDIN();
  NcclCase old;
  old.environment = {{"FAIRWAY_STANDIN_NCCL_VERSION", "21403"}};
  refused(old, "is version 2.14.3", "is version 2.14.3");
  NcclCase missing;
  missing.size = 3;
  const auto breaks = [](GpuRank& rank, GpuOptions& options) {
    if (rank.group.rank() == 1) options.nccl_library = "/nowhere/libnccl.so.2";
  };
  refused(missing, "rank 1", "/nowhere/libnccl.so.2 cannot be loaded", breaks);
  const auto foreign = [](GpuRank&, GpuOptions& options) { options.nccl_library = FAIRWAY_STANDIN_CUDA; };
  refused({}, "does not tell its version", "does not tell its version", foreign);
}

TEST(NcclRefused, OptionsThatDifferAre) {
  const auto differ = [](GpuRank& rank, GpuOptions& options) { options.guarded = rank.group.rank() == 0; };
  refused({}, "differ between rank 0", "differ between rank 0", differ);
}

TEST(NcclRefused, WhatOneRankCannotNobodyDoes) {
  FAIRWAY_NEEDS_STANDIN();
  for (const char* fails : {"ncclGetUniqueId", "ncclCommInitRankConfig:1", "ncclBroadcast:1"}) {
    NcclCase one;
    one.timeout = 6s;  // half of it for NCCL
    one.environment = {{"FAIRWAY_STANDIN_NCCL_FAILS", fails}};
    refused(one, std::string(fails) == "ncclGetUniqueId" ? "making an id" : "", "");
  }
}

TEST(NcclRefused, OneThatIsNotReadyInTimeIsToldWithTheRemedy) {
  FAIRWAY_NEEDS_STANDIN();
  NcclCase one;
  one.timeout = 2s;
  one.environment = {{"FAIRWAY_STANDIN_NCCL_FAILS", "ready"}};
  const char* const told =
      "NCCL was not ready after 1000 ms, half of this communicator's timeout: give it a longer one";
  refused(one, told, told);
}

// Where NCCL is only a candidate, its failures are no errors.
TEST(NcclRefused, AndACandidateIsLeftOut) {
  NcclCase one;
  one.options.nccl = NcclUse::measured;
  one.options.nccl_library = "/nowhere/libnccl.so.2";
  run_nccl_ranks(one, [](GpuRank& rank) {
    if (rank.group.explain_stream({}).find("/nowhere/libnccl.so.2 cannot be loaded") == std::string::npos)
      return (void)rank.fail(rank.group.explain_stream({}));
    (void)moves(rank, {.kind = CollectiveKind::all_reduce, .count = 9, .type = DataType::f32}, false);
  });
}

}  // namespace
}  // namespace fairway
