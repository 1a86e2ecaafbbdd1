#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.cuh"

// NCCL's collectives between processes, one per GPU. Every result is compared, and timed. Prints one JSON object per
// line.
//   nccl_ranks --ranks 4 [--mode sweep|types|killed] [--from 8] [--to 1G] [--ops all_reduce,...] [--seed 1]
//              [--hosts A,A,B,B] [--iterations 0] [--seconds 60: until when all must know of the killed one]
namespace {

using work::Call;
using work::Group;
using work::Op;
using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = 2, seconds = 60, iterations = 0;
  std::string mode = "sweep";
  std::size_t from = 8, to = std::size_t{1} << 30;
  std::vector<Op> ops{std::begin(work::kOps), std::end(work::kOps)};
  std::vector<std::string> hosts;
  std::uint64_t seed = 1;
};

struct Shared {  // between the processes
  nccl::UniqueId id;
  std::atomic<int> ready;
  std::atomic<std::uint64_t> arrived;
  std::atomic<std::uint64_t> wrong;
  double us[64];
  std::atomic<std::int64_t> killed_ns;
};

void barrier(Shared& shared, int ranks) {
  const std::uint64_t mine = shared.arrived.fetch_add(1);
  const std::uint64_t all = (mine / static_cast<std::uint64_t>(ranks) + 1) * static_cast<std::uint64_t>(ranks);
  while (shared.arrived.load() < all) std::this_thread::yield();
}

struct Rank {
  const Options& options;
  Shared& shared;
  int rank;
  work::Gpu gpu;
  Group world;

  // Repeats and times one call, then compares the result. Rank 0 prints.
  bool measure(const Call& call) {
    const int rounds = options.iterations > 0      ? options.iterations
                       : call.bytes <= (1 << 20)   ? 100
                       : call.bytes <= (64u << 20) ? 20
                                                   : 5;
    gpu.prepare(call, world);
    gpu.start(call, world);
    CUDA_CHECK(cudaStreamSynchronize(gpu.stream));
    const std::uint64_t first_wrong = gpu.check(call, world);  // later rounds of an in-place reduction reduce again
    cudaEvent_t begin, end;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (int i = 0; i < 5; ++i) gpu.start(call, world);
    CUDA_CHECK(cudaStreamSynchronize(gpu.stream));
    barrier(shared, options.ranks);
    CUDA_CHECK(cudaEventRecord(begin, gpu.stream));
    for (int i = 0; i < rounds; ++i) gpu.start(call, world);
    CUDA_CHECK(cudaEventRecord(end, gpu.stream));
    CUDA_CHECK(cudaStreamSynchronize(gpu.stream));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    std::uint64_t wrong = first_wrong;
    if (!(call.in_place && work::reduces(call.op))) wrong += gpu.check(call, world);
    gpu.prepare(call, world);  // compared once more after the timed rounds
    gpu.start(call, world);
    CUDA_CHECK(cudaStreamSynchronize(gpu.stream));
    wrong += gpu.check(call, world);
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    shared.us[rank] = ms * 1e3 / rounds;
    shared.wrong += wrong;
    barrier(shared, options.ranks);
    const double us = *std::max_element(shared.us, shared.us + options.ranks);
    const std::uint64_t all_wrong = shared.wrong.load();
    barrier(shared, options.ranks);
    if (rank == 0) {
      std::printf(
          "{\"op\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"type\": \"%s\", \"reduction\": %d, \"in_place\": %s, \"us\": "
          "%.2f, \"bus_gb_s\": %.3f, \"wrong\": %llu}\n",
          work::name_of(call.op), options.ranks, call.bytes, pattern::name_of(call.type), call.reduction,
          call.in_place ? "true" : "false", us,
          static_cast<double>(call.bytes) / us / 1e3 * work::bus_factor(call.op, options.ranks),
          static_cast<unsigned long long>(all_wrong));
      std::fflush(stdout);
    }
    return all_wrong == 0;
  }

  // float32 sums of every size, out of place and in place.
  bool sweep() {
    bool ok = true;
    for (const Op op : options.ops)
      for (std::size_t bytes = options.from; bytes <= options.to; bytes *= bytes < (1 << 14) ? 8 : 4)
        for (const bool in_place : {false, true})
          if (!in_place || (work::can_be_in_place(op) && bytes <= (16u << 20)))
            ok &= measure({op, bytes, nccl::float32, nccl::sum, in_place, options.seed});
    return ok;
  }
  // Every data type and reduction, at sizes that are not multiples of a power of two.
  bool types() {
    bool ok = true;
    for (const Op op : options.ops)
      for (int type = 0; type < nccl::kTypes; ++type)
        for (int reduction = 0; reduction < (work::reduces(op) ? 4 : 1); ++reduction)
          for (const std::size_t values : {std::size_t{1}, std::size_t{1001}, std::size_t{1} << 20, (std::size_t{5} << 20) + 3})
            for (const bool in_place : {false, true}) {
              if (in_place && !work::can_be_in_place(op)) continue;
              const auto each = static_cast<nccl::Type>(type);
              ok &= measure({op, values * pattern::size_of(each), each, static_cast<nccl::Reduction>(reduction), in_place,
                             options.seed});
            }
    return ok;
  }

