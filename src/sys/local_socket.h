#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

// Messages between processes of one host that may carry descriptors (a Unix socket of whole messages). Never blocks.
// Its name lives in the network namespace, not in the file system, and goes with its owner. A resource.
class LocalSocket {
 public:
  static constexpr std::size_t kMaxBytes = 1024;
  static constexpr std::size_t kMaxFds = 4;
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
  };

  // unreachable when nobody has that name here.
  static Result<LocalSocket> dial(const std::string& name);

  LocalSocket() = default;
  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  // The process at the other end as the kernel knows it, for good; 0: not visible in this PID namespace.
  pid_t peer_pid() const;
  // False: no room now.
  Result<bool> send(std::span<const std::byte> bytes, std::span<const int> fds) const;
  // The other end is gone, and there is no message left.
  bool ended() const;
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
  LocalSocket accept() const;  // an empty one when nobody waits

 private:
  Fd fd_;
};

}  // namespace fairway::sys
