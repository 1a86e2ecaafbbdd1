#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fairway/collectives.h"
#include "fairway/status.h"

#include "core/time.h"
#include "sim/fabric.h"
#include "sim/fiber.h"

// Ranks of a job on simulated links. What a collective costs there, by the textbook, looks at no schedule, and is pure.
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

// What each message of a collective carries, in words: the schedules that engines run, run on names instead of values.
// Pure.

// A call that is followed message by message.
struct FollowedCall {
  GroupCall call;
  bool in_place = false;  // as Collective describes it
};

struct Content {
  std::string text;  // "B 0+1": block B, combined of ranks 0 and 1; empty: there is no more to say than that it came
  int one = -1;      // the block, or the rank, that it is of; -1: of several
  bool combined = false;  // its receiver combines it with values of its own
  std::uint64_t bytes = 0;
};

// Of all messages from rank a to rank b, in their order: [a * ranks + b]. An error: the schedules do not end.
[[nodiscard]] Result<std::vector<std::vector<Content>>> contents_of(const FollowedCall& followed);

// Into how many blocks the text of a call's messages divides a vector, or a rank's blocks; 1: into none.
[[nodiscard]] int blocks_of(const FollowedCall& followed);

struct GroupOptions {
  int ranks = 2;
  SteadyLink link;
  std::uint64_t seed = 1;
  int per_host = 1;                 // consecutive ranks that take themselves for those of one host
  std::uint32_t slot_bytes = 4096;  // of the communicator: the longest message
  // Of each engine, a KiB each. A communicator holds one for each other rank while it lives. 0: enough.
  std::uint32_t max_transfers = 0;
  std::function<void(const std::string& line)> trace = {};  // as SimulationOptions::trace, once all have joined
  std::chrono::milliseconds timeout{60'000};                // of its operations
  std::chrono::milliseconds peer_timeout{3'600'000};        // heartbeats of thousands of sessions take long to simulate
};

// Ranks of a job, in virtual time: each is a host of its own with one NIC, an engine, and a program that calls what
// blocks. One thread.
class Group {
 public:
  explicit Group(const GroupOptions& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  struct Rank {
    int number = 0;
    Host* host = nullptr;
    std::unique_ptr<Strand> strand;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Communicator> communicator;
    bool dead = false;
  };

  // Runs `program` as each living rank, and returns when all have ended it. An error: ranks wait for ever.
  Status run(const std::function<void(Rank&)>& program);
  // The same for those ranks alone.
  Status run(const std::vector<int>& ranks, const std::function<void(Rank&)>& program);

  Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
  // Every rank joins one communicator.
  Status join();
  const GroupOptions& options() const { return options_; }
  Simulation& simulation() { return simulation_; }
  Fabric& fabric() { return fabric_; }
  void kill(int rank);
  // The process ends soon: nothing is closed, which takes as long as joining.
  void leave_open() { leaves_open_ = true; }

 private:
  const GroupOptions options_;
  bool joined_ = false;
  Status failed_;
  Simulation simulation_;
  Fabric fabric_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::string> addresses_;
  bool leaves_open_ = false;
};

}  // namespace fairway::sim
