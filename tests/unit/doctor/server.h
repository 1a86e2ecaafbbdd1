#pragma once

#include <string>
#include <vector>

#include "doctor/gather.h"
#include "doctor/measurement.h"
#include "doctor/rule.h"

namespace fairway::doctor::testing {

// All that a run of the rules takes.
struct Server {
  Case now;
  std::vector<Measurement> measured;
  bool has_before = false;
  Case before;
};

// Eight H100 and eight ConnectX-7 over Ethernet, every fact known and right: no rule may say more than nothing of it.
Server healthy();
// The same as a virtual machine.
Server healthy_vm();
// Four NICs of it as bonds of two ports.
Server healthy_with_bonds();

Report run(const Server& server);
bool has(const Report& report, std::string_view rule, Level least = Level::note);
const Finding* find(const Report& report, std::string_view rule);

void set(Server& server, const std::string& fact, const std::string& value);
std::string bus_of_gpu(Server& server, std::uint32_t gpu);
std::string bus_of_nic(Server& server, std::uint32_t nic);
topology::PciDevice& pci_of_gpu(Server& server, std::uint32_t gpu);
topology::PciDevice& pci_of_nic(Server& server, std::uint32_t nic);
topology::RdmaPort& port(Server& server, std::uint32_t nic);
// A row from a GPU, or from host memory where gpu is negative, to a NIC.
Measurement row(const Server& server, int gpu, std::uint32_t nic, double gbps, Operation operation = Operation::write,
                std::uint64_t bytes = 1 << 20, std::uint32_t qps = 1);
// A case whose readings can be compared with what they were a moment ago.
void keep_before(Server& server);

}  // namespace fairway::doctor::testing
