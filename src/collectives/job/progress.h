#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/gpu/plan.h"
#include "collectives/host/wire.h"
#include "sys/fd.h"

namespace fairway::collectives {

// What a rank tells the other processes of its user on this host: a file in /dev/shm, which anybody of them reads
// without its help (`fairway who-hangs`). It says as much if the process hangs, is stopped or was killed.
struct ProgressWords {
  std::uint64_t magic = 0;
  std::uint64_t group = 0;  // the same on all ranks of a communicator, and on no other
  std::uint64_t process = 0;
  std::uint64_t started = 0;  // ProcessFacts::started: a later process may have the same number
  std::uint64_t space = 0;    // process_namespace(), in which that number means this process
  std::int32_t rank = 0, size = 0;
  char name[128] = {};
  std::atomic<std::uint64_t> operation{0};  // the newest that it has entered
  std::atomic<std::uint64_t> since{0};      // nanoseconds of the steady clock: when it entered it, or ended it
  std::atomic<std::uint32_t> inside{0};
  std::atomic<std::uint32_t> kind{0};
  std::atomic<std::uint32_t> step{0}, steps{0};
  std::atomic<std::int32_t> waits_for{-1};  // rank
};

// The file: the words, and in pages of its own what kernels store into themselves.
struct ProgressPages {
  static constexpr std::size_t kPage = 4096;

  alignas(kPage) ProgressWords words;
  alignas(kPage) gpu::Told told[gpu::Layout::kTolds];
};
static_assert(sizeof(ProgressPages) % ProgressPages::kPage == 0);

// Owner: a communicator. A resource.
class ProgressFile {
 public:
  ProgressFile() = default;
  ~ProgressFile();
  ProgressFile(const ProgressFile&) = delete;
  ProgressFile& operator=(const ProgressFile&) = delete;
  static constexpr std::size_t kToldBytes = sizeof(ProgressPages::told);

  // Where that is not possible, it tells nothing; nor does a simulated rank, which is no process to look at. `words`:
  // of all ranks.
  void open(const std::string& name, int rank, const std::vector<Words>& words);
  void entered(std::uint64_t operation, CollectiveKind kind);
  void waits(int peer, std::size_t step, std::size_t steps);
  void ended();
  // Of kToldBytes, for Layout::kTolds places; null where there is no file. It stays mapped as long as anybody has it.
  [[nodiscard]] std::shared_ptr<gpu::Told> told() {
    return pages_ == nullptr ? nullptr : std::shared_ptr<gpu::Told>(pages_, pages_->told);
  }

 private:
  ProgressWords own_;  // until there is a file
  ProgressWords* words_ = &own_;
  std::shared_ptr<ProgressPages> pages_;  // mapped
  std::string path_;
  sys::Fd file_;  // locked as long as this lives: processes of other PID namespaces see that
};

}  // namespace fairway::collectives
