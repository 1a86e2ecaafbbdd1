#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fairway/memory.h"

#include "core/runtime.h"
#include "sys/fd.h"
#include "sys/mapped_file.h"
#include "transport/copier.h"
#include "transport/gpu_access.h"
#include "transport/stream_gate.h"

namespace fairway::transport::host {

// Memory that a CPU does not reach, and the engines that copy it: a GPU's driver. One per transport; owner: the
// transport's worker, but where "any thread" is said.
class Mover : public Copier {
 public:
  // What a peer needs to reach an allocation of this process. All regions in one allocation have the same identity.
  struct Lent {
    std::uint64_t identity = 0;  // never of two allocations
    std::uint64_t offset = 0;    // of the region in it
    std::vector<std::byte> handle;
    std::vector<std::shared_ptr<sys::Fd>> files;  // where the handle needs some beside it
  };
  // An allocation of a peer's, as this process has it.
  class Foreign {
   public:
    virtual ~Foreign() = default;
  };
  struct Hold {
    std::atomic<bool> settled{false};  // the memory is pinned, or will never be
    std::atomic<bool> pinned{false};   // it is
  };
  struct Path {  // between a local region and a peer's allocation, or memory of the peer's that is mapped here
    std::uint32_t device = 0;
    std::byte* base = nullptr;  // of the allocation, as that device reaches it
    std::uint64_t size = 0;
    std::uint64_t most_queued = 0;  // bytes: what the path moves in a few milliseconds
    std::uint64_t most_copied = 0;  // by one start()
    bool kernels = false;  // the device's kernels reach the memory at both ends, and not its copy engines alone
  };

  virtual Status attach(Task& task) = 0;                                       // woken when an allocation is opened
  virtual std::uint8_t memory_kinds() const = 0;                               // a bit each
  virtual std::optional<MemoryPlace> place_of(const void* address) const = 0;  // any thread; nothing: not its memory
  // Of memory that it knows; nothing: plain host memory. An error: it is the device's, and cannot be lent. Any thread.
  virtual Result<std::optional<Lent>> lend(const MemoryDescription& memory) = 0;
  virtual void take_back(RegionId region) = 0;
  virtual bool taken_back(RegionId region) const = 0;  // nothing of the driver's holds its memory any more

  virtual void close() = 0;  // nothing of the driver's holds any region's memory afterwards

  virtual std::shared_ptr<Foreign> open(std::span<const std::byte> handle) = 0;
  virtual bool wants_file(const Foreign& foreign) const = 0;  // the next one, in their order
  virtual void give_file(Foreign& foreign, sys::Fd file, const std::string& why_none) = 0;
  // A peer's memory that is mapped here is going to be copied. It stays mapped for as long as the driver holds it. The
  // task is woken when it is settled.
  virtual std::shared_ptr<Hold> hold(std::shared_ptr<sys::MappedFile> map) = 0;
  // `foreign` null: the peer's memory is mapped here.
  virtual Readiness path(RegionId local, Foreign* foreign, std::uint64_t bytes, Path& out, std::string& why) = 0;
  virtual std::string path_description(const Foreign& foreign) const = 0;  // how, and why not better
  virtual MemoryPlace place_of(const Foreign& foreign) const = 0;

  // For kernels of that device, as transport::GpuAccess has it. `foreign` null: this process's own region. The word at
  // `ended` is the caller's to write.
  struct View {
    std::byte* base = nullptr;  // of the allocation; of an own region nothing
    std::uint64_t size = 0;
    std::uint32_t* ended = nullptr;
    bool atomics = false;
    std::shared_ptr<void> keeps;  // what it is reached by, for as long as the view is not given back
  };
  virtual Readiness view(RegionId own, Foreign* foreign, int device, View& out, Status& why) = 0;
  virtual Status put(const GpuAccess::Put& put, void* stream) = 0;                            // any thread
  virtual Status wait(const StreamWait& wait, const std::uint32_t* ended, void* stream) = 0;  // any thread

  // Into what sizes to cut `count` blocks of `length` bytes, and where to list the copies of one start().
  virtual std::uint64_t part(const Path& path, std::uint64_t length, std::uint64_t count) const = 0;
  virtual std::span<Copy> list(const Path& path) = 0;
  // Queues copies that stand in list(); `urgent` ones pass what is queued otherwise. They are over in no order but that
  // of one ticket's.
  // Not before the event `after`, when there is one.
  virtual Status start(const Path& path, std::span<const Copy> copies, bool urgent, void* after, Ticket& out) = 0;
  virtual Result<std::shared_ptr<StreamGate>> hold_stream(void* stream) = 0;  // any thread
  // Pinned memory of kStageBytes for copies in two steps; null: none is free now.
  static constexpr std::uint64_t kStageBytes = std::uint64_t{1} << 20;
  virtual std::byte* take_stage(const Path& path) = 0;
  virtual void give_stage(const Path& path, std::byte* stage) = 0;
};

}  // namespace fairway::transport::host
