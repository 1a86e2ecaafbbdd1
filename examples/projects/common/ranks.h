#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fairway/fairway.h"

// What the projects beside this folder share: one process for each rank, all on this host, which learn each other's
// addresses through a page of shared memory. In a job a launcher and a directory do this (EngineOptions::directory).

// Takes the value out of a Result, or prints the error and ends this process.
inline void need(const fairway::Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::quick_exit(1);
}
template <class T>
T need(fairway::Result<T> result) {
  need(result.status());
  return *std::move(result);
}
inline void need(bool good, const char* what) {
  if (!good) std::fprintf(stderr, "%s\n", what), std::quick_exit(1);
}

// How long anything that other ranks do may take.
inline constexpr std::chrono::seconds kSoon{60};

class Ranks {
 public:
  static constexpr int kMost = 32;

  // Forks `count` processes that run body(rank, *this). Returns 0 if all of them did.
  template <class Body>
  static int run(int count, Body body) {
    if (count < 1 || count > kMost) return std::fprintf(stderr, "1 to %d ranks\n", kMost), 2;
    void* page = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return std::perror("mmap"), 1;
    Ranks all(count, new (page) Board);
    for (int rank = 0; rank < count; ++rank)
      if (const pid_t child = ::fork(); child == 0) {  // before any engine: a forked engine cannot be used
        body(rank, all);
        std::fflush(stdout);
        std::quick_exit(0);
      }
    int worst = 0, status = 0;
    while (::wait(&status) > 0)
      if (status != 0) worst = all.board_->failed = 1;
    return worst;
  }

  int count() const { return count_; }

  // Tells the others this rank's address, and returns the peers: own rank's entry is empty.
  std::vector<fairway::PeerId> connect(fairway::Engine& engine, int rank) {
    const std::string address = engine.address();
    std::strncpy(board_->addresses[rank], address.c_str(), kAddress - 1);
    meet();
    std::vector<fairway::PeerId> peers(static_cast<std::size_t>(count_));
    for (int other = 0; other < count_; ++other)
      if (other != rank) peers[static_cast<std::size_t>(other)] = need(engine.connect(board_->addresses[other]));
    return peers;
  }

  // Returns when every rank is here; ends this process when another one has failed.
  void meet() {
    const int turn = board_->arrived.fetch_add(1) / count_;
    while (board_->arrived.load() < (turn + 1) * count_) {
      if (board_->failed) std::quick_exit(1);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  static constexpr std::size_t kAddress = 256;
  struct Board {
    std::atomic<int> arrived{0};
    std::atomic<int> failed{0};
    char addresses[kMost][kAddress] = {};
  };
  Ranks(int count, Board* board) : count_(count), board_(board) {}
  int count_;
  Board* board_;
};

// A number from the command line, or what is usual.
inline std::uint64_t argument(int argc, char** argv, int at, std::uint64_t usual) {
  return argc > at ? std::strtoull(argv[at], nullptr, 10) : usual;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
