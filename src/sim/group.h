#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "sim/fabric.h"
#include "sim/group_formula.h"
#include "sim/strand.h"

namespace fairway::sim {

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
