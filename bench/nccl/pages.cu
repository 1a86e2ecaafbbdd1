// The time of one write of scattered pages for a C++ caller, from this process's first GPU to another process's memory on
// the last GPU. bench/gpu_pages.py runs it beside the same in Python. Prints a line for each page size and count:
// bytes, pages, and the medians of the call and of the wait behind it, microseconds.
// Usage: pages [largest count (100000)] [threads | caller: who makes progress] [event: each write follows a CUDA event]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "cuda_check.cuh"
#include "fairway/fairway.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPage = 40960, kSmallPage = 4096;
constexpr int kTurns = 11;

struct Options {
  std::uint64_t most = 100000;
  fairway::Progress progress = fairway::Progress::threads;
  bool event = false;
};

double microseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

fairway::EngineOptions engine_options(fairway::Progress progress) {
  fairway::EngineOptions out;
  out.transports = {"shm", "cuda", "tcp"};
  out.progress = progress;
  return out;
}

template <class T>
T value(fairway::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "pages: %s\n", result.status().to_string().c_str());
    std::_Exit(1);
  }
  return std::move(*result);
}

void* gpu_memory(std::uint64_t bytes) {
  void* out = nullptr;
  CUDA_CHECK(cudaMalloc(&out, bytes));
  return out;
}

// Its address goes to `out`; ends when `in` does.
void own(std::uint64_t bytes, int out, int in) {
  int gpus = 0;
  CUDA_CHECK(cudaGetDeviceCount(&gpus));
  CUDA_CHECK(cudaSetDevice(gpus - 1));
  auto engine = value(fairway::Engine::open(engine_options(fairway::Progress::threads)));
  const fairway::Region memory = value(engine.register_memory(gpu_memory(bytes), bytes, fairway::Access::write));
  if (!engine.publish("memory", memory)) std::_Exit(1);
  const std::string address = engine.address() + "\n";
  char byte = 0;
  if (::write(out, address.data(), address.size()) < 0 || ::read(in, &byte, 1) != 0) std::_Exit(1);
}

std::vector<std::uint64_t> permutation(std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  std::shuffle(out.begin(), out.end(), std::mt19937_64(seed));
  return out;
}

void write_pages(const std::string& address, const Options& options) {
  CUDA_CHECK(cudaSetDevice(0));
  auto engine = value(fairway::Engine::open(engine_options(options.progress)));
  const fairway::PeerId peer = value(engine.connect(address));
  const fairway::RemoteRegion remote = value(engine.lookup(peer, "memory"));
  const std::uint64_t bytes = options.most * kPage;
  const fairway::Region local = value(engine.register_memory(gpu_memory(bytes), bytes, fairway::Access::none));
  const auto here = permutation(options.most, 1), there = permutation(options.most, 2);
  fairway::RequestOptions request;
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  if (options.event) request.start_after = event;
  for (const std::uint64_t page : {kSmallPage, kPage})
    for (std::uint64_t count = std::min<std::uint64_t>(1000, options.most);;
         count = std::min(count * 10, options.most)) {
      const fairway::Paged pages{local.id, remote.id, page, page, page, {here.data(), count}, {there.data(), count}};
      std::vector<double> calls, waits;
      for (int turn = 0; turn < kTurns; ++turn) {
        const auto began = Clock::now();
        if (options.event) CUDA_CHECK(cudaEventRecord(event, nullptr));
        const fairway::TransferId id = value(engine.write(peer, pages, request));
        const auto called = Clock::now();
        const fairway::Completion done = value(engine.wait(id));
        const auto ended = Clock::now();
        if (!done.status) {
          std::fprintf(stderr, "pages: %s\n", done.status.to_string().c_str());
          std::_Exit(1);
        }
        calls.push_back(microseconds(began, called));
        waits.push_back(microseconds(called, ended));
      }
      std::printf("%lu %lu %.1f %.1f\n", page, count, median(calls), median(waits));
      if (count == options.most) break;
    }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    char* end = nullptr;
    if (word == "threads" || word == "caller") {
      options.progress = word == "caller" ? fairway::Progress::caller : fairway::Progress::threads;
    } else if (word == "event") {
      options.event = true;
    } else if (options.most = std::strtoull(word.c_str(), &end, 10);
               *end != '\0' || options.most == 0 || word[0] == '-') {
      std::fprintf(stderr, "pages: %s: give a number of pages, threads or caller, event\n", word.c_str());
      return 2;
    }
  }
  int up[2], down[2];
  if (::pipe(up) != 0 || ::pipe(down) != 0) return 1;
  const pid_t owner = ::fork();
  if (owner < 0) return 1;
  if (owner == 0) {
    ::close(down[1]);
    own(options.most * kPage, up[1], down[0]);
    return 0;
  }
  ::close(up[1]);
  std::string address;
  for (char byte = 0; ::read(up[0], &byte, 1) == 1 && byte != '\n';) address += byte;
  if (address.empty()) return 1;
  write_pages(address, options);
  ::close(down[1]);
  int status = 0;
  ::waitpid(owner, &status, 0);
  return status == 0 ? 0 : 1;
}
