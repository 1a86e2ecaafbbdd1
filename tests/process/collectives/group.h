#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fairway/collectives.h"
#include "fairway/loopback.h"

namespace fairway {

// What every rank of a group does.
using RankBody = std::function<void(Engine& engine, Communicator& communicator)>;

struct GroupOptions {
  int size = 2;
  std::vector<std::string> transports = {"shm"};
  // Of each rank: the host that it takes itself to be on, whatever links it has; empty: this one.
  std::vector<int> hosts = {};
  bool own_addresses = false;  // each rank's is another host's: messages have the length of those between hosts
  Progress progress = Progress::caller;
  // Ranks of a busy machine are late, not dead: no test of values ends by time.
  std::chrono::milliseconds peer_timeout{120'000};
  std::function<void(EngineOptions& engine, int rank)> change = {};  // of each rank's engine
  CommunicatorOptions communicator = {.timeout = std::chrono::minutes(10)};
};

// Of so many ranks over that transport; "hosts": over shm and tcp, as if each two were on a host of their own.
GroupOptions group_over(int size, const std::string& links);

// Runs `body` on so many ranks, each a thread with an engine of its own. Failures are GoogleTest's.
void run_group(const GroupOptions& options, const RankBody& body);

// The same with a process for each rank; each exits with 0 if its body was content, and `killed` may die. Every check
// in a body is an exit.
struct RankEnd {
  bool well = false;  // exited with 0
  std::string said;   // what it wrote on standard error
};
std::vector<RankEnd> run_processes(const GroupOptions& options,
                                   const std::function<int(Engine& engine, Communicator& communicator)>& body);

}  // namespace fairway
