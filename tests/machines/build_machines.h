#pragma once

#include <string>

#include "topology/machine.h"

// Machines for what no capture shows, written by hand from the documents that each one's notes name. What those do not
// say stays unknown.
namespace fairway::machines {

// NVIDIA DGX-1V: 8 V100 in a hybrid cube mesh of NVLink 2, two links on some pairs, one on others, none on the rest.
topology::Machine dgx1v();
// A workstation with two A100 PCIe cards joined by NVLink bridges (12 links).
topology::Machine nvlink_bridge_pair();
// A node of four MI250X: eight GPU dies joined by xGMI, four NICs that hang on the GPUs, one socket of four NUMA nodes.
topology::Machine mi250x();
// A host of 8 H100 and 8 ConnectX-7, each pair behind a PCIe switch of its own.
topology::Machine h100_host(const std::string& name);
// Two such hosts, NIC k of each on rail switch k.
topology::Fabric two_rail_hosts();
// What the pasted outputs of an 8x H20 server leave open and its description says: sockets, models, leg speeds.
void add_h20_description(topology::Machine& machine);

}  // namespace fairway::machines
