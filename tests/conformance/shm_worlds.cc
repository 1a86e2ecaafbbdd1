#include <string>
#include <vector>

#include "conformance/host_worlds.h"
#include "conformance/local_links.h"
#include "conformance/own_side.h"
#include "conformance/world.h"
#include "sys/system_runtime.h"
#include "transport/host/shm.h"

// Two sides in one process, with each way to reach memory. A link is cut at its local socket.
namespace fairway::conformance {
namespace {

Side::Make shm_maker(const transport::ShmOptions& options) {
  return [options](transport::RegionTable& regions, Runtime& runtime) {
    return transport::open_shm_transport(regions, runtime, options);
  };
}

class ShmWorld final : public World {
 public:
  ShmWorld(transport::ShmOptions options, bool files) : runtime_(system_.runtime()) {
    Buffer::in_files = files;
    a_ = std::make_unique<OwnSide>(runtime_, shm_maker(options));
    b_ = std::make_unique<OwnSide>(runtime_, shm_maker(options));
    a_->start();
    b_->start();
  }
  ~ShmWorld() override {
    a_.reset();
    b_.reset();
    Buffer::in_files = false;
  }
  std::size_t links() const override { return 1; }
  bool break_link(std::uint64_t) override { return cut_local_links(); }

 private:
  sys::SystemRuntime system_;
  Runtime runtime_;
};

}  // namespace

std::vector<Kind> shm_kinds() {
  const auto kind = [](const char* name, transport::ShmOptions options, bool files) {
    return Kind{name, 1, [options, files](std::uint64_t) { return std::make_unique<ShmWorld>(options, files); }};
  };
  constexpr transport::ShmOptions kBounced{.map = false, .cma = false};
  std::vector<Kind> kinds{kind("shm_mapped", {}, true),
                          HostProcessesWorld::kind("shm_mapped_processes", shm_maker({}), true),
                          HostProcessesWorld::kind("shm_attached_processes", shm_maker({}), false),
                          HostProcessesWorld::kind("shm_bounced_processes", shm_maker(kBounced), false)};
#ifndef __SANITIZE_THREAD__
  // It takes the two mappings of the ring in one process for two memories, and so sees no order between a byte that the
  // target put down as it was asked and the test that looks at it. With a process each there is nothing to confuse.
  kinds.push_back(kind("shm_attached", {}, false));
  kinds.push_back(kind("shm_bounced", kBounced, false));
#endif
  return kinds;
}

}  // namespace fairway::conformance
