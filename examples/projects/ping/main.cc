// Ping-pong of 64 bytes between two processes, as a histogram's percentiles.
//   ping [rounds]
#include <algorithm>

#include "ranks.h"

namespace {

constexpr std::uint64_t kBytes = 64, kWord = 64;  // the word that tells lies behind the bytes

void play(int rank, Ranks& all, std::uint64_t rounds) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region box = need(engine.allocate(4096, fairway::Access::write | fairway::Access::atomic));
  const fairway::Region ball = need(engine.allocate(kBytes, fairway::Access::none));
  need(engine.publish("box", box));
  const fairway::PeerId peer = all.connect(engine, rank)[static_cast<std::size_t>(1 - rank)];
  const fairway::RemoteRegion there = need(engine.lookup(peer, "box"));
  std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(box.address + kWord));

  std::vector<double> times;
  times.reserve(rounds);
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    const auto hit = [&] {
      std::memset(ball.address, static_cast<int>(i), kBytes);
      const auto told = fairway::set_signal({there.id, kWord}, i);
      const fairway::TransferId id = need(engine.write(peer, {{ball.id, 0, kBytes}, {there.id, 0}}, {.notify = told}));
      need(need(engine.wait(id)).status);
    };
    const auto miss = [&] {  // looks at memory, and calls nothing
      const auto start = std::chrono::steady_clock::now();
      for (unsigned looks = 0; word.load(std::memory_order_acquire) != i; ++looks) {
        if (looks % 1024 != 1023) continue;
        std::this_thread::yield();
        need(std::chrono::steady_clock::now() - start < kSoon, "the other side does not answer");
      }
      need(box.address[0] == std::byte(i) && box.address[kBytes - 1] == std::byte(i),
           "the signal came before the bytes");
    };
    const auto start = std::chrono::steady_clock::now();
    if (rank == 0) hit(), miss();
    if (rank == 1) miss(), hit();
    times.push_back(seconds_since(start) * 1e6 / 2);
  }
  all.meet();
  if (rank != 0) return;
  std::sort(times.begin(), times.end());
  std::printf("%llu rounds of %llu bytes, half a round trip:", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(kBytes));
  for (const double share : {0.5, 0.9, 0.99, 0.999})
    std::printf("  p%g %.2f us", share * 100, times[static_cast<std::size_t>(share * static_cast<double>(rounds - 1))]);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t rounds = numbers(argc, argv, {{"ROUNDS", 20'000, 1, 100'000'000}})[0];
  return Ranks::run(2, [&](int rank, Ranks& all) { play(rank, all, rounds); });
}
