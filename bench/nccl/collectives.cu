#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include "checks.cuh"
#include "collective_values.cuh"
#include "collectives_options.h"
#include "cuda_check.cuh"
#include "fairway/collectives.h"
#include "library.h"
#include "nccl_best.cuh"
#include "processes.h"

// Collectives on GPU memory in CUDA graphs and launched one by one, in turns with each way of NCCL (nccl_best.cuh) in the
// same run, in the form of nccl-tests (docs/collective-figures.md): with memory anywhere, and in windows of the communicator.
// NCCL's column is its fastest way, which the last one names; the ratio is to the faster of ours.
// messages: each rank to the next one, around a ring, beside ncclSend and ncclRecv in a group.
//   collectives [--ranks N] [--operations all_reduce,...] [--from 8] [--to 1G] [--type f32|bf16] [--algorithm NAME]
//               [--windows-from BYTES] [--turns 3] [--alone] [--json FILE]
// A process for each rank, with GPU rank modulo their number. --alone: without NCCL. Every value of each row is
// compared, after the last launch.
namespace {

using fairway::CollectiveKind;

struct Shared {  // between the processes
  processes::Place place;
  char address[8][256] = {};
  nccl::UniqueId id = {};
  std::atomic<std::uint64_t> wrong{0};
  double us[8] = {};
};

class Rank {
 public:
  Rank(const Options& options, Shared& shared, int rank) : options_(options), shared_(shared), rank_(rank) {
    int devices = 0;
    CUDA_CHECK(cudaGetDeviceCount(&devices));
    gpu_ = rank % devices;
    CUDA_CHECK(cudaSetDevice(gpu_));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    // Copy engines take up to a third more time for an allocation that is no multiple of 2 MiB (docs/GOTCHAS.md).
    constexpr std::size_t kWhole = 2 << 20;
    const std::size_t room = (options.to + 4096 + kWhole - 1) / kWhole * kWhole;
    for (unsigned char** buffer : {&input_, &output_}) {
      if (options.alone || nccl::library().ncclMemAlloc == nullptr)
        CUDA_CHECK(cudaMalloc(buffer, room));
      else
        NCCL_CHECK(nccl::library().ncclMemAlloc(reinterpret_cast<void**>(buffer), room));
    }
    CUDA_CHECK(cudaHostAlloc(&wrong_, sizeof *wrong_, cudaHostAllocPortable | cudaHostAllocMapped));
    fairway::EngineOptions wanted;
    wanted.name = "rank" + std::to_string(rank);
    auto engine = fairway::Engine::open(wanted);
    FAIRWAY_CHECK(engine.status());
    engine_ = std::make_unique<fairway::Engine>(std::move(*engine));
    std::strncpy(shared.address[rank], engine_->address().c_str(), sizeof shared.address[rank] - 1);
    meet();
    std::vector<std::string> addresses;
    for (int i = 0; i < options.ranks; ++i) addresses.emplace_back(shared.address[i]);
    auto group = fairway::Communicator::create(*engine_, rank, addresses);
    FAIRWAY_CHECK(group.status());
    group_ = std::make_unique<fairway::Communicator>(std::move(*group));
    const auto begin = Clock::now();
    renew();
    if (rank == 0) std::printf("# use_gpu took %.1f ms\n", us_since(begin) / 1e3);
    if (!options.alone) {
      nccl_ = std::make_unique<nccl::Ways>(options.ranks, rank, [&](nccl::UniqueId& id) {
        if (rank == 0) shared.id = id;
        meet();
        id = shared.id;
        meet();
      });
      nccl_->use(input_, output_, room);
      int version = 0;
      NCCL_CHECK(nccl::library().ncclGetVersion(&version));
      if (rank == 0) std::printf("# beside NCCL %d\n", version);
    }
    if (rank == 0 && options.json != nullptr) json_ = std::fopen(options.json, "w");
  }
  ~Rank() {
    CUDA_CHECK(cudaDeviceSynchronize());
    meet();
    if (json_ != nullptr) std::fclose(json_);
    used_.reset();
    shown_.reset();
    group_.reset();
  }

