#pragma once

#include <cstdint>

#include "fairway/collectives.h"

#include "core/time.h"

// What a collective costs on simulated links (group.h), by the textbook: it looks at no schedule. Pure.
namespace fairway::sim {

struct GroupCall {
  CollectiveKind kind = CollectiveKind::barrier;
  Algorithm algorithm = Algorithm::dissemination;
  int ranks = 2;
  std::uint64_t count = 0;  // elements of 8 bytes, as in Collective
  std::uint64_t piece = 1;  // longest message, in bytes
  int root = 0;
  int per_host =
      1;  // consecutive ranks of a host, by `hierarchical`: it says who combines first, not what a link takes

  bool local = false;  // Collective::local_completion, of what has a root

  [[nodiscard]] std::uint64_t bytes() const { return 8 * count; }
};

struct SteadyLink {
  Time latency = 3 * kMicrosecond;                 // from one NIC to the other
  Time message = 1 * kMicrosecond;                 // of the NIC, each way, for a message
  std::uint64_t bytes_per_second = 2'000'000'000;  // each way
};

// What one rank sends.
struct Sent {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;  // a header of 64 bytes in front of each message included
};
[[nodiscard]] Sent expected_sent(const GroupCall& call, int rank);

// From all ranks' call to the last rank's return, in nanoseconds. L: latency. w(x): a NIC's time for a message of x
// bytes, which it sends, and receives, one after the other. What is longer than a piece goes as m pieces, the next one
// ahead of the one that is awaited.
//   one message                         L + w
//   swap(x): to a rank and from a rank  the longer of L + m w and ceil(m / 2) (L + w)
//   fan(x): to each rank, from each     L + (n - 1) m w
//   slots that are given back           (n - 1) m / 4 of them, 8 at a time, 2 L each: on average, where a rank hears
//                                       from all others
//   barrier                             ceil(log2 n) (L + w(0))
// The last message's acknowledgement adds L, which local completion does not wait for, as it has no barrier. Combining
// and copying cost nothing here.
[[nodiscard]] double expected_ns(const GroupCall& call, const SteadyLink& link);
// How far the simulated time may be off, as a part of the formula's.
inline constexpr double kTolerance = 0.1;

}  // namespace fairway::sim
