#pragma once

#include <string>

namespace fairway::nccl {

// A rail as the system has it: a network interface ("eth0"), or a port of an RDMA device ("mlx5_0", "mlx5_0/2").
struct Nic {
  bool rdma = false;
  int port = 1;
  int speed_mbps = 0;    // 0: the driver does not say
  std::string pci_path;  // empty: it has no place of its own
};

// `sys` is where sysfs is mounted. An interface that does not exist is one of which nothing is known.
Nic look_at(const std::string& rail, const std::string& sys = "/sys");

}  // namespace fairway::nccl
