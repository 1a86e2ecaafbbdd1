#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/counters.h"
#include "core/crc32c.h"
#include "core/gates.h"
#include "core/queues.h"
#include "core/slot_pool.h"

// What the parts of the hot path cost by themselves. `ninja core_bench`; not part of the tests.
namespace fairway {
namespace {

void checksum(benchmark::State& state, std::uint32_t (*function)(std::uint32_t, std::span<const std::byte>)) {
  const std::vector<std::byte> data(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  std::uint32_t crc = 0;
  for (auto _ : state) benchmark::DoNotOptimize(crc = function(crc, data));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK_CAPTURE(checksum, dispatched, crc32c)->Arg(64)->Arg(512)->Arg(4096)->Arg(65536)->Arg(1 << 20);
BENCHMARK_CAPTURE(checksum, portable, crc32c_portable)->Arg(64)->Arg(4096)->Arg(1 << 20);

void mpsc_push_pop(benchmark::State& state) {
  MpscQueue<std::uint64_t> queue(1024);
  std::uint64_t out = 0;
  for (auto _ : state) {
    queue.push(std::uint64_t{1});
    queue.pop(out);
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(mpsc_push_pop);

void spsc_push_pop(benchmark::State& state) {
  SpscRing<std::uint64_t> ring(1024);
  std::uint64_t out = 0;
  for (auto _ : state) {
    ring.push(std::uint64_t{1});
    ring.pop(out);
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(spsc_push_pop);

// Values a second from one thread to another; the time is the consumer's, per value.
template <class Queue>
void two_threads(benchmark::State& state) {
  Queue queue(1024);
  std::atomic<bool> stop{false};
  std::thread producer([&] {
    while (!stop.load(std::memory_order_relaxed))
      if (!queue.push(std::uint64_t{1})) std::this_thread::yield();
  });
  std::uint64_t out = 0;
  for (auto _ : state)
    while (!queue.pop(out)) std::this_thread::yield();
  stop = true;
  producer.join();
}
BENCHMARK(two_threads<MpscQueue<std::uint64_t>>)->UseRealTime();
BENCHMARK(two_threads<SpscRing<std::uint64_t>>)->UseRealTime();

void slot_acquire_release(benchmark::State& state) {
  SlotPool<std::uint64_t> pool(1024);
  for (auto _ : state) pool.release(pool.acquire().value());
}
BENCHMARK(slot_acquire_release);

void gate_of_an_awake_consumer(benchmark::State& state) {
  SleepGate gate;
  for (auto _ : state) benchmark::DoNotOptimize(gate.claim_wake());
}
BENCHMARK(gate_of_an_awake_consumer);

void histogram_record(benchmark::State& state) {
  auto histogram = std::make_unique<Histogram>();
  std::uint64_t value = 1000;
  for (auto _ : state) histogram->record(value += 37);
}
BENCHMARK(histogram_record);

}  // namespace
}  // namespace fairway

BENCHMARK_MAIN();
