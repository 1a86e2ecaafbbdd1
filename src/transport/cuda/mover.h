#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/cuda/devices.h"
#include "transport/cuda/exporter.h"
#include "transport/cuda/gates.h"
#include "transport/cuda/imported_allocation.h"
#include "transport/cuda/pins.h"
#include "transport/cuda/queues.h"
#include "transport/host/mover.h"
#include "transport/janitor.h"

namespace fairway::transport::cuda {

// GPU memory for the host transport. Owner: its worker.
//   mover.cc          copies, for transfers; threads and ends
//   mover_staging.cc  copies for staging
//   mover_views.cc    views for kernels, work for the user's streams
class CudaMover final : public host::Mover {
 public:
  // `keep_awake`: NVLinks to peers' GPUs, see waking().
  CudaMover(Runtime& runtime, std::shared_ptr<const CudaDriver> driver, bool keep_awake = false);
  ~CudaMover() override;

  Status attach(Task& task) override;
  std::uint8_t memory_kinds() const override;
  std::optional<MemoryPlace> place_of(const void* address) const override;
  MemoryPlace place_of(const Mover::Imported& imported) const override;
  Result<std::optional<Exported>> export_memory(const Region& memory) override;
  void end_export(RegionId region) override;
  void let_go(RegionId region) override;
  void close() override;
  bool export_ended(RegionId region) const override;
  std::shared_ptr<Hold> hold(std::shared_ptr<sys::MappedFile> map) override;

  std::shared_ptr<Mover::Imported> import(std::span<const std::byte> handle) override;
  bool wants_file(const Mover::Imported& imported) const override;
  void give_file(Mover::Imported& imported, sys::Fd file, const std::string& why_none) override;
  Readiness path(RegionId local, Mover::Imported* imported, const Use& use, Path& out, std::string& why) override;
  std::string path_description(const Mover::Imported& imported, bool touched) const override;
  bool keeps_awake() const override { return keep_awake_; }
  std::uint32_t device_count() const override { return static_cast<std::uint32_t>(ready_.size()); }
  std::optional<Waking> waking(const Mover::Imported& imported, std::uint32_t device) const override;

  std::uint64_t part(const Path& path, std::uint64_t length, std::uint64_t count) const override;
  std::span<Copy> list(const Path& path) override { return ready_[path.device].queues->list(); }
  std::byte* take_stage(const Path& path) override { return ready_[path.device].queues->take_stage(); }
  void give_stage(const Path& path, std::byte* stage) override { ready_[path.device].queues->give_stage(stage); }
  Status start(const Path& path, std::span<const Copy> copies, bool urgent, void* after, Ticket& out) override;
  Result<std::shared_ptr<StreamGate>> hold_stream(void* stream) override { return gates_->hold(stream); }
  Readiness view(RegionId own, Mover::Imported* imported, int device, View& out, Status& why) override;
  Status put(const GpuAccess::Put& put, void* stream) override;
  Status wait(const StreamWait& wait, const std::uint32_t* ended, void* stream) override;
  void flush() override;
  Readiness poll(const Ticket& ticket, std::string& why) override;
  std::shared_ptr<StagingBuffer> allocate_staging(std::uint64_t size_bytes) override;
  Readiness copy(RegionId region, std::span<const Copy> copies, bool urgent, void* after, Ticket& out,
                 std::string& why) override;

 private:
  using State = ImportedAllocation::State;
  struct Device {
    std::atomic<State> state{State::unopened};
    std::unique_ptr<Queues> queues;
    std::string why;
  };
  // Calls `call` for the device of the stream's context, with that context current.
  using StreamCall = std::function<Status(int device, const StreamKernels& kernels, sys::cuda::Stream stream)>;
  Status for_stream(void* stream, const StreamCall& call);
  std::shared_ptr<ImportedAllocation> own_memory(RegionId region, Status& why);
  Readiness queues_of(int device, std::string& why);
  Readiness view_of(ImportedAllocation& memory, int device, std::string& why);
  bool works_on(int device) const;
  int copier(RegionId local, const ImportedAllocation* remote) const;
  int working_device() const;                                // any thread
  Status pin(std::byte* address, std::uint64_t size_bytes);  // any thread
  bool reached_by_kernels(RegionId local) const;
  bool in_pinned_staging(std::span<const Copy> copies) const;
  std::span<const Copy> cut(const Path& on, std::span<const Copy> copies);
  bool begins(int device);       // whether the caller makes its queues: one does
  void make_queues(int device);  // any thread
  Status open_on_thread(std::function<void()> job);
  void open_views(const std::shared_ptr<ImportedAllocation>& imported);
  void open_view(const std::shared_ptr<ImportedAllocation>& imported, int device);
  std::shared_ptr<ImportedAllocation> held(const Mover::Imported& imported) const;

  const bool keep_awake_;
  std::shared_ptr<Devices> devices_;
  std::shared_ptr<Proofs> proofs_;
  Exporter exporter_;
  std::shared_ptr<Gates> gates_;
  // Wakes the worker's task until the transport is closed. Jobs that free something may end later.
  struct Waker {
    std::mutex mutex;  // guards task
    Task* task = nullptr;
    void wake() {
      const std::lock_guard lock(mutex);
      if (task != nullptr) task->wake();
    }
  };
  const std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  std::vector<Device> ready_;  // by device
  std::vector<std::weak_ptr<ImportedAllocation>> imports_;
  std::vector<std::weak_ptr<StagingBuffer>> staging_buffers_;
  std::uint64_t next_map_ = 0;
  std::shared_ptr<EndWords> end_words_;
  std::unordered_map<std::uint64_t, std::shared_ptr<ImportedAllocation>> own_;  // own regions with views on other GPUs
  // Two threads: a running kernel may hold up whatever is closed, and wait for bytes over a path that is being opened.
  const std::shared_ptr<sys::CudaClosing> closing_;  // its jobs own what they use, so they may outlive this
  const std::shared_ptr<Pins> pins_;
  Janitor opening_;  // last: its destructor runs the jobs that are left
};

}  // namespace fairway::transport::cuda
