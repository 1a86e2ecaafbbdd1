#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "fairway/fairway.h"

// `fairway soak`: engines in processes of their own move bytes between all their memories, from a seed; one of them is
// killed or frozen now and then, and every promise that shows from outside is checked.
//   soak_plan      what a round does: a pure function of seed and number
//   soak_memory    a region, and what should be in it
//   soak_engine    one process's engine, its memories and its peers
//   soak_play      that process starts its steps, and watches what arrives
//   soak_check     and says what is not as promised
//   soak_peer      the process as a whole: it obeys the one below, line by line
//   soak_lead      starts the processes, has them play rounds, kills and freezes
//   soak_totals    what came of it: the table, JSON, and the file to go on from
namespace fairway::tool::soak {

// What is done to the processes and their transfers.
struct Faults {
  bool kill = true, freeze = true, revoke = true, cancel = true, deadline = true;
  bool operator==(const Faults&) const = default;
};
Result<Faults> faults_of(const std::vector<std::string>& words);
std::vector<std::string> words_of(const Faults& faults);

// What a seed stands on: with the same ones a round is the same.
struct Settings {
  std::uint64_t seed = 1;
  unsigned engines = 3;
  std::uint64_t largest = std::uint64_t{8} << 20;  // bytes of a transfer
  std::vector<std::string> memories;               // each process has each of them
  std::vector<std::string> via;                    // transports; empty: as the engines choose
  Faults faults;
  RdmaOptions rdma;  // of the machine and not of the seed
};
// As words of a command line; the same settings have the same words.
std::vector<std::string> words_of(const Settings& settings);

// The process that obeys, until its standard input ends.
Status obey(const Settings& settings, unsigned process);

}  // namespace fairway::tool::soak
