// Weights from one process to all others, down a chain: each rank passes a chunk on as soon as it is there, so the time
// hardly grows with the number of ranks where each has its own link.
//   broadcast [ranks] [MiB]
#include <algorithm>

#include "ranks.h"

namespace {

constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;

std::uint64_t weight(std::uint64_t i) {
  return (i + 1) * 0x9E3779B97F4A7C15;
}

void pass_on(int rank, Ranks& all, std::uint64_t size) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region weights = need(engine.allocate(size, fairway::Access::write));
  const std::span words(reinterpret_cast<std::uint64_t*>(weights.address), size / 8);
  need(engine.publish("weights", weights));
  const std::vector<fairway::PeerId> peers = all.connect(engine, rank);
  const bool last = rank + 1 == all.count();
  const fairway::PeerId next = last ? fairway::PeerId{} : peers[static_cast<std::size_t>(rank) + 1];
  const fairway::RemoteRegion there = last ? fairway::RemoteRegion{} : need(engine.lookup(next, "weights"));
  if (rank == 0)
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = weight(i);

  double took[2];
  for (std::uint64_t turn = 0; turn < 2;
       ++turn) {  // in the first one each page is touched, and mapped, for the first time
    all.meet();
    const auto start = std::chrono::steady_clock::now();
    std::vector<fairway::TransferId> passed;
    for (std::uint64_t chunk = 0; chunk * kChunk < size; ++chunk) {
      const auto number = static_cast<std::uint32_t>(chunk);  // a counter for each chunk: they may overtake each other
      if (rank != 0) need(engine.wait_counter(number, turn + 1, kSoon));
      if (last) continue;
      const std::uint64_t at = chunk * kChunk, length = std::min(kChunk, size - at);
      const auto counted = fairway::notify_counter(number);
      passed.push_back(need(engine.write(next, {{weights.id, at, length}, {there.id, at}}, {.notify = counted})));
    }
    for (const fairway::TransferId id : passed) need(need(engine.wait(id)).status);
    all.meet();
    took[turn] = seconds_since(start);
  }
  for (std::uint64_t i = 0; i < words.size(); ++i) need(words[i] == weight(i), "a weight is wrong");
  if (rank == 0)
    std::printf("%llu MiB to %d ranks in %.1f ms: %.2f GB/s to each (%.1f ms the first time, when memory is mapped)\n",
                static_cast<unsigned long long>(size >> 20), all.count() - 1, took[1] * 1e3,
                static_cast<double>(size) / took[1] / 1e9, took[0] * 1e3);
  all.meet();
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = numbers(argc, argv, {{"RANKS", 4, 2, Ranks::kMost}, {"MIB", 256, 1, 16'384}});
  const std::uint64_t size = given[1] << 20;  // a counter a chunk
  return Ranks::run(static_cast<int>(given[0]), [&](int rank, Ranks& all) { pass_on(rank, all, size); });
}
