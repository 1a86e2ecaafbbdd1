#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fairway {

// One run of several engines with control, simulated NICs, clocks and sockets, on one thread and in virtual time. The
// seed decides everything: sizes, devices, faults, transfers, and the order of events.
struct SimulationRequest {
  std::uint64_t seed = 1;
  // Names of simulated_faults(): every fault of the run is one of them, and there is one at least. Empty: the seed's
  // choice, of all kinds and of none.
  std::vector<std::string> faults;
  std::uint32_t drift = 200;  // millionths by which a host's clock runs faster than time, at most; 0: all run alike
  // Receives one line per notable event; empty: no trace, at no cost.
  std::function<void(const std::string& line)> trace;
  // Called when the run can neither continue nor end. Must not return: print the seed and exit the process.
  std::function<void(const std::string& why)> hopeless;
};

// How often runs met each situation that they must be able to handle. A count of 0 over a whole campaign means that the
// campaign did not test that situation.
struct SimulationCoverage {
  std::uint64_t cancels_fenced = 0;
  std::uint64_t cancels_not_fenced = 0;  // a NIC held the transfer's slices for longer than the call waited
  std::uint64_t deregisters_fenced = 0;
  std::uint64_t deregisters_not_fenced = 0;
  std::uint64_t garbled = 0;          // transfers with a checksum of which the wire corrupted a byte
  std::uint64_t mismatches = 0;       // those that failed with checksum_mismatch
  std::uint64_t deaths = 0;           // peers that ended and had to be noticed
  std::uint64_t sends_held_back = 0;  // by their sender, because the target had no room
  std::uint64_t moves_at_once = 0;    // transfers that were complete when submit() returned
  std::uint64_t sends_at_once = 0;    // messages and their answers that were handed over within the call
  std::uint64_t computations = 0;     // applications that made no call for longer than their peers' timeout
  // Ways from host to host that for a while let nothing through in one direction, were slow, or swallowed long
  // segments.
  std::uint64_t one_way_cuts = 0, slow_paths = 0, mtu_holes = 0;
  std::uint64_t drifting_clocks = 0;  // of hosts, that run faster than time
};

struct SimulationReport {
  std::uint64_t seed = 0;
  bool passed = false;
  std::string failure;     // the broken promises, one per line
  std::uint64_t hash = 0;  // over all events: equal for two runs of one seed
  std::uint64_t events = 0;
  std::uint64_t virtual_us = 0;
  std::uint32_t engines = 0;       // opened, restarts included
  std::uint32_t transfers = 0;     // accepted by submit()
  std::uint32_t succeeded = 0;     // transfers that completed ok
  std::uint32_t faults = 0;        // of links, hosts and partitions
  std::uint64_t late_landed = 0;   // frames of broken links that landed before their fence
  std::uint64_t late_stopped = 0;  // frames of broken links that a fence stopped
  SimulationCoverage coverage;
};

// break_link, device_down, partition, one_way, slow_path, mtu_hole, freeze, kill, cut_control, hold.
std::vector<std::string> simulated_faults();

// Runs one seed to its end and checks every promise on the way. Any thread; several seeds may run in parallel.
SimulationReport simulate(const SimulationRequest& request);

}  // namespace fairway
