#pragma once

#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include "fairway/status.h"

namespace fairway::sys {

// "host:port" or "[v6]:port", taken apart. A value.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// A socket address of either family. A value.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  bool is_loopback() const;
  std::string text() const;  // "10.0.0.7:4000", "[fd00::7]:4000"; an IPv4 address inside IPv6 as IPv4
};

Result<HostPort> parse_host_port(const std::string& address);

// The address when the host is numeric; not_found when it is a name.
Result<SocketAddress> numeric_address(const HostPort& where);

// Numeric, or asks the system's resolver, which may take seconds: not for a task's thread.
Result<std::vector<SocketAddress>> resolve_address(const HostPort& where);

}  // namespace fairway::sys
