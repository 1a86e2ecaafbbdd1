#include "sys/local_socket.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>

#include "sys/error.h"

namespace fairway::sys {
namespace {

socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);  // a leading zero: no file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

constexpr std::size_t kControlBytes = CMSG_SPACE(LocalSocket::kMaxFds * sizeof(int));

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
                    "the peer's local socket is not here: another host, or another network namespace");
    return system_status(errno, "cannot reach the peer's local socket");
  }
  return socket;
}

pid_t LocalSocket::peer_pid() const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 ? credentials.pid : 0;
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

bool LocalSocket::ended() const {
  char next = 0;
  const ssize_t got = ::recv(fd_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

Result<std::optional<LocalSocket::Message>> LocalSocket::receive() const {
  Message message;
  message.bytes.resize(kMaxBytes);
  iovec piece{message.bytes.data(), message.bytes.size()};
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
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof(int), sizeof fd);
      message.fds.emplace_back(fd);
    }
  }
  message.bytes.resize(static_cast<std::size_t>(got));
  if ((header.msg_flags & MSG_TRUNC) != 0)
    return Status(ErrorCode::protocol_error, "a message longer than any of ours");
  if ((header.msg_flags & MSG_CTRUNC) != 0)
    return Status(ErrorCode::resource_exhausted,
                  "descriptors were lost on the local socket: this process has none left (ulimit -n)");
  return std::optional<Message>(std::move(message));
}

Result<LocalListener> LocalListener::listen(const std::string& name) {
  LocalListener listener;
  listener.fd_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.fd_) return system_status(errno, "cannot open a local socket");
  sockaddr_un address;
  const socklen_t size = abstract_address(name, address);
  if (::bind(listener.fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener.fd_.get(), 128) != 0)
    return system_status(errno, "cannot listen on a local socket");
  return listener;
}

LocalSocket LocalListener::accept() const {
  LocalSocket socket;
  socket.fd_ = Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return socket;
}

}  // namespace fairway::sys
