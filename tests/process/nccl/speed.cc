#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "process/nccl/pieces.h"

// The plugin by itself, without NCCL and without a GPU: half of a round trip, and a stream of messages, between two
// processes that poll as NCCL's progress threads do. Every byte of the last messages is compared.
//   nccl_speed [shm|tcp]            one message after the other, and four in flight
//   nccl_speed pieces [shm|tcp] 4   as NCCL sends large calls on so many channels, beside bare sockets in turns
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

// All channels' pieces, in microseconds.
double streams(std::vector<std::unique_ptr<Stream>>& all, int pieces) {
  const auto start = Clock::now();
  for (bool more = true; more;) {
    more = false;
    for (const auto& stream : all) {
      stream->turn();
      more |= stream->done() < pieces;
    }
  }
  return us_since(start);
}

constexpr int kTurns = 5;
int channels = 2;
std::vector<std::array<int, 2>> sockets[2];  // [from]

void pieces(Board& board, int number) {
  const int count = 64 * 128 / channels;  // 1 GiB in all
  Rank rank(board, number, 2, 12);
  std::vector<void*> senders, receivers;
  for (int channel = 0; channel < channels; ++channel) {
    rank.meet(1 - number, channel, channel);
    senders.push_back(std::exchange(rank.sender, nullptr));
    receivers.push_back(std::exchange(rank.receiver, nullptr));
  }
  int barrier = 0;
  for (const bool both : {false, true})
    for (int turn = 0; turn < kTurns; ++turn)
      for (const bool plugin : {true, false}) {
        std::vector<std::unique_ptr<Stream>> all;
        const auto add = [&](bool sends, int channel) {
          const auto seed = static_cast<std::uint64_t>(channel * 100 + (sends ? number : 1 - number));
          const auto at = static_cast<std::size_t>(channel);
          if (plugin)
            all.push_back(std::make_unique<ByPlugin>(rank, sends ? senders[at] : receivers[at], sends, count, seed));
          else
            all.push_back(std::make_unique<BySocket>(::dup(sockets[sends ? number : 1 - number][at][sends ? 0 : 1]),
                                                     sends, count, seed));
        };
        for (int channel = 0; channel < channels; ++channel) {
          if (both || number == 0) add(true, channel);
          if (both || number == 1) add(false, channel);
        }
        rank.barrier(barrier++);
        const double us = streams(all, count);
        rank.barrier(barrier++);
        std::size_t at = 0;
        for (int channel = 0; channel < channels; ++channel) {
          if (both || number == 0) ++at;
          if (both || number == 1) all[at++]->check(static_cast<std::uint64_t>(channel * 100 + 1 - number));
        }
        all.clear();
        rank.barrier(barrier++);
        if (number == 0)
          std::printf("%d channels, %-8s %-12s %7.2f GB/s\n", channels, both ? "both ways" : "one way",
                      plugin ? "plugin" : "bare sockets", static_cast<double>(kPiece) * count * channels / us / 1e3);
        std::fflush(stdout);
      }
  for (void* each : senders) rank.must(rank.table->close_sender(each), "closeSend");
  for (void* each : receivers) rank.must(rank.table->close_receiver(each), "closeRecv");
  rank.leave();
}

}  // namespace
}  // namespace fairway::nccl

int main(int count, char** words) {
  using namespace fairway::nccl;
  const bool by_pieces = count > 1 && std::string_view(words[1]) == "pieces";
  const int transport = by_pieces ? 2 : 1;
  if (count > transport) ::setenv("FAIRWAY_TRANSPORTS", words[transport], 1);
  if (by_pieces && count > 3) channels = std::clamp(std::atoi(words[3]), 1, kMostRanks);
  if (by_pieces)
    for (auto& from : sockets)
      for (int channel = 0; channel < channels; ++channel) from.push_back(connected());
  Ranks ranks(2, by_pieces ? pieces : side);
  const std::string wrong = ranks.outcomes();
  std::fputs(wrong.c_str(), stderr);
  return wrong.empty() ? 0 : 1;
}
