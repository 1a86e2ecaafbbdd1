#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/collectives.h"

// Where the ranks of this host's communicators are, and who holds them up.
namespace fairway {

// How far a rank is, as it tells in /dev/shm; `fairway who-hangs` prints it.
struct RankProgress {
  std::string name;         // CommunicatorOptions::name
  std::uint64_t group = 0;  // the same for the ranks of one communicator
  int rank = 0, size = 0;
  std::uint64_t process = 0;    // its id
  bool lives = false;           // the process
  bool stopped = false;         // by a signal or a debugger
  std::uint64_t operation = 0;  // the newest that it has entered; of a stream, in which it has waited
  CollectiveKind kind = CollectiveKind::barrier;
  bool inside = false;  // it has not ended it yet
  int waits_for = -1;   // rank
  std::string phase;    // "step 3 of 8"
  double seconds = 0;   // since it entered it, or ended it
  int stream = -1;      // -1: on host memory. Else of a stream or capture, numbered as they were first used, on which
  std::uint64_t call = 0;  // kernels tell, after a millisecond of waiting, in which operation they wait and for whom
};
// Of all ranks of this user on this host, and of each stream on which they waited, by communicator, stream and rank.
FAIRWAY_API std::vector<RankProgress> progress_of_ranks();
// Who is at fault where a rank of a communicator has waited for so long: "rank 2 never entered all_reduce 1841".
FAIRWAY_API std::vector<std::string> who_hangs(const std::vector<RankProgress>& ranks, double patience_seconds = 0);

}  // namespace fairway
