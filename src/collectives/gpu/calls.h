#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/gpu/group.h"
#include "collectives/gpu/windows.h"
#include "collectives/host/lanes.h"
#include "collectives/job/progress.h"

namespace fairway::collectives {

// Operations by the further kernels, and messages. Owner: a communicator; the GPUs' group outlives it. One thread.
class GpuFurther {
 public:
  // Loads the kernels. Before the first launch.
  static Result<std::unique_ptr<GpuFurther>> make(GpuGroup& on, int rank, int size);
  ~GpuFurther();
  GpuFurther(const GpuFurther&) = delete;
  GpuFurther& operator=(const GpuFurther&) = delete;

  // As GpuGroup::launch(), of what gpu::is_further().
  Status launch(const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout, void* stream);
  // All at once, but for several to, or from, one rank, which go one after the other. `number`: of what fails.
  Status launch_messages(std::span<const StreamMessage> group, std::uint64_t number, Timeout timeout, void* stream);

 private:
  using Source = gpu::Source;

  GpuFurther(GpuGroup& on, int rank, int size);
  Status load();
  [[nodiscard]] GpuPlaces& places_of(const StreamMessage& message) {
    return (message.receives ? receives_ : sends_)[static_cast<std::size_t>(message.peer)];
  }
  Result<gpu::MessageCall> message_of(const StreamMessage& message, std::uint64_t number, Timeout timeout,
                                      const Source& source, sys::cuda::Stream stream, unsigned& threads);
  Status enqueue_messages(std::span<const StreamMessage> group, std::uint64_t number, Timeout timeout,
                          const Source& source, sys::cuda::Stream stream);
  Status start_messages(gpu::MessagesCall& all, unsigned threads, void* stream);

  GpuGroup& on_;
  const int rank_, size_;
  std::vector<sys::cuda::Function> kernels_;  // of what is moved, of each type, of messages
  // By rank: of messages to it, and from it.
  std::vector<GpuPlaces> sends_, receives_;
};

class NcclCalls;
struct NcclFailure;

// A communicator's operations on CUDA streams: its GPUs meet, operations are enqueued, and failures come back. One
// thread at a time; stop() is for any.
class GpuCalls {
 public:
  // The communicator.
  class Group {
   public:
    virtual Status run(const Collective& call) = 0;     // on host memory
    virtual Status may_start() = 0;                     // else why it has ended, or the engine has
    virtual Status heard() = 0;                         // the same, once alarms of other ranks were looked at
    virtual Status give_up(CollectiveFailure why) = 0;  // ends it and tells the others; returns how it has ended

   protected:
    ~Group() = default;
  };
  struct Parts {  // outlive this
    Group& group;
    Engine& engine;
    const Lanes& lanes;
    const CommunicatorOptions& options;
    std::uint64_t& started;  // operations of the communicator, those here included
    ProgressFile& progress;
  };
  explicit GpuCalls(const Parts& parts);
  ~GpuCalls();

  // As the calls of Communicator.
  Status use_gpu(int number, const GpuOptions& options);
  Result<WindowId> register_window(void* memory, std::uint64_t size_bytes);
  Status deregister_window(WindowId window);
  Status run(const Collective& call, void* stream);
  Status run_messages(std::span<const StreamMessage> group, void* stream, std::optional<Timeout> timeout);
  Status status();
  [[nodiscard]] std::string explain(const Collective& call, bool captured) const;
  // Null: use_gpu() was not called.
  [[nodiscard]] const GpuGroup* on_gpus() const { return on_gpus_.get(); }
  [[nodiscard]] const NcclCalls* by_nccl() const { return by_nccl_.get(); }
  // Collective: every rank says how it went. The first that failed, if any did.
  Status all_say(const Status& own) { return agree(own); }
  void stop();  // kernels that wait end soon, and later ones at once

 private:
  Status agree(const Status& own);
  Status agree_on_lines(GpuGroup& made, const GpuOptions& options, std::unique_ptr<GpuFurther>& further);
  [[nodiscard]] int rank() const { return parts_.lanes.rank(); }
  [[nodiscard]] int size() const { return parts_.lanes.size(); }
  [[nodiscard]] const std::string& name_of(int member) const {
    return parts_.lanes.members()[static_cast<std::size_t>(member)].name;
  }
  Status open_nccl(const GpuGroup& on, const GpuOptions& options);
  Status begin_window(void* memory, std::uint64_t size_bytes, const std::string& name);
  [[nodiscard]] bool meets_first(const Collective& call) const;  // of one that goes by the kernels
  [[nodiscard]] std::optional<GpuReads::Plan> reading_plan(const Collective& call) const;
  Status may_enqueue();
  [[nodiscard]] Status check_call(const Collective& call) const;
  Status make_room(void* stream);
  Status launch(const Collective& call, Timeout timeout, void* stream);
  [[nodiscard]] Timeout timeout_of(std::optional<Timeout> asked) const {
    return asked.value_or(parts_.options.timeout);
  }
  [[nodiscard]] std::string why_gone(int member) const;
  [[nodiscard]] std::string what_failed(const gpu::Report& report) const;
  Status give_up(const NcclFailure& failure);

  const Parts parts_;
  std::unique_ptr<GpuGroup> on_gpus_;          // null: use_gpu() was not called
  std::unique_ptr<GpuFurther> further_;        // with it
  std::unique_ptr<NcclCalls> by_nccl_;         // the same
  std::unique_ptr<GpuReads> reads_;            // with the first window
  std::unique_ptr<GpuWindows> windows_;        // the same
  std::atomic<std::uint32_t*> stop_{nullptr};  // its word
  std::uint32_t attempts_ = 0;                 // calls of use_gpu() and register_window()
  Time looked_ = {};
};

}  // namespace fairway::collectives