  int run() {
    static constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",  "broadcast",
                                             "reduce",     "gather",     "scatter",        "all_to_allv", "messages"};
    // all_to_all is the last: behind it NCCL 2.28.9's broadcast hangs among four GPUs (docs/GOTCHAS.md).
    for (const int kind : {0, 1, 2, 4, 5, 6, 7, 9, 8, 3}) {
      if (("," + options_.operations + ",").find("," + std::string(kNames[kind]) + ",") == std::string::npos) continue;
      if (rank_ == 0)
        std::printf("\n# %s\n# %12s %12s %6s %9s %10s %8s %8s %7s %12s %8s %7s %10s %8s %8s %6s  NCCL's way\n", kNames[kind],
                    "size", "count", "type", "how", "time (us)", "algbw", "busbw", "#wrong", "windows (us)", "busbw", "#wrong",
                    "NCCL (us)", "busbw", "#wrong", "ratio");
      for (std::size_t bytes = options_.from; bytes <= options_.to; bytes *= bytes < 4096 ? 8 : 4) {
        renew();
        for (const bool graph : {true, false}) row(kind, kNames[kind], bytes, graph);
      }
    }
    return shared_.wrong == 0 ? 0 : 1;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double us_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  void meet() const { shared_.place.meet(options_.ranks); }
  // Waits for the stream, which NCCL has no deadline for.
  void settle(const std::string& what) const {
    const auto end = Clock::now() + processes::kPatience / 2;
    cudaError_t result = cudaErrorNotReady;
    while ((result = cudaStreamQuery(stream_)) == cudaErrorNotReady && Clock::now() < end) {
    }
    if (result == cudaErrorNotReady) {
      std::fprintf(stderr, "rank %d: %s has not ended after a minute\n", rank_, what.c_str());
      std::_Exit(5);
    }
    CUDA_CHECK(result);
  }
  [[nodiscard]] std::size_t width() const { return options_.type == "bf16" ? 2 : 4; }

  void ours(fairway::Communicator& group, int kind, std::size_t block) {
    static constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                                CollectiveKind::reduce_scatter, CollectiveKind::all_to_all,
                                                CollectiveKind::broadcast,      CollectiveKind::reduce,
                                                CollectiveKind::gather,         CollectiveKind::scatter,
                                                CollectiveKind::all_to_allv};
    if (kind == 9) {
      const fairway::StreamMessage both[] = {{input_, block * width(), (rank_ + 1) % options_.ranks, false},
                                             {output_, block * width(), (rank_ + options_.ranks - 1) % options_.ranks, true}};
      FAIRWAY_CHECK(group.stream_messages(both, stream_));
      return;
    }
    fairway::Collective call;
    std::vector<std::size_t> counts(options_.ranks, block), offsets;
    for (int i = 0; i < options_.ranks; ++i) offsets.push_back(i * block);
    if (kind == 8) call.send = call.receive = {counts, offsets};
    call.kind = kKinds[kind];
    call.input = input_;
    call.output = output_;
    call.count = block;
    call.type = width() == 2 ? fairway::DataType::bf16 : fairway::DataType::f32;
    if (kind == 0 && options_.algorithm == "one_shot") call.algorithm = fairway::Algorithm::one_shot;
    if (kind == 0 && options_.algorithm == "direct") call.algorithm = fairway::Algorithm::direct;
    FAIRWAY_CHECK(group.stream_run(call, stream_));
  }
  void theirs(int way, int kind, std::size_t block) {
    const nccl::Type type = width() == 2 ? nccl::bfloat16 : nccl::float32;
    nccl_->run(way, kind, input_, output_, block, type, width(), stream_);
  }

