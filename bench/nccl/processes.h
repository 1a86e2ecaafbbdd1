#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// The processes of one benchmark. Whatever one of them does, all of them end.
namespace processes {

constexpr auto kPatience = std::chrono::minutes(2);  // longer than any row, or what NCCL prepares

// Where they meet; in memory that they share.
class Place {
 public:
  // Returns once each of `ranks` processes has called it as often. Where one does not come in time, ends this process.
  void meet(int ranks) {
    const std::uint64_t mine = arrived_.fetch_add(1), all = static_cast<std::uint64_t>(ranks);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (arrived_.load() < (mine / all + 1) * all) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() < end) continue;
      std::fprintf(stderr, "a process waited two minutes for the others\n");
      std::_Exit(5);
    }
  }

 private:
  std::atomic<std::uint64_t> arrived_{0};
};

// Calls `one(i)` for each i below `count` in a process of its own, which ends with what that returns. Once one has
// failed the others have two seconds to say what they know, and are killed. So they are if this process is. 0: none has
// failed.
template <class One>
int run(int count, One one) {
  std::vector<pid_t> running;
  const pid_t parent = ::getpid();
  bool failed = false;
  auto end = std::chrono::steady_clock::time_point::max();
  const auto fail = [&] {
    if (!failed) end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    failed = true;
  };
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child < 0) {
      std::perror("fork");
      fail();
      break;
    }
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(::getppid() == parent ? one(i) : 1);
    }
    running.push_back(child);
  }
  while (!running.empty()) {
    for (std::size_t i = 0; i < running.size();) {
      int status = 0;
      const pid_t ended = ::waitpid(running[i], &status, WNOHANG);
      if (ended == 0) {
        ++i;
        continue;
      }
      if (WIFSIGNALED(status) && !failed)
        std::fprintf(stderr, "process %d ended by signal %d\n", ended, WTERMSIG(status));
      if (ended < 0 || status != 0) fail();
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (std::chrono::steady_clock::now() > end)
      for (const pid_t child : running) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return failed ? 1 : 0;
}

}  // namespace processes
