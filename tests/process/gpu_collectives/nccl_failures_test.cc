#include <csignal>
#include <thread>

#include "process/gpu_collectives/nccl_rank.h"

// Operations by NCCL that cannot end well end all the same, and what is promised of them is told: docs/collectives.md.
namespace fairway {
namespace {

using namespace std::chrono_literals;

constexpr const char* kStall = "fairway_standin_nccl_stall";
constexpr const char* kAborted = "fairway_standin_nccl_aborted";

// One that went well, and a barrier of the hosts.
bool begin_well(GpuRank& rank, NcclSum& sum, GpuStream stream) {
  sum.fill();
  if (!rank.expect(rank.group.stream_run(sum.call(), stream), "before") || !rank.synchronize(stream)) return false;
  return sum.is_right(1, rank.group.size()) && rank.expect(rank.group.run({}), "a barrier of the hosts");
}

// The stream has ended, NCCL was aborted, the context lives, and the error is that one.
bool ends(GpuRank& rank, GpuStream stream, ErrorCode code, int at_fault, const char* words) {
  if (!rank.synchronize(stream)) return rank.fail("the context is broken");
  const Status status = rank.group.stream_status();
  if (status.code() != code || rank.group.failure().rank != at_fault) return rank.fail("blames " + status.to_string());
  if (status.message().find(words) == std::string::npos) return rank.fail("says " + status.to_string());
  if (rank.group.stream_run({}, stream).code() != code) return rank.fail("goes on");
  if (!is_standin()) return true;
  for (int i = 0; i < 200 && standin_nccl<long()>(kAborted)() == 0; ++i) std::this_thread::sleep_for(10ms);
  return standin_nccl<long()>(kAborted)() == 1 ? true : rank.fail("NCCL was not aborted");
}

bool go_on_without(GpuRank& rank, int without, GpuStream stream, const GpuOptions& options) {
  const int gone[] = {without};
  auto rest = rank.group.shrink(gone);
  if (!rest) return rank.expect(rest.status(), "shrink");
  if (!rank.expect(rest->use_gpu(rank.gpu, options), "use_gpu afterwards")) return false;
  NcclSum sum(rank, 100);
  sum.fill();
  const long before = nccl_operations();
  if (!rank.expect(rest->stream_run(sum.call(), stream), "afterwards") || !rank.synchronize(stream)) return false;
  if (!rank.expect(rest->stream_status(), "afterwards") || !sum.is_right(1, rest->size())) return false;
  return nccl_operations() > before || rest->size() == 1 || !is_standin() ? true
                                                                          : rank.fail("afterwards it went by kernels");
}

NcclCase some(std::chrono::milliseconds timeout = 20s) {
  NcclCase one;
  one.size = some_ranks();
  one.timeout = timeout;
  return one;
}

TEST(NcclFailure, ARankThatNeverEntersIsNamedAtTheDeadline) {
  const NcclCase one = some();
  run_nccl_ranks(one, [&](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    if (!begin_well(rank, sum, stream)) return;
    const int late = rank.group.size() - 1;
    if (rank.group.rank() == late) {
      if (rank.group.run({}).code() != ErrorCode::deadline_exceeded || rank.group.failure().rank != late)
        (void)rank.fail("the late rank: " + rank.group.failure().status.to_string());
      return;
    }
    Collective call = sum.call();
    call.timeout = 300ms;
    for (int i = 0; i < 3; ++i)
      if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
    if (!ends(rank, stream, ErrorCode::deadline_exceeded, late, "rank ")) return;
    GpuOptions options = one.options;
    if (rank.group.size() == 2) options.nccl = NcclUse::never;  // one rank is left
    (void)go_on_without(rank, late, stream, options);
  });
}

TEST(NcclFailure, CallsThatDifferAreFoundAtOnce) {
  run_nccl_ranks({}, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 1000);
    Collective call = sum.call();
    call.count = rank.group.rank() == 0 ? 100 : 99;
    if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    const Status status = rank.group.stream_status();
    if (status.code() != ErrorCode::invalid_argument) (void)rank.fail(status.to_string());
  });
}

