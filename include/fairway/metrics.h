#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fairway/ids.h"

namespace fairway {

// Times in nanoseconds. Percentiles are within 1/9 of the true value, the maximum is exact.
struct Latency {
  std::uint64_t count = 0;
  std::uint64_t p50_ns = 0;
  std::uint64_t p90_ns = 0;
  std::uint64_t p99_ns = 0;
  std::uint64_t max_ns = 0;
};

struct LinkMetrics {
  std::string name;
  PeerId peer;
  bool up = false;
  std::uint64_t bytes_out = 0;  // payload that this side moved: writes, reads, messages
  std::uint64_t slices = 0;
  std::uint64_t errors = 0;
  std::uint64_t retries = 0;   // slices that failed over from this link to another
  std::uint64_t failures = 0;  // times the link went down
  std::uint32_t in_flight = 0;
};

struct PeerMetrics {
  PeerId peer;
  std::string name;
  std::uint64_t transfers_ok = 0;
  std::uint64_t transfers_failed = 0;
  std::uint64_t bytes = 0;
  std::uint64_t notifications = 0;  // delivered here
  std::uint32_t in_flight = 0;
  // Submission to completion. Of those that their caller completes or starts, one in 64 or 16 is measured for all.
  Latency latency;
};

// Cost of a transport's work since the engine opened.
struct TransportMetrics {
  std::string name;
  std::uint64_t system_calls = 0;
  std::uint64_t copied_bytes = 0;  // extra copies, besides the one to or from the kernel or the peer's memory
};

struct Metrics {
  std::vector<PeerMetrics> peers;
  std::vector<LinkMetrics> links;
  std::vector<TransportMetrics> transports;
  std::uint64_t transfers_in_use = 0;
  std::uint64_t regions = 0;
  std::uint64_t back_pressure = 0;  // submissions refused because a queue was full
};

// A counter of a NIC port: packets lost, out of order, retransmitted, congestion. It counts for all processes of the
// host since the driver was loaded.
struct PortCounter {
  std::string port;  // "mlx5_0/1"
  std::string name;  // the driver's: "out_of_sequence"
  std::uint64_t value = 0;
};

}  // namespace fairway
