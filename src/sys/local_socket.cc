#include "sys/local_socket.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "sys/error.h"

namespace fairway::sys {
namespace {

socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);  // a leading zero: an abstract name, not a file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

constexpr std::size_t kControlBytes = CMSG_SPACE(LocalSocket::kMaxFds * sizeof(int));
constexpr int kLocalBacklog = 128;
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, for headers older than the kernel

ucred credentials_of(int socket) {
  ucred credentials{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  socklen_t size = sizeof credentials;
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return credentials;
}

Fd open_reserve() {
  return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// Disables lingering on a received socket. Peers never send sockets; closing one could block for as long as its sender
// chose (SO_LINGER).
void forget_linger(int fd) {
  struct stat facts {};
  const linger none{1, 0};
  if (::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode)) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

}  // namespace

Result<LocalSocket> LocalSocket::dial(const std::string& name) {
  LocalSocket socket;
  socket.fd_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.fd_) return system_status(errno, "cannot open a local socket");
  sockaddr_un address;
  const socklen_t size = abstract_address(name, address);
  if (::connect(socket.fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    if (errno == ECONNREFUSED)
      return Status(ErrorCode::unreachable,
                    "no such local socket: the peer is on another host or in another network namespace");
    if (errno == EAGAIN) return Status(ErrorCode::queue_full, "the accept queue of the peer's local socket is full");
    return system_status(errno, "cannot reach the peer's local socket");
  }
  return socket;
}

pid_t LocalSocket::peer_pid() const {
  return credentials_of(fd_.get()).pid;
}

uid_t LocalSocket::peer_user() const {
  return credentials_of(fd_.get()).uid;
}

bool LocalSocket::of_this_user() const {
  return peer_user() == ::geteuid();
}

Fd LocalSocket::peer_process() const {
  int fd = -1;
  socklen_t size = sizeof fd;
  return Fd(::getsockopt(fd_.get(), SOL_SOCKET, kPeerPidfd, &fd, &size) == 0 ? fd : -1);
}

Result<bool> LocalSocket::send(std::span<const std::byte> bytes, std::span<const int> fds) const {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty() && fds.size() <= kMaxFds) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  if (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ETOOMANYREFS) return false;
  if (errno == EPIPE || errno == ECONNRESET) return Status(ErrorCode::closed, "the other end closed the local socket");
  return system_status(errno, "cannot send on the local socket");
}

LocalSocket::Next LocalSocket::next() const {
  char first = 0;
  const ssize_t got = ::recv(fd_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return Next::message;
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? Next::nothing : Next::end;
}

Result<std::optional<LocalSocket::Message>> LocalSocket::receive() const {
  std::array<std::byte, kMaxBytes> bytes;
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return std::optional<Message>();
  if (got == 0 || (got < 0 && errno == ECONNRESET))
    return Status(ErrorCode::closed, "the other end closed the local socket");
  if (got < 0) return system_status(errno, "cannot read the local socket");
  Message message;
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof(int), sizeof fd);
      forget_linger(fd);
      message.fds.emplace_back(fd);
    }
  }
  if ((header.msg_flags & MSG_TRUNC) != 0)
    return Status(ErrorCode::protocol_error, "malformed message: longer than any of this protocol");
  if ((header.msg_flags & MSG_CTRUNC) != 0)
    return message.fds.size() == kMaxFds
               ? Status(ErrorCode::protocol_error, "malformed message: more file descriptors than any of this protocol")
               : Status(ErrorCode::resource_exhausted,
                        "file descriptors were lost on the local socket: this process has none left; raise the limit "
                        "with `ulimit -n`");
  message.bytes.assign(bytes.begin(), bytes.begin() + got);
  return std::optional<Message>(std::move(message));
}

Result<LocalListener> LocalListener::listen(const std::string& name) {
  LocalListener listener;
  listener.fd_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.fd_) return system_status(errno, "cannot open a local socket");
  sockaddr_un address;
  const socklen_t size = abstract_address(name, address);
  if (::bind(listener.fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener.fd_.get(), kLocalBacklog) != 0)
    return system_status(errno, "cannot listen on a local socket");
  listener.spare_fd_ = open_reserve();
  return listener;
}

Result<LocalSocket> LocalListener::accept(std::span<const std::byte> no_room) {
  LocalSocket socket;
  socket.fd_ = Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)) {
    if (!spare_fd_) spare_fd_ = open_reserve();
    return socket;
  }
  const Status why = system_status(errno, "cannot accept on the local socket");
  spare_fd_.reset();
  socket.fd_ = Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) static_cast<void>(socket.send(no_room, {}));
  socket.fd_.reset();
  spare_fd_ = open_reserve();
  return why;
}

}  // namespace fairway::sys
