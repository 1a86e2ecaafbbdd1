#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "topology/machine.h"

namespace fairway::topology {

// A network switch between machines.
struct NetSwitch {
  std::string name;  // "rail-0"
  Fact<std::uint32_t> ports;
  friend bool operator==(const NetSwitch&, const NetSwitch&) = default;
};

// One end of a cable: a NIC of a machine, or a switch.
struct CableEnd {
  bool is_switch = false;
  std::uint32_t machine = 0;  // into Fabric::machines; unused for a switch
  std::uint32_t index = 0;    // into that machine's nics, or into Fabric::switches
  friend bool operator==(const CableEnd&, const CableEnd&) = default;
};

struct Cable {
  CableEnd a;
  CableEnd b;
  Fact<double> gbps;  // Gb/s per direction
  friend bool operator==(const Cable&, const Cable&) = default;
};

// Machines and the network between them.
struct Fabric {
  std::string name;
  std::vector<Machine> machines;
  std::vector<NetSwitch> switches;
  std::vector<Cable> cables;
  friend bool operator==(const Fabric&, const Fabric&) = default;
};

// validate() of every machine, and of every cable's ends.
Status validate(const Fabric& fabric);

}  // namespace fairway::topology
