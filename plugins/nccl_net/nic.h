#pragma once

#include <string>

namespace fairway::nccl {

// A rail as the system describes it: a network interface ("eth0"), or a port of an RDMA device ("mlx5_0", "mlx5_0/2").
struct Nic {
  bool rdma = false;
  int port = 1;
  int speed_mbps = 0;    // 0: the driver does not report it
  std::string pci_path;  // empty: not a PCI device
};

// `sys` is the mount point of sysfs. For a missing interface all fields are unknown.
Nic read_nic(const std::string& rail, const std::string& sys = "/sys");

}  // namespace fairway::nccl
