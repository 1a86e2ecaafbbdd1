#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

// Port counters that count errors and retransmissions, and what each means.
namespace fairway::topology {

struct PortError {
  Ref<RdmaDevice> device;
  std::uint32_t port = 1;
  std::string counter;
  std::uint64_t value = 0;   // since the driver was loaded or the counters were reset
  std::string_view meaning;  // empty: a vendor's error counter without an explanation here
};

bool tells_of_an_error(std::string_view counter);
std::string_view meaning_of_counter(std::string_view counter);

// Those that are not zero, in the order of devices, ports and names.
std::vector<PortError> port_errors(const Machine& machine);

// All counters of a port now, standard and vendor's, read below `sys` ("/sys"). Empty if there is no such port.
std::vector<Counter> read_port_counters(const std::string& sys, const std::string& device, std::uint32_t port);

}  // namespace fairway::topology
