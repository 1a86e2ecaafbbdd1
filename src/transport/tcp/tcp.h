#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

struct TcpOptions {
  // Where to accept lanes: a host without a port. "0.0.0.0" and "::" mean every interface.
  std::string listen_host = "127.0.0.1";
  // Interfaces or addresses of this host that may be used: "eth0", "10.0.0.7". Empty: all.
  std::vector<std::string> interfaces;
  // Connections to each address of a peer. One thread serves them all, so within a host a second one only lets small
  // frames pass large ones; over a network it is also a second flow that switches can balance.
  std::uint16_t lanes = 2;
};

// One worker's transport over TCP connections, the lanes. `regions` and `runtime` outlive it.
Result<std::unique_ptr<Transport>> open_tcp_transport(RegionTable& regions, Runtime& runtime,
                                                      const TcpOptions& options);

}  // namespace fairway::transport
