#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fairway/status.h"

namespace fairway::nccl {

using Environment = std::function<const char*(const char* name)>;

// An address of an interface that an administrator has set up.
struct InterfaceAddress {
  std::string interface;
  std::string address;  // without brackets
  bool ipv6 = false;
  bool loopback = false;
  bool running = true;  // something is at the other end; the kernel may tell a second late
};

// What own_address() asks of this host.
struct HostNetwork {
  std::vector<InterfaceAddress> addresses;  // in the kernel's order; no link-local ones
  // The own addresses from which packets to that host (a name or an address) leave, one for each of its addresses.
  std::function<std::vector<std::string>(const std::string& host)> sources;
};
HostNetwork this_host();

struct OwnAddress {
  std::string address;
  bool ipv6 = false;
  std::string why;  // "eth0, the way to MASTER_ADDR 10.0.0.1"
};

// The address of this host that the other ranks reach. 127.0.0.1 where the launcher says that all ranks are on one
// host. Else of the interfaces that FAIRWAY_INTERFACES or NCCL_SOCKET_IFNAME allow, the one by which the rank that the
// launcher names is reached, else the one that NCCL itself would take first.
// Error: invalid_argument names the variable that no interface fits.
Result<OwnAddress> own_address(const Environment& environment, const HostNetwork& host);

}  // namespace fairway::nccl
