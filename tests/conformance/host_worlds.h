#pragma once

#include "conformance/far_side.h"
#include "conformance/local_links.h"
#include "conformance/own_side.h"
#include "conformance/shared_room.h"
#include "conformance/world.h"
#include "sys/system_runtime.h"

namespace fairway::conformance {

// A world of a transport between processes of one host with the second side in a process of its own. A link is cut at
// its local socket.
class HostProcessesWorld final : public World {
 public:
  HostProcessesWorld(const std::string& name, const Side::Make& make, bool files)
      : room_(files), runtime_(system_.runtime()) {
    b_ = std::make_unique<FarSide>(runtime_, name);  // first: it may fork
    a_ = std::make_unique<OwnSide>(runtime_, make);
    a_->start();
    b_->start();
  }
  ~HostProcessesWorld() override {
    b_->carry_no_more();
    a_.reset();
    b_.reset();
  }
  std::size_t links() const override { return 1; }
  bool break_link(std::uint64_t) override { return cut_local_links(); }
  bool overlapping_memory() const override { return false; }

  static Kind kind(const std::string& name, const Side::Make& make, bool files) {
    FarSide::offer(name, make);
    return {name, 1, [=](std::uint64_t) { return std::make_unique<HostProcessesWorld>(name, make, files); }};
  }

 private:
  SharedRoom room_;
  sys::SystemRuntime system_;
  Runtime runtime_;
};

}  // namespace fairway::conformance
