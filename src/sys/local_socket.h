#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

// Messages between processes of one host that may carry descriptors (a Unix socket of whole messages). Never blocks and
// raises no signal, whatever the other end does: neither end ever has a descriptor of the other's socket. Its name
// lives in the network namespace, not in the file system, and goes with its owner. A resource.
class LocalSocket {
 public:
  static constexpr std::size_t kMaxBytes = 1024;
  static constexpr std::size_t kMaxFds = 2;
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
  };

  // unreachable when nobody has that name here; queue_full when too many others knock there at this moment.
  static Result<LocalSocket> dial(const std::string& name);

  LocalSocket() = default;
  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  // The process at the other end as the kernel knows it, for good; 0: not visible in this PID namespace.
  pid_t peer_pid() const;
  Fd peer_process() const;  // the same as a descriptor, from kernels that have it (Linux 6.5); else empty
  uid_t peer_user() const;
  bool of_this_user() const;
  // False: no room now.
  Result<bool> send(std::span<const std::byte> bytes, std::span<const int> fds) const;
  enum class Next : std::uint8_t { nothing, message, end };
  Next next() const;  // what receive() would find
  // Nothing: none now. ErrorCode::closed: the other end is gone.
  Result<std::optional<Message>> receive() const;

 private:
  friend class LocalListener;
  Fd fd_;
};

class LocalListener {
 public:
  static Result<LocalListener> listen(const std::string& name);

  LocalListener() = default;
  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  // An empty one when nobody waits. resource_exhausted: this process is out of descriptors; who waited longest was sent
  // `no_room` and let go.
  Result<LocalSocket> accept(std::span<const std::byte> no_room);

 private:
  Fd fd_;
  Fd reserve_;  // given up for a moment to tell one who waits
};

}  // namespace fairway::sys
