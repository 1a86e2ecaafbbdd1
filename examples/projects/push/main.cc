// Parameters from one trainer to many workers, version after version. Two buffers at each worker: the trainer fills one
// while the other is in use, and gives a worker version v only when it has let go of v - 2.
//   push [workers] [MiB] [versions]
#include <algorithm>

#include "ranks.h"

namespace {

// At a worker counters 0 and 1 say how many versions were written into each of its buffers: two versions may be on
// their way at once, and end in any order. At the trainer counter w says how many versions worker w has let go of.
std::uint32_t buffer_of(std::uint64_t version) {
  return version % 2;
}

// Before the clock starts: in them each page of both buffers is touched, and mapped, for the first time.
constexpr std::uint64_t kWarmUp = 2;

std::uint64_t parameter(std::uint64_t version, std::uint64_t i) {
  return (version << 32) ^ (i * 2654435761u);
}

void train(Ranks& all, std::uint64_t size, std::uint64_t versions) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region own = need(engine.allocate(2 * size, fairway::Access::none));
  need(engine.publish("trainer", need(engine.allocate(8, fairway::Access::write))));  // for notifications alone
  const std::vector<fairway::PeerId> workers = all.connect(engine, 0);
  std::vector<fairway::RemoteRegion> there(workers.size());
  for (std::size_t w = 1; w < workers.size(); ++w) there[w] = need(engine.lookup(workers[w], "parameters"));

  all.meet();
  auto start = std::chrono::steady_clock::now();
  std::vector<fairway::TransferId> pushed[2];
  for (std::uint64_t version = 0; version < kWarmUp + versions; ++version) {
    if (version == kWarmUp) {
      for (const auto& half : pushed)
        for (const fairway::TransferId id : half) need(need(engine.wait(id)).status);
      for (auto& half : pushed) half.clear();
      start = std::chrono::steady_clock::now();
    }
    const std::uint64_t half = buffer_of(version) * size;
    // This half is free here when its last pushes are complete.
    for (const fairway::TransferId id : pushed[buffer_of(version)]) need(need(engine.wait(id)).status);
    pushed[buffer_of(version)].clear();
    auto* words = reinterpret_cast<std::uint64_t*>(own.address + half);
    for (std::uint64_t i = 0; i < size / 8; ++i) words[i] = parameter(version, i);  // a step of training
    for (std::size_t w = 1; w < workers.size(); ++w) {
      if (version >= 2) need(engine.wait_counter(static_cast<std::uint32_t>(w), version - 1, kSoon));
      const auto counted = fairway::notify_counter(buffer_of(version));
      pushed[buffer_of(version)].push_back(
          need(engine.write(workers[w], {{own.id, half, size}, {there[w].id, half}}, {.notify = counted})));
    }
  }
  for (const auto& half : pushed)
    for (const fairway::TransferId id : half) need(need(engine.wait(id)).status);
  const double took = seconds_since(start);
  std::printf("%llu versions of %llu MiB to %zu workers, after %llu to warm up: %.1f ms each, %.2f GB/s in all\n",
              static_cast<unsigned long long>(versions), static_cast<unsigned long long>(size >> 20),
              workers.size() - 1, static_cast<unsigned long long>(kWarmUp), took * 1e3 / static_cast<double>(versions),
              static_cast<double>(versions * size * (workers.size() - 1)) / took / 1e9);
  all.meet();
}

void work(int rank, Ranks& all, std::uint64_t size, std::uint64_t versions) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region box = need(engine.allocate(2 * size, fairway::Access::write));
  need(engine.publish("parameters", box));
  const fairway::PeerId trainer = all.connect(engine, rank)[0];
  const fairway::RemoteRegion there = need(engine.lookup(trainer, "trainer"));
  all.meet();
  for (std::uint64_t version = 0; version < kWarmUp + versions; ++version) {
    need(engine.wait_counter(buffer_of(version), version / 2 + 1, kSoon));
    const auto* words = reinterpret_cast<const std::uint64_t*>(box.address + buffer_of(version) * size);
    for (std::uint64_t i = 0; i < size / 8; ++i) need(words[i] == parameter(version, i), "a parameter is wrong");
    const fairway::Extent nothing{.local = {box.id, 0, 0}, .remote = {there.id, 0}};
    const auto done = fairway::notify_counter(static_cast<std::uint32_t>(rank));
    need(need(engine.wait(need(engine.write(trainer, nothing, {.notify = done})))).status);
  }
  all.meet();
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = numbers(
      argc, argv, {{"WORKERS", 3, 1, Ranks::kMost - 1}, {"MIB", 16, 1, 16'384}, {"VERSIONS", 50, 1, 100'000'000}});
  const std::uint64_t size = given[1] << 20, versions = given[2];
  return Ranks::run(static_cast<int>(given[0]) + 1, [&](int rank, Ranks& all) {
    if (rank == 0) train(all, size, versions);
    if (rank != 0) work(rank, all, size, versions);
  });
}