  // Runs all-reduces until the parent kills the last rank. NCCL must report the loss to every other rank.
  bool killed() {
    const Call call{Op::all_reduce, 64u << 20, nccl::float32};
    gpu.prepare(call, world);
    const auto limit = Clock::now() + std::chrono::seconds(options.seconds);
    for (;;) {
      gpu.start(call, world);
      while (cudaStreamQuery(gpu.stream) == cudaErrorNotReady) {
        int error = 0;
        const int asked = nccl::library().ncclCommGetAsyncError(world.comm, &error);
        if (asked != 0 || (error != 0 && error != nccl::kInProgress)) {
          const std::int64_t now = Clock::now().time_since_epoch().count();
          std::printf("{\"op\": \"killed\", \"rank\": %d, \"error\": \"%s\", \"after_ms\": %.1f}\n", rank,
                      nccl::library().ncclGetErrorString(error),
                      static_cast<double>(now - shared.killed_ns.load()) / 1e6);
          std::fflush(stdout);
          (void)nccl::library().ncclCommAbort(world.comm);
          return shared.killed_ns.load() != 0;
        }
        if (Clock::now() > limit) {
          std::printf("{\"op\": \"killed\", \"rank\": %d, \"error\": \"none: it hangs\"}\n", rank);
          std::fflush(stdout);
          std::_Exit(5);
        }
      }
    }
  }
};

int run_rank(const Options& options, Shared& shared, int rank) {
  if (!options.hosts.empty()) ::setenv("NCCL_HOSTID", options.hosts[static_cast<std::size_t>(rank) % options.hosts.size()].c_str(), 1);
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  const std::size_t most = options.mode == "sweep" ? options.to : std::size_t{256} << 20;
  Rank self{options, shared, rank, work::Gpu(rank % devices, most), {}};
  if (rank == 0) {
    NCCL_CHECK(nccl::library().ncclGetUniqueId(&shared.id));
    shared.ready = 1;
  }
  while (shared.ready.load() == 0) ::usleep(1000);
  self.world.rank = rank;
  self.world.ranks = options.ranks;
  NCCL_CHECK(nccl::library().ncclCommInitRank(&self.world.comm, options.ranks, shared.id, rank));
  if (options.mode == "killed") return self.killed() ? 0 : 1;  // its communicator is gone
  const bool ok = options.mode == "types" ? self.types() : self.sweep();
  NCCL_CHECK(nccl::library().ncclCommDestroy(self.world.comm));
  return ok ? 0 : 1;
}

std::size_t bytes_of(const std::string& text) {
  std::size_t end = 0;
  const std::size_t number = std::stoull(text, &end);
  const char unit = end < text.size() ? text[end] : ' ';
  return number << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Options parse(int count, char** words) {
  Options options;
  const auto refuse = [](const std::string& word) {
    std::fprintf(stderr, "nccl_ranks: '%s' is not understood; the options are at the head of ranks.cu\n", word.c_str());
    std::exit(2);
  };
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i], value = i + 1 < count ? words[i + 1] : "";
    try {
      if (value.empty()) refuse(name);
      else if (name == "--ranks") options.ranks = std::stoi(value);
      else if (name == "--mode") options.mode = value;
      else if (name == "--from") options.from = bytes_of(value);
      else if (name == "--to") options.to = bytes_of(value);
      else if (name == "--seed") options.seed = std::stoull(value);
      else if (name == "--seconds") options.seconds = std::stoi(value);
      else if (name == "--iterations") options.iterations = std::stoi(value);
      else if (name == "--hosts") options.hosts = split(value);
      else if (name == "--ops") {
        options.ops.clear();
        for (const std::string& each : split(value)) {
          const auto* found = std::find_if(std::begin(work::kOps), std::end(work::kOps),
                                           [&](Op op) { return each == work::name_of(op); });
          if (found == std::end(work::kOps)) refuse(each);
          options.ops.push_back(*found);
        }
      } else refuse(name);
    } catch (const std::exception&) {
      refuse(value);
    }
  }
  if (options.ranks < 2 || options.ranks > 32) refuse("--ranks " + std::to_string(options.ranks));
  if (options.mode != "sweep" && options.mode != "types" && options.mode != "killed") refuse(options.mode);
  return options;
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();  // before any CUDA call
    if (child == 0) std::_Exit(run_rank(options, *shared, rank));
    children.push_back(child);
  }
  if (options.mode == "killed") {
    std::this_thread::sleep_for(std::chrono::seconds(15));
    shared->killed_ns = Clock::now().time_since_epoch().count();
    ::kill(children.back(), SIGKILL);
  }
  int outcome = 0;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = ::wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (options.mode == "killed" && ended == children.back()) continue;
    outcome = 1;
    if (options.mode != "killed")  // the others would wait for it for ever
      for (const pid_t child : children)
        if (child != ended) ::kill(child, SIGKILL);
  }
  return outcome;
}
