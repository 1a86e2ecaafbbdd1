#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/gpu/device/call.h"
#include "collectives/gpu/plan.h"
#include "sys/cuda.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {

struct Member;

// A rank's GPU in a communicator: its scratch memory, which the other ranks' kernels write to, theirs as mapped here,
// and the kernels. Owner: a communicator. A resource: no kernel of it runs any more when it is destroyed. What it holds
// of the driver is freed behind the program's kernels that run then.
class GpuGroup {
 public:
  ~GpuGroup();
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  // Makes this rank's part, and publishes its scratch memory as `name`.
  // `messages`: with room for them, as on every rank. `told`: of ProgressFile::told(); null: nobody is
  // told how far kernels are.
  // `in_turn`: GpuOptions::graphs_in_turn.
  static Result<std::unique_ptr<GpuGroup>> open(Engine& engine, int device, int rank, int size, const std::string& name,
                                                bool messages, bool in_turn, std::shared_ptr<gpu::Told> told);
  // Maps the others' scratch memory, which they have published. The error names the rank.
  Status meet(const std::vector<Member>& members, const std::string& name, Time deadline);

  [[nodiscard]] int device() const { return gpu_; }  // as CUDA numbers it here
  // Its name for all processes of the host.
  [[nodiscard]] std::string bus_id() const;
  // Whether what this GPU's kernels write into that one's memory arrives in whole lines: by NVLink, or if it is this
  // one.
  [[nodiscard]] bool keeps_lines(const std::string& bus_id) const;
  // `by_lines`: all ranks keep them whole. Loads the kernels for that. Before the first launch.
  Status get_ready(bool by_lines);
  // An error: it is not a stream of this GPU.
  Result<gpu::Source> source_of(void* stream) const;
  // Whether a call on that stream would be refused for want of a place; those of graphs that this rank has no more, and
  // to give back those that no rank has.
  [[nodiscard]] Result<bool> lacks_place(void* stream) const;
  [[nodiscard]] gpu::Places::Set places_over() const { return places_.over(graphs_); }
  void give_back(const gpu::Places::Set& places) { places_.give_back(places); }
  // What a kernel does of a call: all of it; or it stands before what another library does, in a round that finds who
  // is not there or has called something else; or behind that. Or it only waits for the others, with one warp.
  enum class Part : std::uint8_t { whole, entry, exit, meeting };
  // Enqueues `call`, as check() has accepted it.
  Status launch(const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout, void* stream,
                Part part = Part::whole);
  // What every kernel is told of a call, by any way; of a place that the caller knows, or of the stream's.
  [[nodiscard]] gpu::Call call_at(std::uint32_t place, const Collective& call, std::uint64_t digest,
                                  std::uint64_t number, Timeout timeout) const;
  Result<gpu::Call> call_of(const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout,
                            void* stream);
  // `early`: the kernel may be started before what is ahead of it in the stream has ended, for which it waits.
  Status start(sys::cuda::Function kernel, unsigned blocks, unsigned threads, void* stream, void* argument,
               bool early = true);
  // Loads kernels of a module: each is run once, doing nothing, so that no later launch has to load code, for which the
  // driver may wait for running kernels. The names' kernels come into `kernels`, in that order.
  Status load(sys::cuda::Module from, const std::vector<std::string>& names,
              std::vector<sys::cuda::Function>& kernels) const;
  void destroy(std::vector<sys::cuda::Event> events) const;  // null: none
  [[nodiscard]] const gpu::Layout& layout() const { return layout_; }
  [[nodiscard]] bool by_lines() const { return by_lines_; }
  // What the kernels of a call are told that read what the others have, and such a kernel. `combines`: call.blocks of
  // it do; else it meets the others. `early`: a kernel is ahead of it in the stream, or what the caller has enqueued.
  Result<gpu::ReadCall> reading_call(const Collective& call, std::uint64_t digest, std::uint64_t number,
                                     Timeout timeout, void* stream);
  // Behind all of an operation that was enqueued there: so that its place may go to another stream.
  Status ends_at(void* stream);
  Status start_reader(gpu::ReadCall& made, DataType type, bool combines, bool early, void* stream);
  // Whether kernels can access all of that. Some that they cannot would end the program's context.
  Status check_memory(const void* address, std::uint64_t bytes, const char* name) const;
  // The first failure of this rank's kernels.
  [[nodiscard]] std::optional<gpu::Report> failure() const;
  // Kernels that wait end soon after it is not 0. Any thread; lives as long as this.
  [[nodiscard]] std::uint32_t* stop_word() { return &host_->stop; }
  // What a thread of its own looks at, while this lives.
  struct Watched {
    const gpu::Report* report = nullptr;
    const std::uint32_t* stop = nullptr;
    const std::uint64_t* marks = nullptr;                          // of each place
    std::array<const std::uint32_t*, gpu::kMostRanks> ended = {};  // Mapping::ended of each other rank
    std::array<sys::cuda::Address, gpu::kMostRanks> scratch = {};  // of each rank, as this GPU reaches it
  };
  [[nodiscard]] Watched watched() const;
  [[nodiscard]] sys::cuda::Context context() const { return context_; }
  [[nodiscard]] const std::shared_ptr<const sys::CudaDriver>& driver() const { return driver_; }

 private:
  struct HostWords {  // pinned
    gpu::Report report;
    std::uint64_t marks[gpu::Layout::kPlaces];
    alignas(128) std::uint32_t stop;
    alignas(128) gpu::Told told[gpu::Layout::kTolds];  // where there is no file
  };
  static constexpr std::size_t kKernels = 13;  // of each family

  GpuGroup(Engine& engine, std::shared_ptr<const sys::CudaDriver> driver, int device, int rank, int size, bool messages,
           bool in_turn, std::shared_ptr<gpu::Told> told);
  Status prepare(const std::string& name);
  Status clear_scratch();
  void end_captured();

  Engine& engine_;
  const std::shared_ptr<const sys::CudaDriver> driver_;
  const int gpu_, rank_, size_;
  const gpu::Layout layout_;
  const bool in_turn_;  // captures of a stream share a place
  GpuPlaces places_;
  bool by_lines_ = false;
  mutable GpuGraphs graphs_;  // those that have operations of this
  sys::cuda::Context context_ = nullptr;
  sys::cuda::Address scratch_ = 0;
  HostWords* host_ = nullptr;
  std::shared_ptr<gpu::Told> told_of_file_;  // pinned; null: nobody reads it
  gpu::Told* told_ = nullptr;                // of each place
  Region region_;
  std::vector<Mapping> mappings_;  // by rank
  sys::cuda::Module module_ = nullptr;
  std::array<sys::cuda::Function, kKernels> kernels_ = {};
  std::array<sys::cuda::Function, kKernels> readers_ = {};
  sys::cuda::Function passes_on_ = nullptr;  // of a long broadcast among more than two
  bool wait_themselves_ = false;             // the kernels do, for what is ahead of them in their stream
  const std::unique_ptr<sys::CudaClosing> closing_;
};

}  // namespace fairway::collectives