// Inside NCCL, where its own kernels would wait for ever.
TEST(NcclFailure, ARankThatIsKilledInsideIsNamed) {
  NcclCase one = some();
  one.progress = Progress::threads;
  one.dies = 1;
  run_nccl_ranks(one, [&](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, is_standin() ? 100 : 16U << 20);
    if (!begin_well(rank, sum, stream)) return;
    if (is_standin() && rank.group.rank() == 1) standin_nccl<void(long)>("fairway_standin_nccl_die_in")(0);
    // Elsewhere it dies in one of many.
    for (int i = 0; i < (is_standin() ? 1 : 500); ++i)
      if (!rank.expect(rank.group.stream_run(sum.call(), stream), "the one that fails")) return;
    if (!is_standin() && rank.group.rank() == 1) {
      std::this_thread::sleep_for(50ms);
      ::raise(SIGKILL);
    }
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    const Status status = rank.group.stream_status();
    if (rank.group.failure().rank != 1) return (void)rank.fail(status.to_string());
    GpuOptions options = one.options;
    if (rank.group.size() == 2) options.nccl = NcclUse::never;
    (void)go_on_without(rank, 1, stream, options);
  });
}

// Without the entry that is all that is found.
TEST(NcclFailure, ARankThatIsKilledIsNamedWithoutAGuard) {
  FAIRWAY_NEEDS_STANDIN();
  NcclCase one = some();
  one.options.guarded = false;
  one.progress = Progress::threads;
  one.dies = 1;
  run_nccl_ranks(one, [&](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    if (!begin_well(rank, sum, stream)) return;
    if (rank.group.rank() == 1) ::raise(SIGKILL);
    (void)rank.group.stream_run(sum.call(), stream);  // it may know already
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    for (int i = 0; i < 500 && rank.group.stream_status(); ++i) std::this_thread::sleep_for(10ms);
    if (rank.group.stream_status() || rank.group.failure().rank != 1)
      (void)rank.fail(rank.group.stream_status().to_string());
  });
}

TEST(NcclFailure, WhatNeverEndsInsideEndsAtTheDeadline) {
  FAIRWAY_NEEDS_STANDIN();
  run_nccl_ranks(some(), [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    if (!begin_well(rank, sum, stream)) return;
    standin_nccl<void(bool)>(kStall)(true);
    Collective call = sum.call();
    call.timeout = 400ms;
    const auto before = std::chrono::steady_clock::now();
    if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    const Status status = rank.group.stream_status();
    if (status.code() != ErrorCode::deadline_exceeded) return (void)rank.fail(status.to_string());
    if (status.message().find("NCCL has not ended it") == std::string::npos &&
        status.message().find("gave up") == std::string::npos)
      return (void)rank.fail(status.to_string());
    if (std::chrono::steady_clock::now() - before > 15s) (void)rank.fail("it took long");
  });
}

// Another rank's deadline is much longer: it is told.
TEST(NcclFailure, OneThatGivesUpTellsTheOthers) {
  FAIRWAY_NEEDS_STANDIN();
  run_nccl_ranks({.size = 2, .timeout = 600s}, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    standin_nccl<void(bool)>(kStall)(true);
    Collective call = sum.call();
    if (rank.group.rank() == 0) call.timeout = 200ms;
    if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
    if (rank.group.rank() == 0)
      (void)ends(rank, stream, ErrorCode::deadline_exceeded, -1, "all ranks have entered it");
    else
      (void)ends(rank, stream, ErrorCode::deadline_exceeded, 0, "gave up");
  });
}

TEST(NcclFailure, AbortEndsAnOperationInside) {
  FAIRWAY_NEEDS_STANDIN();
  run_nccl_ranks({}, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    standin_nccl<void(bool)>(kStall)(true);
    if (!rank.expect(rank.group.stream_run(sum.call(), stream), "the one that waits")) return;
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      rank.group.abort();
    });
    const bool well = rank.synchronize(stream);
    other.join();
    const Status status = rank.group.stream_status();
    if (!well || status.code() != ErrorCode::cancelled) (void)rank.fail(status.to_string());
  });
}

// NCCL refuses one rank's call, after the others are inside.
TEST(NcclFailure, ACallThatNcclRefusesIsToldToAll) {
  FAIRWAY_NEEDS_STANDIN();
  run_nccl_ranks({.size = 2, .timeout = 20s}, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    if (!begin_well(rank, sum, stream)) return;
    if (rank.group.rank() == 1) ::setenv("FAIRWAY_STANDIN_NCCL_FAILS", "ncclAllReduce", 1);
    const Status asked = rank.group.stream_run(sum.call(), stream);
    if (rank.group.rank() == 0) {
      if (asked)
        (void)ends(rank, stream, ErrorCode::deadline_exceeded, 1, "gave up");
      else if (asked.message().find("unhandled system error") == std::string::npos)  // it came late, and was told
        (void)rank.fail(asked.to_string());
      return;
    }
    if (asked.message().find("unhandled system error") == std::string::npos) return (void)rank.fail(asked.to_string());
    for (int i = 0; i < 500 && rank.group.stream_status(); ++i) std::this_thread::sleep_for(10ms);
    if (rank.group.stream_status().message().find("unhandled system error") == std::string::npos)
      (void)rank.fail(rank.group.stream_status().to_string());
  });
}

