// What the engine itself costs: two engines of one process over loopback, one thread that steps both, so that nothing
// but code is in the way. Per operation: submit, route, post, copy, and back to the completion or the notification.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "fairway/fairway.h"

namespace {

using fairway::Engine;

double now_ns() {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

template <class T>
T must(fairway::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "bench: %s\n", result.status().to_string().c_str());
    std::exit(1);
  }
  return std::move(*result);
}

struct Row {
  const char* name;
  double p50, p99;
};

Row measure(const char* name, int rounds, const std::function<void()>& operation) {
  constexpr int kBatch = 16;
  std::vector<double> samples(static_cast<std::size_t>(rounds) / kBatch);
  for (int i = 0; i < 2000; ++i) operation();
  for (double& sample : samples) {
    const double begin = now_ns();
    for (int i = 0; i < kBatch; ++i) operation();
    sample = (now_ns() - begin) / kBatch;
  }
  std::sort(samples.begin(), samples.end());
  return {name, samples[samples.size() / 2], samples[samples.size() * 99 / 100]};
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(16, std::atoi(argv[1])) : 100'000;  // of each operation
  fairway::EngineOptions options;
  options.progress = fairway::Progress::caller;
  options.loopback = fairway::make_loopback();
  options.transports = {"loopback"};
  Engine a = must(Engine::open(options));
  Engine b = must(Engine::open(options));
  fairway::PeerId peer;
  {
    bool done = false;
    std::thread other([&] {  // b needs stepping while a connects
      std::array<fairway::Completion, 1> none;
      while (!done) (void)b.poll(none);
    });
    peer = must(a.connect(b.address()));
    done = true;
    other.join();
  }
  const auto mine = must(a.allocate(1 << 20, fairway::Access::all));
  const auto theirs = must(b.allocate(1 << 20, fairway::Access::all));
  const auto remote = must(a.import_region(peer, must(b.describe(theirs))));

  std::array<fairway::Completion, 4> completions;
  const auto both_until = [&](auto done) {
    while (!done()) {
      (void)b.poll({});
      if (a.poll(completions) > 0) break;
    }
  };
  const auto one = [&](std::uint64_t bytes, bool read, bool notify) {
    fairway::RequestOptions wanted;
    wanted.deliver = fairway::Deliver::to_poll;
    if (notify) wanted.notify = fairway::notify_counter(7);
    const fairway::Extent extent{{mine.id, 0, bytes}, {remote.id, 0}};
    must(read ? a.read(peer, extent, wanted) : a.write(peer, extent, wanted));
    both_until([] { return false; });
  };
  std::printf("%-44s %10s %10s\n", "one at a time, both engines' work", "p50 ns", "p99 ns");
  for (const Row& row : {measure("write 8 B", rounds, [&] { one(8, false, false); }),
                         measure("write 8 B + counter", rounds, [&] { one(8, false, true); }),
                         measure("read 8 B", rounds, [&] { one(8, true, false); }),
                         measure("write 4 KiB", rounds, [&] { one(4096, false, false); }),
                         measure("poll of an idle engine", rounds, [&] { (void)a.poll(completions); })})
    std::printf("%-44s %10.0f %10.0f\n", row.name, row.p50, row.p99);
  return 0;
}
