#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/options.h"

#include "sim/fabric.h"

namespace fairway::sim {

// What a seed chooses before the run starts. A value.
struct Scenario {
  enum class Fault : std::uint8_t {
    break_link,
    device_down,
    partition,
    one_way,    // nothing arrives at b that comes from a
    slow_path,  // both ways
    mtu_hole,   // both ways: sockets' long segments are swallowed, and heartbeats pass
    freeze,
    kill,
    cut_control,
    hold
  };
  struct Planned {
    Time at = 0;
    Fault fault = Fault::break_link;
    std::uint32_t a = 0, b = 0;  // hosts, or a host and a device
    Time lasts = 0;
  };
  std::uint32_t engines = 2;
  std::vector<std::vector<NicDevice>> devices;  // indexed by place
  std::vector<EngineOptions> options;           // indexed by place
  std::uint32_t operations = 30;
  Time pace = 50 * kMicrosecond;  // average time between operations
  std::uint32_t largest = 4096;   // largest transfer, in bytes
  std::vector<Planned> faults;
  std::uint32_t immediate_bits = 0;  // set in the immediates of events, above the bits that hold the job's number
  bool garbles = false;              // the wire corrupts a byte of some transfers with a checksum
  bool faulty = false;               // a NIC is broken from the start
  bool unreceived_sends = false;     // some sends have no receive
  bool at_once = false;              // the wires move some small slices within the call
};

// `only`: every fault is one of these, and there is one at least; empty: the seed's choice.
Scenario make_scenario(Random& random, const std::vector<std::string>& only);

std::optional<Scenario::Fault> fault_named(std::string_view name);

}  // namespace fairway::sim
