// The time of one write of scattered pages for a C++ caller, from host memory into another process's, over shm.
// bench/gpu_pages.py --host runs it beside the same in Python. Prints a line for each page size and count: bytes,
// pages, microseconds of the call and of the wait behind it (medians). Usage: pages_cost [largest count] [pause before
// each, us]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "fairway/fairway.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPage = 160, kSmallPage = 16;
constexpr int kTurns = 25;

double microseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

fairway::EngineOptions options() {
  fairway::EngineOptions out;
  out.transports = {"shm", "tcp"};
  return out;
}

// Its address goes to `out`; ends when `in` does.
int own(std::uint64_t bytes, int out, int in) {
  auto engine = fairway::Engine::open(options());
  if (!engine) return 1;
  auto memory = engine->allocate(bytes, fairway::Access::write);
  if (!memory || !engine->publish("memory", *memory)) return 1;
  const std::string address = engine->address() + "\n";
  if (::write(out, address.data(), address.size()) < 0) return 1;
  char byte = 0;
  return ::read(in, &byte, 1) == 0 ? 0 : 1;
}

std::vector<std::uint64_t> permutation(std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  std::shuffle(out.begin(), out.end(), std::mt19937_64(seed));
  return out;
}

int write_pages(const std::string& address, std::uint64_t most, std::chrono::microseconds pause) {
  auto engine = fairway::Engine::open(options());
  if (!engine) return 1;
  auto peer = engine->connect(address);
  if (!peer) return std::puts(peer.status().to_string().c_str()), 1;
  auto remote = engine->lookup(*peer, "memory");
  std::vector<std::byte> memory(most * kPage);
  auto local = engine->register_memory(memory.data(), memory.size(), fairway::Access::none);
  if (!remote || !local) return 1;
  const auto here = permutation(most, 1), there = permutation(most, 2);
  for (const std::uint64_t page : {kSmallPage, kPage})
    for (std::uint64_t count = std::min<std::uint64_t>(1000, most);; count = std::min(count * 10, most)) {
      const fairway::Paged pages{local->id, remote->id, page, page, page, {here.data(), count}, {there.data(), count}};
      std::vector<double> calls, waits;
      for (int turn = 0; turn < kTurns; ++turn) {
        if (pause.count() > 0) std::this_thread::sleep_for(pause);
        const auto began = Clock::now();
        auto id = engine->write(*peer, pages);
        const auto called = Clock::now();
        if (!id) return std::puts(id.status().to_string().c_str()), 1;
        auto done = engine->wait(*id);
        const auto ended = Clock::now();
        if (!done || !done->status) return 1;
        calls.push_back(microseconds(began, called));
        waits.push_back(microseconds(called, ended));
      }
      std::printf("%lu %lu %.1f %.1f\n", static_cast<unsigned long>(page), static_cast<unsigned long>(count),
                  median(calls), median(waits));
      if (count == most) break;
    }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t most = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100000;
  const std::chrono::microseconds pause(argc > 2 ? std::strtol(argv[2], nullptr, 10) : 0);
  int up[2], down[2];
  if (most == 0 || ::pipe(up) != 0 || ::pipe(down) != 0) return 1;
  const pid_t owner = ::fork();
  if (owner < 0) return 1;
  if (owner == 0) {
    ::close(down[1]);
    return own(most * kPage, up[1], down[0]);
  }
  ::close(up[1]);
  std::string address;
  for (char byte = 0; ::read(up[0], &byte, 1) == 1 && byte != '\n';) address += byte;
  const int result = address.empty() ? 1 : write_pages(address, most, pause);
  ::close(down[1]);
  int status = 0;
  ::waitpid(owner, &status, 0);
  return result;
}
