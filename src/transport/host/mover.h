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
#include "sys/memory_file.h"
#include "transport/gpu_access.h"

namespace fairway::transport::host {

// Device memory, which the CPU cannot access, and the copy engines that move it: the GPU driver's side. One per
// transport; owner: the transport's worker, except where a comment says "any thread".
class Mover : public Copier {
 public:
  // What a peer needs to import an allocation of this process. All regions in one allocation have the same identity.
  struct Exported {
    std::uint64_t identity = 0;  // unique per allocation
    std::uint64_t offset = 0;    // of the region in it
    std::vector<std::byte> handle;
    std::vector<std::shared_ptr<sys::Fd>> files;  // descriptors that belong to the handle, if any
  };
  // A peer's allocation, imported into this process.
  class Imported {
   public:
    virtual ~Imported() = default;
  };
  struct Hold {
    std::atomic<bool> settled{false};  // pinning has succeeded or failed
    std::atomic<bool> pinned{false};   // it succeeded
  };
  struct Path {  // between a local region and a peer's allocation, or memory of the peer that is mapped here
    std::uint32_t device = 0;
    std::byte* base = nullptr;  // of the allocation, in that device's address space
    std::uint64_t size = 0;
    std::uint64_t most_queued = 0;  // bytes that the path moves in a few milliseconds
    std::uint64_t most_copied = 0;  // bytes of one start()
    bool kernels = false;           // the device's kernels reach both memories, not only its copy engines
  };

  virtual Status attach(Task& task) = 0;                                       // woken when an allocation is opened
  virtual std::uint8_t memory_kinds() const = 0;                               // a bit each
  virtual std::optional<MemoryPlace> place_of(const void* address) const = 0;  // any thread; nothing: not its memory
  // Nothing: plain host memory. An error: device memory that cannot be registered. Any thread.
  virtual Result<std::optional<Exported>> export_memory(const Region& memory) = 0;
  virtual void end_export(RegionId region) = 0;
  virtual void let_go(RegionId region) = 0;              // call once no copy of its memory is queued any more
  virtual bool export_ended(RegionId region) const = 0;  // and then the driver no longer holds its memory

  virtual void close() = 0;  // afterwards the driver holds no region's memory

  virtual std::shared_ptr<Imported> import(std::span<const std::byte> handle) = 0;
  virtual bool wants_file(const Imported& imported) const = 0;  // it needs another descriptor, in order
  virtual void give_file(Imported& imported, sys::Fd file, const std::string& why_none) = 0;
  // Pins mapped memory of a peer, to be copied by a device. It stays mapped as long as the driver holds it. Wakes the
  // task when settled.
  virtual std::shared_ptr<Hold> hold(std::shared_ptr<sys::MappedFile> map) = 0;
  // What a path is asked for: bytes that will be queued at once, 0 for none yet, and in how many pieces.
  struct Use {
    std::uint64_t bytes = 0;
    bool reads = false;  // they land in the local memory
    std::uint64_t pieces = 0;
  };
  // `imported` null: the peer's memory is mapped here.
  virtual Readiness path(RegionId local, Imported* imported, const Use& use, Path& out, std::string& why) = 0;
  // And why no faster path is taken. `touched`: bytes are read by all that waking() gives for it.
  virtual std::string path_description(const Imported& imported, bool touched) const = 0;
  virtual MemoryPlace place_of(const Imported& imported) const = 0;

  // Links between devices that fall asleep without traffic, and are to be kept awake.
  struct Waking {
    Path path;                  // by which the device reads the allocation
    std::span<std::byte> into;  // the mover's own memory there: a read of so many bytes wakes all of the link
    std::uint64_t end = 0;      // the same for all allocations on the link's other end
  };
  virtual bool keeps_awake() const = 0;            // false: nobody asked for it
  virtual std::uint32_t device_count() const = 0;  // devices of this process
  // Nothing: there is no such link between the device and the allocation, or the path is not open yet.
  virtual std::optional<Waking> waking(const Imported& imported, std::uint32_t device) const = 0;

  // A view for kernels of that device, as in transport::GpuAccess. `imported` null: of this process's own region. The
  // caller writes the word at `ended`.
  struct View {
    std::byte* base = nullptr;  // of the allocation; unset for an own region
    std::uint64_t size = 0;
    std::uint32_t* ended = nullptr;
    bool atomics = false;
    std::shared_ptr<void> keeps;  // keeps the mapping alive until the view is given back
  };
  virtual Readiness view(RegionId own, Imported* imported, int device, View& out, Status& why) = 0;
  virtual Status put(const GpuAccess::Put& put, void* stream) = 0;                            // any thread
  virtual Status wait(const StreamWait& wait, const std::uint32_t* ended, void* stream) = 0;  // any thread

  // The size into which to cut `count` blocks of `length` bytes; and the list for the copies of one start().
  virtual std::uint64_t part(const Path& path, std::uint64_t length, std::uint64_t count) const = 0;
  virtual std::span<Copy> list(const Path& path) = 0;
  // Queues copies, which are in list(), to start after the event `after` if there is one. `urgent` ones pass others.
  // Only copies of one ticket complete together; tickets complete in any order.
  virtual Status start(const Path& path, std::span<const Copy> copies, bool urgent, void* after, Ticket& out) = 0;
  virtual Result<std::shared_ptr<StreamGate>> hold_stream(void* stream) = 0;  // any thread
  // A pinned buffer of kStageBytes for copies in two steps; null: none is free now.
  static constexpr std::uint64_t kStageBytes = std::uint64_t{1} << 20;
  virtual std::byte* take_stage(const Path& path) = 0;
  virtual void give_stage(const Path& path, std::byte* stage) = 0;
};

}  // namespace fairway::transport::host
