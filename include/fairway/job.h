#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "fairway/options.h"
#include "fairway/status.h"

// The ranks of a job, as its launcher starts them, and how they find each other.
namespace fairway {

struct CommunicatorOptions {
  // The same on every rank, and unique among the communicators of an engine.
  std::string name = "world";
  // Every operation, and create(), end within this time. Choose it longer than any rank may come late to a call.
  Timeout timeout = std::chrono::seconds(30);
  // Longest piece of a message, and the room for it. A communicator takes 8 slots for each other rank. 0: 64 KiB, 512
  // KiB where the addresses name several hosts, less with many ranks, so that the slots take 16 MiB.
  std::uint32_t slot_bytes = 0;
  // The communicator uses this engine's counters of so many immediates from this one on, 10 for each rank, and each
  // that split() or shrink() makes of it as many. 0: above 0x40000000, where its name says, or behind those of another.
  // already_exists: a communicator that lives, or a counter space, has some of them; use none of one that has ended
  // either. Raise EngineOptions::max_counters for more than 400 ranks in all of them, and max_transfers for thousands:
  // a communicator holds one for each other rank.
  std::uint32_t first_immediate = 0;
};

// How a rank finds the others of its job: Communicator::join().
struct JobOptions {
  // `timeout` is for join(), too. Several groups of one job have different names.
  CommunicatorOptions communicator = {};
  // An empty job_key is FAIRWAY_JOB_KEY, or on one host a key that rank 0 makes. With a directory the ranks meet by
  // name there. join() chooses `listen` on several hosts, and names the engine "NAME/rank-RANK".
  EngineOptions engine = {.progress = Progress::caller};
  // "NAME=value" each, up to a null. Null, here and below: this process's own.
  const char* const* environment = nullptr;
  std::stop_token stop = {};  // ends join() with `cancelled`
};

// A process's place in its job, as its launcher says.
struct Ranks {
  int rank = 0, size = 1;
  int local_rank = -1;   // -1: it does not say
  bool one_host = true;  // all ranks
  std::string launcher;  // "torchrun", "environment" (RANK and WORLD_SIZE), "Open MPI", "MPICH", "Slurm", "Kubernetes"
  std::string job;       // a name that no other job of this host has; empty: they meet at `master`
  std::string master;    // "host:port" of rank 0, where it is known
};
// Errors: not_found, no launcher has left its variables; invalid_argument, which names the variable.
FAIRWAY_API Result<Ranks> detect_ranks(const char* const* environment = nullptr);

// Exchanges addresses between ranks that share a folder, which exists and is empty at the start of the job: each writes
// a file into it and waits for those of the others. Returns them by rank. timed_out names the ranks that are missing.
FAIRWAY_API Result<std::vector<std::string>> exchange_addresses(const std::string& folder, int rank, int size,
                                                                const std::string& address,
                                                                Timeout timeout = std::chrono::seconds(30));

}  // namespace fairway
