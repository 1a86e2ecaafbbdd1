#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "process/nccl/pattern.h"

// The plugin by itself, without NCCL and without a GPU: half of a round trip, and a stream of messages, between two
// processes that poll as NCCL's progress threads do. Every byte of the last messages is compared.
//   nccl_speed [shm|tcp]
namespace fairway::nccl {
namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

constexpr std::size_t kMost = 16u << 20, kDepth = 4;

void side(Board& board, int number) {
  Rank rank(board, number, 2, 12);
  rank.meet(1 - number, 1 - number);
  std::vector<std::byte> out(kMost * kDepth), in(kMost * kDepth);
  void* from = rank.register_memory(rank.sender, out.data(), out.size());
  void* into = rank.register_memory(rank.receiver, in.data(), in.size());
  int barrier = 0;
  for (const std::size_t size : {std::size_t{8}, std::size_t{4096}, std::size_t{65536}, std::size_t{1} << 20, kMost}) {
    const int rounds = size <= 65536 ? 2000 : size <= (1u << 20) ? 200 : 30;
    std::vector<double> halves;
    void* posted = rank.receive(in.data(), size, 1, into);
    for (int round = 0; round < rounds; ++round) {
      const auto start = Clock::now();
      void* sent = nullptr;
      if (number == 0) sent = rank.send(out.data(), size, 1, from);
      rank.finish(posted);
      posted = rank.receive(in.data(), size, 1, into);
      if (number == 1) sent = rank.send(out.data(), size, 1, from);
      if (number == 0) halves.push_back(us_since(start) / 2);
      rank.finish(sent);
    }
    if (number == 1)
      rank.finish(rank.send(out.data(), size, 1, from));  // for the receive that stands
    else
      rank.finish(posted);
    if (number == 0)
      rank.finish(rank.send(out.data(), size, 1, from));
    else
      rank.finish(posted);
    // One way, kDepth in flight.
    fill(out.data(), size * kDepth, 7);
    const auto start = Clock::now();
    std::vector<void*> flying;
    for (int round = 0; round < rounds; ++round) {
      const std::size_t at = static_cast<std::size_t>(round) % kDepth * size;
      if (flying.size() == kDepth) {
        rank.finish(flying.front());
        flying.erase(flying.begin());
      }
      flying.push_back(number == 0 ? rank.send(out.data() + at, size, 1, from)
                                   : rank.receive(in.data() + at, size, 1, into));
    }
    for (void* each : flying) rank.finish(each);
    const double us = us_since(start);
    if (number == 1) compare(in.data(), size * std::min<std::size_t>(kDepth, static_cast<std::size_t>(rounds)), 7);
    rank.barrier(barrier++);
    if (number == 0) {
      std::nth_element(halves.begin(), halves.begin() + rounds / 2, halves.end());
      std::printf("%9zu bytes: one way %9.2f us; stream %8.3f GB/s\n", size,
                  halves[static_cast<std::size_t>(rounds) / 2], static_cast<double>(size) * rounds / us / 1e3);
      std::fflush(stdout);
    }
  }
  rank.must(rank.table->deregister(rank.sender, from), "deregMr");
  rank.must(rank.table->deregister(rank.receiver, into), "deregMr");
  rank.leave();
}

}  // namespace
}  // namespace fairway::nccl

int main(int count, char** words) {
  if (count > 1) ::setenv("FAIRWAY_TRANSPORTS", words[1], 1);
  fairway::nccl::Ranks ranks(2, fairway::nccl::side);
  const std::string wrong = ranks.outcomes();
  std::fputs(wrong.c_str(), stderr);
  return wrong.empty() ? 0 : 1;
}
