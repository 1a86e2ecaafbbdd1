#include <string>
#include <vector>

#include <dirent.h>
#include <sys/socket.h>

#include "conformance/world.h"
#include "sys/system_runtime.h"
#include "transport/shm/shm.h"

// Two sides in one process, with each way to reach memory. A link is cut at its local socket.
namespace fairway::conformance {
namespace {

// The ends of local connections that this process has open.
std::vector<int> local_connections() {
  std::vector<int> found;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int domain = 0, type = 0, listens = 0;
    socklen_t size = sizeof(int);
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
        ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET &&
        ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 0)
      found.push_back(fd);
  }
  ::closedir(folder);
  return found;
}

class ShmWorld final : public World {
 public:
  ShmWorld(transport::ShmOptions options, bool files) : runtime_(system_.runtime()) {
    Buffer::in_files = files;
    const auto make = [options](transport::RegionTable& regions, Runtime& runtime) {
      auto made = transport::make_shm_transport(regions, runtime, options);
      EXPECT_TRUE(made->probe());
      return made;
    };
    a_ = std::make_unique<Side>(runtime_, make);
    b_ = std::make_unique<Side>(runtime_, make);
    a_->start();
    b_->start();
  }
  ~ShmWorld() override {
    a_.reset();
    b_.reset();
    Buffer::in_files = false;
  }
  std::size_t links() const override { return 1; }
  bool break_link(std::uint64_t) override {
    const std::vector<int> ends = local_connections();
    for (const int fd : ends) ::shutdown(fd, SHUT_RDWR);
    return !ends.empty();
  }

 private:
  sys::SystemRuntime system_;
  Runtime runtime_;
};

}  // namespace

std::vector<Kind> shm_kinds() {
  const auto kind = [](const char* name, transport::ShmOptions options, bool files) {
    return Kind{name, 1, [options, files](std::uint64_t) { return std::make_unique<ShmWorld>(options, files); }};
  };
#ifdef __SANITIZE_THREAD__
  // It takes the two mappings of the ring in this one process for two memories, and so sees no order between a byte
  // that the target put down as it was asked and the test that looks at it. With a process each there is nothing to
  // confuse.
  return {kind("shm_mapped", {}, true)};
#else
  return {kind("shm_mapped", {}, true), kind("shm_attached", {}, false),
          kind("shm_bounced", {.map = false, .attach = false}, false)};
#endif
}

}  // namespace fairway::conformance
