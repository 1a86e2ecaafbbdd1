#pragma once

#include <vector>

#include "fairway/options.h"

#include "sim/fabric.h"

namespace fairway::sim {

// What a seed chooses before anything runs. A value.
struct Scenario {
  enum class Fault : std::uint8_t { break_link, device_down, partition, freeze, kill, cut_control, hold };
  struct Planned {
    Time at = 0;
    Fault fault = Fault::break_link;
    std::uint32_t a = 0, b = 0;  // hosts, a device
    Time lasts = 0;
  };
  std::uint32_t engines = 2;
  std::vector<std::vector<NicDevice>> devices;  // by place
  std::vector<EngineOptions> options;           // by place
  std::uint32_t operations = 30;
  Time pace = 50 * kMicrosecond;  // between operations
  std::uint32_t largest = 4096;   // bytes of a transfer
  std::vector<Planned> faults;
  std::uint32_t immediate_bits = 0;  // of events, above those that name their job
  bool garbles = false;              // the wire changes a byte of some transfers that are checked
  bool faulty = false;               // a NIC is broken from the beginning
  bool storms = false;               // sends that nobody receives
};

Scenario make_scenario(Random& random);

}  // namespace fairway::sim
