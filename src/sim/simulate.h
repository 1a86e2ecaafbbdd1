#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fairway {

// One run of several engines, their control and simulated NICs, clocks and sockets, on one thread and in virtual time.
// The seed decides everything: sizes, devices, faults, transfers, and in which order things happen.
struct SimulationRequest {
  std::uint64_t seed = 1;
  // Every event worth reading, one line each; empty: none, which costs nothing.
  std::function<void(const std::string& line)> trace;
  // Called when the run can neither go on nor end. Must not return: print the seed and leave the process.
  std::function<void(const std::string& why)> hopeless;
};

// How often runs met what they must be able to tell apart. Where one of these stays 0 over a campaign, it has not
// looked.
struct SimulationCoverage {
  std::uint64_t cancels_fenced = 0;
  std::uint64_t cancels_not_fenced = 0;  // a NIC held the transfer's slices for longer than the call waited
  std::uint64_t deregisters_fenced = 0;
  std::uint64_t deregisters_not_fenced = 0;
  std::uint64_t garbled = 0;          // transfers with a checksum of which the wire changed a byte
  std::uint64_t mismatches = 0;       // of them, that failed for it
  std::uint64_t deaths = 0;           // ends of peers that were due to be noticed
  std::uint64_t sends_held_back = 0;  // at their sender, as their target has no room
  std::uint64_t computations = 0;     // callers that made no call for longer than their peers' timeout
};

struct SimulationReport {
  std::uint64_t seed = 0;
  bool passed = false;
  std::string failure;     // the promises that were broken, one a line
  std::uint64_t hash = 0;  // of everything that happened: equal for two runs of one seed
  std::uint64_t events = 0;
  std::uint64_t virtual_us = 0;
  std::uint32_t engines = 0;       // opened, restarts included
  std::uint32_t transfers = 0;     // accepted
  std::uint32_t succeeded = 0;     // of them
  std::uint32_t faults = 0;        // links, hosts and partitions
  std::uint64_t late_landed = 0;   // frames of broken links that still landed, before their fence
  std::uint64_t late_stopped = 0;  // that a fence stopped
  SimulationCoverage coverage;
};

// Runs one seed to its end and checks every promise on the way. Several may run at once on different threads.
SimulationReport simulate(const SimulationRequest& request);

}  // namespace fairway
