#pragma once

#include <array>
#include <atomic>
#include <charconv>
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

  // Forks `count` processes, kMost at most, that run body(rank, *this). Returns 0 if all of them did.
  template <class Body>
  static int run(int count, Body body) {
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

// The numbers of the command line, each of which may be left out with all behind it. Where one is no such number, or
// there are more: prints the usage and ends this process.
struct Number {
  const char* name;
  std::uint64_t usual, least, most;
};
template <std::size_t N>
std::array<std::uint64_t, N> numbers(int argc, char** argv, const Number (&wanted)[N]) {
  std::array<std::uint64_t, N> found{};
  bool good = argc <= static_cast<int>(N) + 1;
  for (std::size_t i = 0; i < N; ++i) {
    found[i] = wanted[i].usual;
    if (static_cast<int>(i) + 1 >= argc) continue;
    const char* const text = argv[i + 1];
    const char* const end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, found[i]);
    good = good && stop == end && error == std::errc() && found[i] >= wanted[i].least && found[i] <= wanted[i].most;
  }
  if (good) return found;
  std::string usage = std::string("usage: ") + argv[0];
  for (const Number& one : wanted)
    usage += std::string(" [") + one.name + ": " + std::to_string(one.least) + " to " + std::to_string(one.most) + "]";
  std::fprintf(stderr, "%s\n", usage.c_str());
  std::quick_exit(2);
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
