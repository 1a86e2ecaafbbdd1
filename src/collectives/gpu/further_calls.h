#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/gpu/group.h"

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

}  // namespace fairway::collectives
