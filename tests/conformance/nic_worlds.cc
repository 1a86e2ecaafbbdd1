#include <cstdlib>
#include <string>
#include <vector>

#include "conformance/device_placement.h"
#include "conformance/own_side.h"
#include "conformance/world.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/verbs.h"

// Two sides of verbs in one process on NICs that stand in for real ones, with their memory on two GPUs, which do so
// too. (Host memory has its worlds on a real verbs stack: verbs_worlds.cc.)
namespace fairway::conformance {
namespace {

class NicWorld final : public World {
 public:
  NicWorld(std::uint16_t lanes, bool ordered) : lanes_(lanes), runtime_(system_.runtime()) {
    if (!ordered) ::setenv("FAIRWAY_STANDIN_UNORDERED", "1", 1);
    nics_ = support::nic::library();
    Buffer::placement = &gpus_;
    const auto maker = [&](const char* device) {
      transport::VerbsOptions options;
      options.rdma.devices = {device};
      options.rdma.queue_pairs = lanes;
      options.read_back = true;
      options.library = nics_;
      return [options](transport::RegionTable& regions, Runtime& runtime) {
        return transport::open_verbs_transport(regions, runtime, options);
      };
    };
    a_ = std::make_unique<OwnSide>(runtime_, maker("nic0"));
    b_ = std::make_unique<OwnSide>(runtime_, maker("nic1"));
    a_->start();
    b_->start();
  }
  ~NicWorld() override {
    b_->carry_no_more();
    a_.reset();
    b_.reset();
    Buffer::placement = nullptr;
    ::unsetenv("FAIRWAY_STANDIN_UNORDERED");
  }
  std::size_t links() const override { return lanes_; }
  bool break_link(std::uint64_t name) override { return support::nic::break_pair(name << 1 | 1); }

 private:
  const std::uint16_t lanes_;
  OnGpus gpus_;
  sys::SystemRuntime system_;
  Runtime runtime_;
  std::shared_ptr<const transport::verbs::Library> nics_;
};

}  // namespace

std::vector<Kind> nic_kinds() {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  const auto why_not = [] {
    const bool other = ::getenv("FAIRWAY_CUDA_DRIVER") != std::string(FAIRWAY_STANDIN_CUDA);
    return std::string(other ? "NICs that stand in reach no real GPU's memory" : "");
  };
  const auto kind = [&](const char* name, std::uint16_t lanes, bool ordered) {
    return Kind{name, 1, [=](std::uint64_t) { return std::make_unique<NicWorld>(lanes, ordered); }, why_not};
  };
  return {kind("verbs_gpus", 1, true), kind("verbs_gpus_two_lanes", 2, true), kind("verbs_gpus_unordered", 1, false)};
}

}  // namespace fairway::conformance
