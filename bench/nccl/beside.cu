// What small transfers between two GPUs of one process cost beside others: urgent ones behind bulk, a path that is
// opened while a kernel holds up what is being closed, pages at odd places, and memory of which a part is pinned.
//
//   build/nccl/beside [urgent | pages | opening | pinned]...      all, where nothing is named
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <sys/mman.h>

#include "fairway/fairway.h"

namespace {

using namespace fairway;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBulk = std::uint64_t{1} << 30, kAll = kBulk + (std::uint64_t{64} << 20), kPage = 40960;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}
template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "beside: %s\n", result.status().to_string().c_str());
  std::exit(1);
}
void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "beside: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

__global__ void run_for(unsigned long long nanoseconds) {
  const auto now = [] {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
  };
  for (const unsigned long long begin = now(); now() - begin < nanoseconds;) {
  }
}

// An engine on each of two GPUs, and memory there.
struct Pair {
  Pair() {
    peer = must(here.connect(there.address()));
    mine = memory(0, here);
    theirs = remote(memory(1, there), "memory");
    (void)move(Operation::write, 0, 0);  // completes when the path is open
    (void)move(Operation::write, 0, kBulk);
  }
  Region memory(int gpu, Engine& engine, std::uint64_t bytes = kAll) {
    void* at = nullptr;
    check(cudaSetDevice(gpu));
    check(cudaMalloc(&at, bytes));
    check(cudaMemset(at, gpu + 1, bytes));
    check(cudaDeviceSynchronize());
    return must(engine.register_memory(at, bytes, Access::all));
  }
  RemoteRegion remote(const Region& region, const std::string& name) {
    (void)there.publish(name, region);
    return must(here.lookup(peer, name));
  }
  TransferId start(Operation operation, std::uint64_t at, std::uint64_t bytes, const RequestOptions& options = {}) {
    const Extent extent{{mine.id, at, bytes}, {theirs.id, at}};
    return must(operation == Operation::read ? here.read(peer, extent, options) : here.write(peer, extent, options));
  }
  Status end(TransferId id) { return must(here.wait(id, std::chrono::seconds(30))).status; }
  Status move(Operation operation, std::uint64_t at, std::uint64_t bytes, const RequestOptions& options = {}) {
    return end(start(operation, at, bytes, options));
  }
  Status list(RegionId region, std::uint64_t first_page) {  // 64 pages of 16 KiB
    std::vector<std::uint64_t> from, to;
    for (std::uint64_t i = 0; i < 64; ++i) from.push_back(first_page + i), to.push_back(2 * i);
    return end(must(here.write(peer, Layout(Paged{region, theirs.id, 16384, 16384, 16384, from, to}))));
  }

  Engine here = must(Engine::open({})), there = must(Engine::open({}));
  PeerId peer;
  Region mine;
  RemoteRegion theirs;
};

