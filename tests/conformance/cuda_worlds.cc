#include <cstdlib>
#include <string>
#include <vector>

#include "conformance/device_placement.h"
#include "conformance/host_worlds.h"
#include "conformance/local_links.h"
#include "conformance/own_side.h"
#include "conformance/world.h"
#include "sys/system_runtime.h"
#include "transport/cuda/cuda.h"

// Two sides in one process with their memory on two GPUs, or what stands in for them, or in files as of shm.
namespace fairway::conformance {
namespace {

Result<std::unique_ptr<Transport>> make(transport::RegionTable& regions, Runtime& runtime) {
  return transport::open_cuda_transport(regions, runtime);
}

class CudaWorld final : public World {
 public:
  explicit CudaWorld(bool on_gpus) : runtime_(system_.runtime()) {
    Buffer::in_files = !on_gpus;
    Buffer::placement = on_gpus ? &gpus_ : nullptr;
    a_ = std::make_unique<OwnSide>(runtime_, &make);
    b_ = std::make_unique<OwnSide>(runtime_, &make);
    a_->start();
    b_->start();
  }
  ~CudaWorld() override {
    a_.reset();
    b_.reset();
    Buffer::in_files = false;
    Buffer::placement = nullptr;
  }
  std::size_t links() const override { return 1; }
  bool break_link(std::uint64_t) override { return cut_local_links(); }
  bool overlapping_memory() const override { return false; }  // of copies by a device nobody says what comes of it

 private:
  OnGpus gpus_;
  sys::SystemRuntime system_;
  Runtime runtime_;
};

Kind cuda_kind(const char* name, bool on_gpus) {
  return {name, 1, [=](std::uint64_t) { return std::make_unique<CudaWorld>(on_gpus); }};
}

}  // namespace

std::vector<Kind> cuda_kinds() {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);  // one that is set is the one to try
  std::vector<Kind> kinds{cuda_kind("cuda_host", false)};
  // A driver that was used before a fork is of no use after it: true ones have their processes in tests/process/cuda.
  if (::getenv("FAIRWAY_CUDA_DRIVER") == std::string(FAIRWAY_STANDIN_CUDA))
    kinds.push_back(HostProcessesWorld::kind("cuda_host_processes", &make, true));
#ifndef __SANITIZE_THREAD__
  kinds.push_back(cuda_kind("cuda_gpus", true));  // as of shm: it takes the two mappings of the ring for two memories
#endif
  return kinds;
}

}  // namespace fairway::conformance
