#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "collectives/gpu/group.h"
#include "collectives/nccl/group.h"

namespace fairway::collectives {

// How an operation that NCCL has begun has failed.
struct NcclFailure {
  gpu::Cause cause = gpu::Cause::none;
  int peer = -1;             // the rank at fault; -1: none alone
  int by = -1;               // told: the rank that says so
  std::uint32_t code = 0;    // gone: an ErrorCode; told: the other rank's cause
  std::uint64_t number = 0;  // of the operation, its lower 28 bits; 0: unknown
  CollectiveKind kind = CollectiveKind::barrier;
  std::string text;  // NCCL's own
};

// A thread that ends NCCL's operations when they cannot end well: NCCL's kernels wait for ever. Every 10 ms it looks
// at words of the host, and at what other ranks have told, and calls abort(). A resource: the GPUs' group outlives it.
class NcclWatch {
 public:
  // `guarded`: operations have entries and exits. Without them a peer's death ends whatever there is.
  static Result<std::unique_ptr<NcclWatch>> start(std::shared_ptr<NcclGroup> group, const GpuGroup& on, int rank,
                                                  int size, bool guarded);
  // Waits for the thread, but two seconds for NCCL: its abort takes longer while a graph with an operation lives. The
  // thread then stays inside NCCL for that long, and looks at nothing of this any more.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // That operation is enqueued, with a timeout that begins when it is inside. Of those in graphs the thread may have
  // forgotten it 4096 operations later; then it is the longest of all so far.
  void allow(std::uint64_t number, Timeout timeout);
  // This rank could not enqueue one that others have: all end.
  void give_up(const Status& why);
  // Any thread.
  [[nodiscard]] std::optional<NcclFailure> failure() const;

 private:
  struct Inside {  // by place
    std::uint64_t word = 0;
    Time since = {};
  };
  class Thread;

  explicit NcclWatch(std::shared_ptr<Thread> thread) : thread_(std::move(thread)) {}

  const std::shared_ptr<Thread> thread_;
};

}  // namespace fairway::collectives
