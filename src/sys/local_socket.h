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

// A Unix socket (SOCK_SEQPACKET) between processes of one host; messages may carry file descriptors. Never blocks and
// never raises SIGPIPE. Neither end ever holds a descriptor of the other's socket. Its name is abstract: it belongs to
// the network namespace, not to the file system, and disappears with its owner.
class LocalSocket {
 public:
  static constexpr std::size_t kMaxBytes = 1024;
  static constexpr std::size_t kMaxFds = 2;
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
  };

  // Errors: unreachable when no socket has that name here; queue_full when its accept queue is full.
  static Result<LocalSocket> dial(const std::string& name);

  LocalSocket() = default;
  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  // The peer's process id as the kernel recorded it at connect; 0: not visible in this PID namespace.
  pid_t peer_pid() const;
  Fd peer_process() const;  // a pidfd of the same process (Linux 6.5 and newer); empty on older kernels
  uid_t peer_user() const;
  bool of_this_user() const;
  // False: the socket's buffer is full.
  Result<bool> send(std::span<const std::byte> bytes, std::span<const int> fds) const;
  enum class Next : std::uint8_t { nothing, message, end };
  Next next() const;  // what receive() would return
  // Empty: no message yet. ErrorCode::closed: the other end closed.
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
  // Empty when no connection waits. resource_exhausted: this process is out of file descriptors; the oldest waiting
  // connection was sent `no_room` and closed.
  Result<LocalSocket> accept(std::span<const std::byte> no_room);

 private:
  Fd fd_;
  Fd spare_fd_;  // closed for a moment to reject a connection
};

}  // namespace fairway::sys