  // Each row makes a capture, and the first six of a communicator have more memory: so there is another for each.
  void renew() {
    for (auto* each : {&used_, &shown_}) {
      auto made = group_->split(0);
      FAIRWAY_CHECK(made.status());
      auto next = std::make_unique<fairway::Communicator>(std::move(*made));
      FAIRWAY_CHECK(next->use_gpu(gpu_, {.windows_from = options_.windows_from, .messages = true}));
      *each = std::move(next);
    }
    for (unsigned char* buffer : {input_, output_})
      FAIRWAY_CHECK(shown_->register_window(buffer, options_.to).status());
  }
  template <class Enqueue>
  cudaGraphExec_t capture(int many, Enqueue enqueue) {
    cudaGraphExec_t graph = nullptr;
    cudaGraph_t captured = nullptr;
    CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < many; ++i) enqueue();
    CUDA_CHECK(cudaStreamEndCapture(stream_, &captured));
    CUDA_CHECK(cudaGraphInstantiate(&graph, captured, 0));
    CUDA_CHECK(cudaGraphDestroy(captured));
    return graph;
  }
  // Us of each of `many` operations, in a graph or launched by the host: the slowest rank's, a median of launches.
  template <class Enqueue>
  double time(const std::string& what, cudaGraphExec_t graph, int many, Enqueue enqueue) {
    cudaEvent_t begin = nullptr, end = nullptr;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    std::vector<double> all;
    for (int i = -2; i < 11; ++i) {
      meet();
      CUDA_CHECK(cudaEventRecord(begin, stream_));
      if (graph != nullptr) CUDA_CHECK(cudaGraphLaunch(graph, stream_));
      for (int k = 0; k < many && graph == nullptr; ++k) enqueue();
      CUDA_CHECK(cudaEventRecord(end, stream_));
      settle(what);
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      shared_.us[rank_] = ms * 1e3 / many;
      meet();
      if (i >= 0) all.push_back(*std::max_element(shared_.us, shared_.us + options_.ranks));
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  void poison(int kind, std::size_t block) {
    const bool to_each = kind == 2 || kind == 3 || kind == 7 || kind == 8;
    const std::size_t in = block * (to_each ? static_cast<std::size_t>(options_.ranks) : 1);
    CUDA_CHECK(cudaMemsetAsync(output_, 0xA5, options_.to, stream_));
    if (width() == 2)
      fill<<<512, 256, 0, stream_>>>(reinterpret_cast<unsigned short*>(input_), in, rank_);
    else
      fill<<<512, 256, 0, stream_>>>(reinterpret_cast<float*>(input_), in, rank_);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    meet();
  }
  std::uint64_t wrong(int kind, std::size_t block) {
    const bool of_each = kind == 1 || kind == 3 || kind == 6 || kind == 8, at_root = kind == 5 || kind == 6;
    const std::size_t out = at_root && rank_ != 0 ? 0 : block * (of_each ? static_cast<std::size_t>(options_.ranks) : 1);
    *wrong_ = 0;
    if (width() == 2)
      compare<<<512, 256, 0, stream_>>>(reinterpret_cast<unsigned short*>(output_), out, block, kind, rank_,
                                        options_.ranks, wrong_);
    else
      compare<<<512, 256, 0, stream_>>>(reinterpret_cast<float*>(output_), out, block, kind, rank_, options_.ranks,
                                        wrong_);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    const std::uint64_t before = shared_.wrong.load();
    meet();
    shared_.wrong += *wrong_;
    meet();
    return shared_.wrong.load() - before;
  }

  static double median(std::vector<double>& all) {
    std::sort(all.begin(), all.end());
    return all.empty() ? 0 : all[all.size() / 2];
  }
  static constexpr std::size_t kOurs = 2;  // sides
  struct Side {  // Fairway, or a way of NCCL
    std::function<void()> enqueue;
    const char* name = "fairway";
    cudaGraphExec_t graph = nullptr;
    std::vector<double> us = {};
    std::uint64_t wrong = 0;
  };

  void row(int kind, const char* name, std::size_t bytes, bool in_graph) {
    const auto ranks = static_cast<std::size_t>(options_.ranks);
    const bool split = (kind >= 1 && kind <= 3) || (kind >= 6 && kind <= 8);  // the size is that of all blocks
    const std::size_t block = bytes / width() / (split ? ranks : 1);
    if (block == 0 || (kind == 9 && ranks == 1)) return;
    const int many = bytes <= (1U << 20) ? 50 : bytes <= (64U << 20) ? 10 : 3;
    std::vector<Side> sides(kOurs);
    const auto of = [&](const Side& side) {
      const bool is_ours = &side < sides.data() + kOurs;
      return std::string(name) + " of " + std::to_string(bytes) + " bytes by " + (is_ours ? "" : "NCCL, ") + side.name;
    };
    sides[0].enqueue = [=, this] { ours(*used_, kind, block); };
    sides[1].enqueue = [=, this] { ours(*shown_, kind, block); };
    sides[1].name = "fairway, windows";
    for (int way = 0; nccl_ != nullptr && way < nccl_->count(); ++way) {
      sides.push_back({[=, this] { theirs(way, kind, block); }, nccl_->name(way)});
      theirs(way, kind, block);
      settle(of(sides.back()));
    }
    for (Side& side : sides)
      if (in_graph) side.graph = capture(many, side.enqueue);
    for (int turn = 0; turn < options_.turns; ++turn)
      for (Side& side : sides) {
        poison(kind, block);
        side.us.push_back(time(of(side), side.graph, many, side.enqueue));
        FAIRWAY_CHECK(used_->stream_status());
        FAIRWAY_CHECK(shown_->stream_status());
        side.wrong += wrong(kind, block);
      }
    for (Side& side : sides)
      if (side.graph != nullptr) CUDA_CHECK(cudaGraphExecDestroy(side.graph));
    if (rank_ != 0) return;
    const double all = static_cast<double>(block * width() * (split ? ranks : 1));
    const double n = static_cast<double>(ranks);
    const double factor = kind == 0 ? 2 * (n - 1) / n : kind == 4 || kind == 5 || kind == 9 ? 1 : (n - 1) / n;
    const double us = median(sides[0].us), windows_us = median(sides[1].us);
    std::printf("  %12.0f %12zu %6s %9s %10.2f %8.2f %8.2f %7llu %12.2f %8.2f %7llu", all, block, options_.type.c_str(),
                in_graph ? "graph" : "launched", us, all / us / 1e3, all / us / 1e3 * factor,
                static_cast<unsigned long long>(sides[0].wrong), windows_us, all / windows_us / 1e3 * factor,
                static_cast<unsigned long long>(sides[1].wrong));
    Side* best = nullptr;
    double best_us = 0;
    for (std::size_t i = kOurs; i < sides.size(); ++i)
      if (const double one = median(sides[i].us); best == nullptr || one < best_us) best = &sides[i], best_us = one;
    if (best != nullptr)
      std::printf(" %10.2f %8.2f %8llu %6.2f  %s", best_us, all / best_us / 1e3 * factor,
                  static_cast<unsigned long long>(best->wrong), best_us / std::min(us, windows_us), best->name);
    std::printf("\n");
    std::fflush(stdout);
    if (json_ == nullptr) return;
    std::fprintf(json_,
                 "{\"operation\": \"%s\", \"ranks\": %zu, \"bytes\": %.0f, \"type\": \"%s\", \"how\": \"%s\", "
                 "\"algorithm\": \"%s\", \"us\": {",
                 name, ranks, all, options_.type.c_str(), in_graph ? "graph" : "launched", options_.algorithm.c_str());
    for (std::size_t i = 0; i < sides.size(); ++i)
      std::fprintf(json_, "%s\"%s\": %.3f", i == 0 ? "" : ", ", sides[i].name, median(sides[i].us));
    std::fprintf(json_, "}, \"busbw\": %.2f, \"wrong\": %llu}\n", all / us / 1e3 * factor,
                 static_cast<unsigned long long>(sides[0].wrong + sides[1].wrong));
    std::fflush(json_);
  }

  const Options& options_;
  Shared& shared_;
  const int rank_;
  int gpu_ = 0;
  cudaStream_t stream_ = nullptr;
  unsigned char *input_ = nullptr, *output_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  std::unique_ptr<fairway::Engine> engine_;
  std::unique_ptr<fairway::Communicator> group_, used_, shown_;  // shown_: with windows
  std::unique_ptr<nccl::Ways> nccl_;  // null: --alone
  std::FILE* json_ = nullptr;
};

// In a child: a process that forks may not have used CUDA.
int gpus() {
  int pipe[2];
  if (::pipe(pipe) != 0) return 0;
  int count = 0;
  if (::fork() == 0) {
    (void)cudaGetDeviceCount(&count);
    std::_Exit(::write(pipe[1], &count, sizeof count) == sizeof count ? 0 : 1);
  }
  ::close(pipe[1]);
  if (::read(pipe[0], &count, sizeof count) != sizeof count) count = 0;
  ::close(pipe[0]);
  (void)::wait(nullptr);
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = options_of(argc, argv);
  if (options.ranks == 0) options.ranks = std::min(gpus(), 8);
  if (options.ranks == 0) return std::fprintf(stderr, "collectives: there is no GPU here\n"), 2;
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared;
  return processes::run(options.ranks, [&](int rank) {
    Rank one(options, shared, rank);
    return one.run();
  });
}
