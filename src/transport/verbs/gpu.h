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

// Eight bytes at a port's owner that peers read to flush their earlier writes: when the read completes, those are
// visible. Each link has one in host memory; each GPU has its own, since the path over the bus to its memory differs.
struct Word {
  std::uint64_t address = 0;  // 0: none
  std::uint32_t rkey = 0;
  bool operator==(const Word&) const = default;
};

// A GPU with registered regions, for the ports of one transport. Any thread.
class Gpu {
 public:
  Gpu(std::unique_ptr<sys::BusGpu> bus, std::size_t ports);

  [[nodiscard]] const sys::BusGpu& bus() const { return *bus_; }
  // Its word at that port, registered at the first call that succeeds. The caller holds the port.
  Result<Word> word_at(const Port& port);
  OwnRegion give_up(std::size_t port);  // null: it had none there

 private:
  std::unique_ptr<sys::BusGpu> bus_;
  std::mutex mutex_;              // guards words_
  std::vector<OwnRegion> words_;  // by port; null: none yet
};

// A part of GPU memory that is to be registered: exported once for all ports.
class GpuPart {
 public:
  GpuPart(const sys::BusGpu& gpu, void* address, std::size_t size);

  // Registers it by dma-buf or, if that fails, by its address with the kernel module nvidia_peermem. `how` says which.
  Result<OwnRegion> register_at(const Port& port, int access, bool relaxed, std::string& how) const;

 private:
  void* const address_;
  const std::size_t size_;
  Result<sys::DmaBuf> exported_;
};

// The GPUs in which this transport has had regions; kept until the transport is destroyed. Any thread.
class Gpus {
 public:
  Result<Gpu*> of(const void* address, std::size_t ports);
  void give_up(std::size_t port, std::vector<OwnRegion>& all);

 private:
  std::mutex mutex_;  // guards all_
  // By device. One that failed, perhaps because its memory was full, is tried again for the next region.
  std::map<int, std::unique_ptr<Gpu>> all_;
};

// Where the address lies if this process uses the CUDA driver and the driver knows the address.
std::optional<MemoryPlace> place_of_gpu_memory(const void* address);

}  // namespace fairway::transport::verbs
