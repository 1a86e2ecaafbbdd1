#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "sys/cuda_memory.h"
#include "transport/gpu_access.h"
#include "transport/verbs/port.h"

namespace fairway::transport::verbs {

// Eight bytes at a port's owner that peers may read, to learn that what they wrote before is in place. In host memory
// each link has one; memory of a GPU lies at the end of another way, so it has one of its own.
struct Word {
  std::uint64_t address = 0;  // 0: none
  std::uint32_t rkey = 0;
  bool operator==(const Word&) const = default;
};

// A GPU that regions lie in, for the ports of one transport. Any thread.
class Gpu {
 public:
  Gpu(std::unique_ptr<sys::BusGpu> bus, std::size_t ports);

  [[nodiscard]] const sys::BusGpu& bus() const { return *bus_; }
  // Its word at that port, which the caller holds: registered there when it is first asked for. Else why it cannot be.
  Result<Word> word_at(const Port& port);
  OwnRegion give_up(std::size_t port);  // null: it had none there

 private:
  struct AtPort {
    bool asked = false;
    OwnRegion region;  // null: refused
    Status status;
  };
  std::unique_ptr<sys::BusGpu> bus_;
  std::mutex mutex_;           // guards words_
  std::vector<AtPort> words_;  // by port
};

// Part of a GPU's memory, on its way to being registered: exported once for all ports.
class GpuPart {
 public:
  GpuPart(const sys::BusGpu& gpu, void* address, std::size_t size);

  // By its dma-buf; where that cannot be had, by its address, which NVIDIA's nvidia_peermem makes known to the kernel.
  // `how` says which.
  Result<OwnRegion> register_at(const Port& port, int access, bool relaxed, std::string& how) const;

 private:
  void* const address_;
  const std::size_t size_;
  Result<sys::DmaBuf> exported_;
};

// The GPUs in whose memory this transport has had regions. Any thread; they stay until the transport goes, as regions
// come and go.
class Gpus {
 public:
  Result<Gpu*> of(const void* address, std::size_t ports);
  void give_up(std::size_t port, std::vector<OwnRegion>& all);

 private:
  std::mutex mutex_;  // guards all_
  // A GPU that cannot be used is not tried again: its driver may let an end, too, wait for kernels that run.
  std::map<int, Result<std::unique_ptr<Gpu>>> all_;
};

// What the driver, where this process uses it, knows of the address; nothing: it is none of its.
std::optional<MemoryPlace> place_of_gpu_memory(const void* address);

}  // namespace fairway::transport::verbs
