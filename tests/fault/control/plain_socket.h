#pragma once

#include <cstdlib>
#include <string>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include "sys/fd.h"

// Blocking sockets on 127.0.0.1, for tests that act as an unauthenticated peer, a store or a network.
namespace fairway::control {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline std::uint16_t port_of(const std::string& address) {
  return static_cast<std::uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
}

inline sys::Fd plain_connect(std::uint16_t port) {
  sys::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = loopback(port);
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fd.reset();
  return fd;
}

// Listens on a free port, or on `port` if it is not 0.
inline sys::Fd plain_listen(std::uint16_t& port) {
  sys::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  auto address = loopback(port);
  socklen_t size = sizeof(address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(fd.get(), 64) != 0)
    fd.reset();
  if (fd) ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return fd;
}

// Whether the other side closes the connection within that time.
inline bool closed_within(int fd, int milliseconds) {
  for (;;) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, milliseconds) != 1) return false;
    char bytes[4096];
    if (::recv(fd, bytes, sizeof(bytes), 0) <= 0) return true;
  }
}

}  // namespace fairway::control
