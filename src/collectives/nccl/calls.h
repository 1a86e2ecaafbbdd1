#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/gpu/group.h"
#include "collectives/nccl/library.h"
#include "collectives/nccl/way_table.h"

namespace fairway::collectives {

// A communicator of NCCL beside a communicator's GPUs. No call waits for another rank longer than its deadline: NCCL's
// communicator is one whose calls don't block. One thread; abort() and error() are for any.
class NcclGroup {
 public:
  // Collective: all ranks with rank 0's id. Runs each kind once, so that no later operation makes connections.
  static Result<std::unique_ptr<NcclGroup>> open(std::shared_ptr<const nccl::Library> library, const GpuGroup& on,
                                                 int rank, int size, const nccl::UniqueId& id, Time deadline);
  // Call it when its operations have ended. Waits a second for the others, and for the graphs that have operations:
  // NCCL does. If such a graph lives longer, NCCL's communicator stays until the process ends.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // What nccl::can(). `captured`: the stream captures.
  Status enqueue(const Collective& call, void* stream, bool captured, Time deadline);
  // Operations end soon, whatever other ranks do. Later ones are refused.
  void abort();
  // What NCCL has noticed by itself.
  [[nodiscard]] Status error();

 private:
  NcclGroup(std::shared_ptr<const nccl::Library> library, std::shared_ptr<const sys::CudaDriver> driver,
            sys::cuda::Context context, int rank, int size)
      : library_(std::move(library)), driver_(std::move(driver)), context_(context), rank_(rank), size_(size) {}
  Status settle(int result, const char* what, Time deadline);
  Status warm(Time deadline);
  Status run_each(std::byte* input, std::byte* output, std::size_t bytes, void* stream, Time deadline);

  const std::shared_ptr<const nccl::Library> library_;
  const std::shared_ptr<const sys::CudaDriver> driver_;
  const sys::cuda::Context context_;
  const int rank_, size_;
  bool captured_ = false;
  std::mutex mutex_;           // guards comm_, and is held in each call of NCCL with it
  nccl::Comm comm_ = nullptr;  // null: it was aborted
};

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

// Which operations on streams NCCL does for a communicator, by the choice that all its ranks have made when it was
// opened, and those operations. Owner: GpuCalls; the GPUs' group outlives it. One thread.
class NcclCalls {
 public:
  struct Ranks {  // of the communicator, on host memory; all are collective
    int rank = 0, size = 1;
    Timeout timeout{0};
    std::function<Status(const Collective&)> run;
    std::function<Status(const Status&)> agree;  // every rank says how it went: the first that failed
    std::function<std::string(int)> name;
  };
  // Collective. Without NCCL it takes nothing, and reason() says why; an error where the options want it always, or
  // differ between ranks.
  static Result<std::unique_ptr<NcclCalls>> open(const Ranks& ranks, const GpuGroup& on, const GpuOptions& options);

  // The same on every rank.
  [[nodiscard]] bool takes(const Collective& call, bool captured) const;
  [[nodiscard]] bool may_take(const Collective& call) const { return group_ != nullptr && nccl::can(call); }
  [[nodiscard]] std::string explain(const Collective& call, bool captured) const;
  // As GpuGroup::launch(), of what takes() has accepted. After an error that is not of a capture no rank's operation
  // ends well.
  Status enqueue(GpuGroup& on, const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout,
                 void* stream, bool captured);
  [[nodiscard]] std::optional<NcclFailure> failure() const { return watch_ ? watch_->failure() : std::nullopt; }

  // What the table of these ranks is kept for, and where. Of rank 0.
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] const std::string& table_path() const { return path_; }
  // Why no NCCL could be used by a communicator that wants it; ok: all ranks have it.
  [[nodiscard]] const Status& has_nccl() const { return has_nccl_; }
  [[nodiscard]] const GpuOptions& options() const { return options_; }

 private:
  struct Offer;

  NcclCalls(const GpuOptions& options, int size) : options_(options), size_(size) {}
  [[nodiscard]] GpuWay way() const { return options_.guarded ? GpuWay::guarded : GpuWay::bare; }
  Status compare(const Ranks& ranks, const std::vector<Offer>& offers);
  Status share_table(const Ranks& ranks);
  Status make_group(const Ranks& ranks, const GpuGroup& on, std::shared_ptr<const nccl::Library> library);

  const GpuOptions options_;
  const int size_;  // ranks
  Status has_nccl_;
  std::string key_, path_, reason_, nccl_;
  WayTable table_;
  std::shared_ptr<NcclGroup> group_;  // null: it takes nothing
  std::unique_ptr<NcclWatch> watch_;
};

}  // namespace fairway::collectives
