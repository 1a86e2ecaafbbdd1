#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include "fairway/status.h"

namespace fairway::sys {

// A parsed "host:port" or "[v6]:port". A value.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// An IPv4 or IPv6 socket address. A value.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  bool is_loopback() const;
  std::string text() const;  // "10.0.0.7:4000" or "[fd00::7]:4000"; an IPv4-mapped IPv6 address is written as IPv4
};

Result<HostPort> parse_host_port(const std::string& address);

// The address, if the host is numeric. Error: not_found when it is a host name.
Result<SocketAddress> numeric_address(const HostPort& where);

// Resolves the host, numeric or by the system's resolver. The resolver may block for seconds: do not call this on a
// task's thread.
Result<std::vector<SocketAddress>> resolve_address(const HostPort& where);

// The same, in a thread of its own if it needs the resolver. timed_out: the resolver has not answered by then; that
// thread goes on and ends by itself.
Result<std::vector<SocketAddress>> resolve_address_within(const HostPort& where, std::chrono::microseconds most);

}  // namespace fairway::sys
