// CPU cost of the engine alone: two engines of one process, both driven by one thread, over loopback, or the transport
// that is named. Each operation is measured from submit through routing, posting and copying to its completion or
// notification. Usage: engine_path [rounds [transport [operation]]]: with an operation, that one alone, by its number
// from 1 on, for counting its instructions.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fairway/fairway.h"

namespace {

using fairway::Engine;

constexpr std::size_t kBatch = 1000;

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

// Apart, so that callgrind can count what happens inside: --toggle-collect='*measure*'.
[[gnu::noinline]] Row measure(const char* name, int rounds, const std::function<void()>& operation) {
  constexpr int kTogether = 16;
  std::vector<double> samples(static_cast<std::size_t>(rounds) / kTogether);
  for (int i = 0; i < std::min(rounds, 2000); ++i) operation();
  for (double& sample : samples) {
    const double begin = now_ns();
    for (int i = 0; i < kTogether; ++i) operation();
    sample = (now_ns() - begin) / kTogether;
  }
  std::sort(samples.begin(), samples.end());
  return {name, samples[samples.size() / 2], samples[samples.size() * 99 / 100]};
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(16, std::atoi(argv[1])) : 100'000;  // of each operation
  const std::string transport = argc > 2 ? argv[2] : "loopback";
  const int only = argc > 3 ? std::atoi(argv[3]) : 0;
  fairway::EngineOptions options;
  options.progress = fairway::Progress::caller;
  if (transport == "loopback") options.loopback = fairway::make_loopback();
  options.transports = {transport};
  Engine a = must(Engine::open(options));
  Engine b = must(Engine::open(options));
  fairway::PeerId peer;
  {
    std::atomic<bool> done{false};
    std::thread other([&] {  // the second engine must make progress while the first connects
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
  for (const bool read : {false, true}) one(8, read, false);  // opens the way, in which the other engine has a part
  // As a program does that waits for each.
  const auto waited = [&](std::uint64_t bytes, bool read) {
    const fairway::Extent extent{{mine.id, 0, bytes}, {remote.id, 0}};
    const fairway::TransferId id = must(read ? a.read(peer, extent) : a.write(peer, extent));
    if (!must(a.wait(id)).status) std::exit(1);
  };
  // One receive waits at any time, so that it may be told ahead.
  std::array<fairway::PeerEvent, 1> event;
  fairway::PeerId back;
  while (!back)
    for (std::size_t left = b.poll_peer_events(event); left > 0; --left) back = event[0].peer;
  std::uint64_t expected = 0;
  const auto sent = [&](std::uint64_t bytes) {
    fairway::RequestOptions wanted;
    wanted.deliver = fairway::Deliver::to_poll;
    const auto receive = [&] { must(b.receive(back, bytes, {theirs.id, 0, bytes}, wanted)); };
    if (std::exchange(expected, bytes) != bytes) receive();
    must(a.send(peer, bytes, {mine.id, 0, bytes}, wanted));
    receive();
    for (std::size_t left = 2; left > 0;) {
      left -= b.poll(std::span(completions).first(1));
      left -= a.poll(std::span(completions).first(1));
    }
  };
  std::vector<fairway::Request> requests(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) {
    requests[i].peer = peer;
    requests[i].layout = fairway::Extent{{mine.id, i * 64, 64}, {remote.id, i * 64}};
  }
  std::vector<fairway::TransferId> ids(kBatch);
  const auto batch = [&] {
    for (std::size_t done = 0; done < kBatch;) {
      const std::size_t taken = a.submit(std::span(requests).subspan(done), std::span(ids).subspan(done)).taken;
      for (std::size_t i = done; i < done + taken; ++i)
        if (!must(a.wait(ids[i])).status) std::exit(1);
      done += taken;
    }
  };
  std::vector<std::byte> from(4096), to(4096);
  std::vector<std::pair<const char*, std::function<void()>>> rows = {
      {"write 8 B", [&] { one(8, false, false); }},
      {"write 8 B + counter", [&] { one(8, false, true); }},
      {"read 8 B", [&] { one(8, true, false); }},
      {"write 4 KiB", [&] { one(4096, false, false); }},
      {"poll of an idle engine", [&] { (void)a.poll(completions); }},
  };
  if (transport != "loopback") {
    rows.insert(rows.end(), {{"write 8 B, then wait", [&] { waited(8, false); }},
                             {"read 8 B, then wait", [&] { waited(8, true); }},
                             {"write 4 KiB, then wait", [&] { waited(4096, false); }},
                             {"1,000 writes of 64 B, each", batch},
                             {"send 8 B", [&] { sent(8); }},
                             {"send 4 KiB", [&] { sent(4096); }},
                             {"send 64 KiB", [&] { sent(65536); }},
                             {"memcpy 4 KiB",
                              [&] {
                                std::memcpy(to.data(), from.data(), from.size());
                                asm volatile("" : : "r"(to.data()) : "memory");
                              }},
                             {"write 64 KiB, then wait", [&] { waited(65536, false); }}});
  }
  std::printf("%-44s %10s %10s\n", "one at a time, both engines' work", "p50 ns", "p99 ns");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (only != 0 && static_cast<std::size_t>(only) != i + 1) continue;
    const bool many = rows[i].first[0] == '1';
    const Row row = measure(rows[i].first, many ? std::max(rounds / 100, 16) : rounds, rows[i].second);
    const double each = many ? kBatch : 1;
    std::printf("%-44s %10.1f %10.1f\n", row.name, row.p50 / each, row.p99 / each);
    std::fflush(stdout);
  }
  return 0;
}