void urgent(Pair& pair) {
  RequestOptions first;
  first.priority = Priority::urgent;
  for (const Operation operation : {Operation::write, Operation::read})
    for (const std::uint64_t bulk : {std::uint64_t{0}, kBulk / 2, kBulk}) {
      std::vector<double> small, with, alone;
      for (int turn = 0; turn < 31; ++turn) {
        const auto began = Clock::now();
        TransferId large;
        if (bulk > 0) {
          large = pair.start(operation, 0, bulk);
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        const auto posted = Clock::now();
        (void)pair.move(operation, kBulk, 4096, first);
        small.push_back(us_since(posted));
        if (bulk == 0) continue;
        (void)pair.end(large);
        with.push_back(us_since(began));
        const auto again = Clock::now();
        (void)pair.move(operation, 0, bulk);
        alone.push_back(us_since(again));
      }
      std::printf("urgent %-5s of 4 KiB beside %4llu MiB: %6.1f us, the longest %6.1f",
                  operation == Operation::read ? "read" : "write", static_cast<unsigned long long>(bulk >> 20),
                  median(small), *std::max_element(small.begin(), small.end()));
      if (bulk > 0) std::printf("; the large one %.0f us, alone %.0f", median(with), median(alone));
      std::printf("\n");
    }
}

void pages(Pair& pair) {
  for (const std::uint64_t apart : {0, 8, 1}) {
    std::vector<std::uint64_t> there, here;
    for (std::uint64_t i = 0; i < 2048; ++i) there.push_back(2 * i * kPage), here.push_back(2 * i * kPage + apart);
    const Layout layout = Paged{pair.mine.id, pair.theirs.id, kPage, 1, 1, here, there};
    for (const bool reads : {false, true}) {
      std::vector<double> times;
      for (int turn = 0; turn < 15; ++turn) {
        const auto began = Clock::now();
        (void)pair.end(must(reads ? pair.here.read(pair.peer, layout) : pair.here.write(pair.peer, layout)));
        times.push_back(us_since(began));
      }
      std::printf("2048 pages of 40 KiB, %llu bytes apart from 16, %s: %.0f GB/s\n",
                  static_cast<unsigned long long>(apart), reads ? "read" : "write",
                  2048 * static_cast<double>(kPage) / median(times) / 1e3);
    }
  }
}

void opening(Pair& pair) {
  const Region closed = pair.memory(1, pair.there, 8 << 20), opened = pair.memory(1, pair.there, 8 << 20);
  const RemoteRegion known = pair.remote(closed, "closed");
  (void)pair.end(must(pair.here.write(pair.peer, Extent{{pair.mine.id, 0, 4096}, {known.id, 0}})));
  (void)pair.there.publish("opened", opened);
  check(cudaSetDevice(0));
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  run_for<<<1, 1, 0, stream>>>(3'000'000'000ULL);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  auto began = Clock::now();
  const Status ended = pair.there.deregister(closed);
  std::printf("beside a kernel of 3 s: deregister %s after %.1f ms, ", ended.to_string().c_str(),
              us_since(began) / 1e3);
  began = Clock::now();
  const RemoteRegion fresh = must(pair.here.lookup(pair.peer, "opened"));
  (void)pair.end(must(pair.here.write(pair.peer, Extent{{pair.mine.id, 0, 4096}, {fresh.id, 0}})));
  std::printf("4 KiB over a new path after %.1f ms\n", us_since(began) / 1e3);
  check(cudaStreamSynchronize(stream));
}

void pinned(Pair& pair) {
  constexpr std::uint64_t kBytes = std::uint64_t{64} << 20, kHalf = kBytes / 2;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 7, kBytes);
  const Region half = must(pair.here.register_memory(memory, kHalf, Access::all));
  for (std::uint64_t at = 0; at < (4 << 20); at += 65536)
    (void)pair.end(must(pair.here.write(pair.peer, Extent{{half.id, at, 65536}, {pair.theirs.id, at}})));
  const Region whole = must(pair.here.register_memory(memory, kBytes, Access::all));
  const auto tell = [](const char* what, const Status& status) {
    std::printf("half pinned: %s: %s\n", what, status.to_string().c_str());
  };
  tell("pages across its border", pair.list(whole.id, kHalf / 16384 - 32));
  tell("pages behind it", pair.list(whole.id, kHalf / 16384 + 100));
  tell("a block across",
       pair.end(must(pair.here.write(pair.peer, Extent{{whole.id, kHalf - (1 << 20), 2 << 20}, {pair.theirs.id, 0}}))));
  tell("the half deregistered", pair.here.deregister(half));
  tell("pages that it had", pair.list(whole.id, 10));
  std::printf("half pinned: the program's context: %s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> named(argv + 1, argv + argc);
  const std::pair<const char*, void (*)(Pair&)> parts[] = {
      {"urgent", urgent}, {"pages", pages}, {"opening", opening}, {"pinned", pinned}};
  for (const std::string& name : named)
    if (std::none_of(std::begin(parts), std::end(parts), [&](const auto& part) { return name == part.first; })) {
      std::fprintf(stderr, "beside: no part '%s': there are urgent, pages, opening, pinned\n", name.c_str());
      return 2;
    }
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) {
    std::fprintf(stderr, "beside: it needs two GPUs, here are %d\n", gpus);
    return 1;
  }
  Pair pair;
  for (const auto& [name, run] : parts)
    if (named.empty() || std::find(named.begin(), named.end(), name) != named.end()) run(pair);
}