// What NCCL notices by itself.
TEST(NcclFailure, AnErrorInsideNcclIsTold) {
  FAIRWAY_NEEDS_STANDIN();
  run_nccl_ranks({.size = 2, .timeout = 20s}, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    if (!begin_well(rank, sum, stream)) return;
    standin_nccl<void(bool)>(kStall)(true);
    if (rank.group.rank() == 1) ::setenv("FAIRWAY_STANDIN_NCCL_FAILS", "ncclCommGetAsyncError", 1);
    (void)rank.group.stream_run(sum.call(), stream);
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    const Status status = rank.group.stream_status();
    if (status || status.message().find(rank.group.rank() == 1 ? "unhandled" : "rank 1") == std::string::npos)
      (void)rank.fail(status.to_string());
  });
}

// A graph with an operation is launched after the communicator has failed: it ends.
TEST(NcclFailure, AGraphEndsAfterAFailure) {
  FAIRWAY_NEEDS_STANDIN();
  run_nccl_ranks({.size = 2, .timeout = 20s}, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    NcclSum sum(rank, 100);
    sum.fill();
    Graphs graphs(rank);
    const sys::cuda::ReadyGraph graph =
        graphs.capture(stream, [&] { return rank.group.stream_run(sum.call(), stream).is_ok(); });
    if (graph == nullptr || !graphs.launch(graph, stream) || !rank.synchronize(stream) || !sum.is_right(1, 2))
      return (void)rank.fail("a graph");
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    standin_nccl<void(bool)>(kStall)(true);
    Collective call = sum.call();
    call.timeout = 300ms;
    if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    for (int i = 0; i < 500 && rank.group.stream_status(); ++i) std::this_thread::sleep_for(10ms);
    if (rank.group.stream_status()) return (void)rank.fail("it has not failed");
    if (!graphs.launch(graph, stream) || !rank.synchronize(stream)) (void)rank.fail("a graph afterwards");
  });
}

// NCCL holds the thread up for longer than the end of its communicator waits: what it looked at is gone by then.
TEST(NcclFailure, AThreadThatNcclHoldsUpLooksAtNothingBehindItsOwner) {
  FAIRWAY_NEEDS_STANDIN();
  run_ranks({}, [](GpuRank& rank) {  // the only communicator with NCCL is the part
    {
      auto part = rank.group.split(0);
      if (!rank.expect(part.status(), "split") || !rank.expect(part->use_gpu(rank.gpu, NcclCase{}.options), "use_gpu"))
        return;
      standin_nccl<void(int)>("fairway_standin_nccl_hold")(3000);
      while (standin_nccl<int()>("fairway_standin_nccl_holds")() != 0) std::this_thread::sleep_for(1ms);
    }
    if (standin_nccl<long()>("fairway_standin_nccl_held")() != 0) return (void)rank.fail("it was waited for");
    for (int i = 0; i < 1000 && standin_nccl<long()>("fairway_standin_nccl_held")() == 0; ++i)
      std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(50ms);  // in which it would look
  });
}

// At their end communicators are destroyed, not aborted.
TEST(NcclFailure, AGoodEndIsNone) {
  FAIRWAY_NEEDS_STANDIN();
  run_nccl_ranks({}, [](GpuRank& rank) {
    {
      auto part = rank.group.split(0);
      if (!rank.expect(part.status(), "split") || !rank.expect(part->use_gpu(rank.gpu, NcclCase{}.options), "use_gpu"))
        return;
      NcclSum sum(rank, 100);
      sum.fill();
      const GpuStream stream = rank.stream();
      if (!rank.expect(part->stream_run(sum.call(), stream), "a sum") || !rank.synchronize(stream)) return;
    }
    if (standin_nccl<long()>("fairway_standin_nccl_destroyed")() != 1 || standin_nccl<long()>(kAborted)() != 0)
      (void)rank.fail("it was not destroyed once");
  });
}

}  // namespace
}  // namespace fairway
