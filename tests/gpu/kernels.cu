// size: each case is one program of both sides
#include <string_view>
#include <vector>

#include <signal.h>

#include "pair.cuh"

// What only GPUs can show of kernels, streams and graphs that reach a peer by themselves.
//   gpu_kernels [case]    all cases without one; 77: there is no GPU
namespace {

using pair::Side;
namespace dev = fairway::device;
constexpr std::size_t kBytes = std::size_t{8} << 20;
constexpr std::uint64_t kLong = 20'000'000'000;  // nanoseconds that no wait of a test that passes takes

#define EXPECT(what)                                                          \
  do {                                                                        \
    if (!(what)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
      return 1;                                                               \
    }                                                                         \
  } while (0)

enum class By : int { thread, warp, block, grid };

__global__ void put_once(By by, unsigned char* to, const unsigned char* from, std::uint64_t length, dev::Word* word,
                         dev::Word value) {
  switch (by) {
    case By::thread:
      if (threadIdx.x == 0) {
        dev::put<dev::Thread>(to, from, length);
        dev::signal_set<dev::Thread>(word, value);
      }
      return;
    case By::warp:
      if (threadIdx.x < 32) {
        dev::put<dev::Warp>(to, from, length);
        dev::signal_set<dev::Warp>(word, value);
      }
      return;
    case By::block:
      dev::put<dev::Block>(to, from, length);
      dev::signal_set<dev::Block>(word, value);
      return;
    case By::grid: return;  // by put_by_grid_once
  }
}
__global__ void wait_once(const dev::Word* word, dev::Word value, std::uint64_t nanoseconds,
                          const std::uint32_t* ended, std::uint32_t* came) {
  const bool seen = dev::signal_wait_block(word, value, dev::now() + nanoseconds, ended);
  if (threadIdx.x == 0) *came = seen ? 1 : 2;
}

__global__ void put_by_grid_once(unsigned char* to, const unsigned char* from, std::uint64_t length) {
  dev::put_by_grid(to, from, length);
}
__global__ void set_once(dev::Word* word, dev::Word value) {
  dev::signal_set<dev::Block>(word, value);
}

// Rank 0 puts, rank 1 looks at what came and at what must not have changed.
int PutsOfEveryPlaceAndLengthLandWholeAndNothingBeside(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  constexpr std::uint64_t kGuard = 64, kRoom = 40000;
  std::uint64_t turn = 0;
  std::vector<unsigned char> seen(kRoom + 2 * kGuard);
  for (const By by : {By::thread, By::warp, By::block, By::grid})
    for (const std::uint64_t length : {0, 1, 7, 15, 16, 33, 255, 511, 512, 4096, 4099, 33333})
      for (std::uint64_t to = 0; to < 16; ++to)
        for (const std::uint64_t from : {0, 1, 3, 4, 8, 14}) {
          if ((by == By::thread || by == By::warp) && length > 4099) continue;
          ++turn;
          if (side.rank == 0) {
            pair::fill<<<16, 256, 0, side.stream>>>(side.source + from, length, turn, nullptr);
            auto* const there = reinterpret_cast<unsigned char*>(side.there.address) + kGuard + to;
            if (by == By::grid) {
              put_by_grid_once<<<4, 256, 0, side.stream>>>(there, side.source + from, length);
              set_once<<<1, 32, 0, side.stream>>>(side.word_there(0), turn);
            } else {
              put_once<<<1, 256, 0, side.stream>>>(by, there, side.source + from, length, side.word_there(0), turn);
            }
            CUDA_CHECK(cudaStreamSynchronize(side.stream));
          } else {
            wait_once<<<1, 32, 0, side.stream>>>(side.word(0), turn, kLong, nullptr, side.outcome);
            CUDA_CHECK(cudaMemcpyAsync(seen.data(), side.box, seen.size(), cudaMemcpyDeviceToHost, side.stream));
            CUDA_CHECK(cudaMemsetAsync(side.box, 0xA5, seen.size(), side.stream));
            CUDA_CHECK(cudaStreamSynchronize(side.stream));
            EXPECT(*side.outcome == 1);
            if (turn > 1)  // the first one meets zeros
              for (std::uint64_t i = 0; i < seen.size(); ++i) {
                const bool inside = i >= kGuard + to && i < kGuard + to + length;
                EXPECT(seen[i] == (inside ? pair::pattern(turn, i - kGuard - to) : 0xA5));
              }
          }
          side.meet();
        }
  side.close();
  return 0;
}

// Rank 0 writes and reads lists that a kernel copies; rank 1's memory and rank 0's own show every byte, and those beside.
int PagesOfEveryPlaceAndLengthLandWholeAndNothingBeside(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  constexpr std::uint64_t kPages = 16, kStep = 24576, kAll = kPages * kStep;
  std::vector<std::uint64_t> index(kPages), turned(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) {
    index[i] = i;
    turned[i] = i * 5 % kPages;
  }
  std::vector<unsigned char> seen(kAll);
  std::uint64_t turn = 0;
  for (const bool reads : {false, true})
    for (const std::uint64_t length : {1, 15, 16, 17, 500, 4096, 4099, 9001, 20000})
      for (std::uint64_t to = 0; to < 16; ++to)
        for (const std::uint64_t from : {0, 1, 2, 3, 4, 6, 8, 12, 15}) {
          ++turn;
          unsigned char* const source = reads ? side.box : side.source;  // of who has the bytes
          unsigned char* const target = reads ? side.source : side.box;
          const bool sends = (side.rank == 0) != reads;
          if (sends) pair::fill<<<16, 256, 0, side.stream>>>(source, kAll, turn, nullptr);
          if (!sends) CUDA_CHECK(cudaMemsetAsync(target, 0xA5, kAll, side.stream));
          CUDA_CHECK(cudaStreamSynchronize(side.stream));
          side.meet();
          if (side.rank == 0) {
            std::vector<std::uint64_t> here(kPages), there(kPages);
            for (std::uint64_t i = 0; i < kPages; ++i) {
              here[i] = index[i] * kStep + (reads ? to : from);
              there[i] = turned[i] * kStep + (reads ? from : to);
            }
            const fairway::Paged paged{side.from.id, side.remote.id, length, 1, 1, here, there};
            const auto id = reads ? side.engine->read(side.peer, paged) : side.engine->write(side.peer, paged);
            FAIRWAY_CHECK(id.status());
            const auto done = side.engine->wait(*id, pair::kSoon);
            FAIRWAY_CHECK(done.status());
            FAIRWAY_CHECK(done->status);
          }
          side.meet();
          if (sends) continue;
          CUDA_CHECK(cudaMemcpyAsync(seen.data(), target, kAll, cudaMemcpyDeviceToHost, side.stream));
          CUDA_CHECK(cudaStreamSynchronize(side.stream));
          const std::vector<std::uint64_t>& of_source = reads ? turned : index;
          const std::vector<std::uint64_t>& of_target = reads ? index : turned;
          for (std::uint64_t page = 0; page < kPages; ++page)
            for (std::uint64_t i = 0; i < kStep; ++i) {
              const bool inside = i >= to && i < to + length;
              const std::uint64_t at = of_source[page] * kStep + from + i - to;
              EXPECT(seen[of_target[page] * kStep + i] == (inside ? pair::pattern(turn, at) : 0xA5));
            }
        }
  side.close();
  return 0;
}

// One block writes a box again and again, the other GPU's looks at every byte as soon as it sees the signal.
__global__ void write_rounds(unsigned char* there, dev::Word* word, const dev::Word* acknowledged, std::uint64_t length,
                             std::uint64_t rounds, bool add, std::uint32_t* came) {
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) there[i] = pair::pattern(round, i);
    if (add)
      dev::signal_add<dev::Block>(word, 1);
    else
      dev::signal_set<dev::Block>(word, round);
    if (!dev::signal_wait_block(acknowledged, round, dev::now() + kLong)) return;
  }
  if (threadIdx.x == 0) *came = 1;
}
__global__ void read_rounds(const unsigned char* box, const dev::Word* word, dev::Word* acknowledge,
                            std::uint64_t length, std::uint64_t rounds, unsigned long long* wrong, std::uint32_t* came) {
  unsigned long long found = 0;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    if (!dev::signal_wait_block(word, round, dev::now() + kLong)) return;
    for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) found += box[i] != pair::pattern(round, i);
    dev::signal_set<dev::Block>(acknowledge, round);
  }
  if (found != 0) atomicAdd_system(wrong, found);
  if (threadIdx.x == 0) *came = 1;
}

int InAKernelNoSignalComesBeforeItsBytes(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  for (const bool add : {false, true})
    for (const std::uint64_t length : {8, 1000, 4096, 65536}) {
      side.clear_words();
      *side.outcome = 0;
      // Two processes' kernels take turns of milliseconds on one GPU.
      const std::uint64_t rounds = devices < 2 ? 200 : length > 10000 ? 500 : 5000;
      if (side.rank == 0)
        write_rounds<<<1, 256, 0, side.stream>>>(reinterpret_cast<unsigned char*>(side.there.address),
                                                 side.word_there(0), side.word(1), length, rounds, add, side.outcome);
      else
        read_rounds<<<1, 256, 0, side.stream>>>(side.box, side.word(0), side.word_there(1), length, rounds, side.wrong,
                                                side.outcome);
      CUDA_CHECK(cudaGetLastError());
      CUDA_CHECK(cudaStreamSynchronize(side.stream));
      EXPECT(*side.outcome == 1);
      EXPECT(*side.wrong == 0);
      side.meet();
    }
  side.close();
  return 0;
}

// A graph that fills, puts and waits for the answer; the other side's waits, compares and answers. Each launch another
// pattern, so bytes of the one before are told.
int InAGraphNoSignalComesBeforeItsBytes(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  fairway::Engine& engine = *side.engine;
  for (const fairway::PutBy by : {fairway::PutBy::automatic, fairway::PutBy::kernel, fairway::PutBy::copy_engine})
    for (const std::uint64_t length : {std::uint64_t{8}, std::uint64_t{4096}, std::uint64_t{100'001}, kBytes}) {
      side.clear_words();
      fairway::StreamWait wait;
      wait.word = side.word(side.rank == 0 ? 1 : 0);
      wait.count = side.word(2);
      wait.timeout = std::chrono::seconds(20);
      wait.outcome = side.outcome;
      wait.with = side.there.id;
      fairway::StreamPut put;
      put.signal_offset = side.offset_of_word(side.rank == 0 ? 0 : 1);
      put.by = by;
      std::uint64_t* const turn = side.word(3);
      const cudaGraphExec_t graph = pair::capture(side.stream, [&] {
        pair::count_on<<<1, 1, 0, side.stream>>>(turn);
        if (side.rank == 0) {
          pair::fill<<<pair::blocks_for(length), 256, 0, side.stream>>>(side.source, length, 0, turn);
          put.from = side.source;
          put.length = length;
          FAIRWAY_CHECK(engine.stream_put(side.there.id, put, side.stream));
          FAIRWAY_CHECK(engine.stream_wait_signal(wait, side.stream));
        } else {
          FAIRWAY_CHECK(engine.stream_wait_signal(wait, side.stream));
          pair::compare<<<pair::blocks_for(length), 256, 0, side.stream>>>(side.box, length, 0, turn, side.wrong);
          FAIRWAY_CHECK(engine.stream_put(side.there.id, put, side.stream));
        }
      });
      for (int launch = 0; launch < 200; ++launch) CUDA_CHECK(cudaGraphLaunch(graph, side.stream));
      CUDA_CHECK(cudaStreamSynchronize(side.stream));
      EXPECT(*side.outcome == 0);
      EXPECT(*side.wrong == 0);
      CUDA_CHECK(cudaGraphExecDestroy(graph));
      side.meet();
    }
  side.close();
  return 0;
}

__global__ void add_many(dev::Word* word, int times) {
  for (int i = 0; i < times; ++i) dev::signal_add<dev::Thread>(word, 1);
}

int AddsOfBothSidesAreAllCounted(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  side.clear_words();
  constexpr int kTimes = 100, kBlocks = 4, kThreads = 64;
  EXPECT(side.there.atomics);
  add_many<<<kBlocks, kThreads, 0, side.stream>>>(side.rank == 0 ? side.word_there(5) : side.word(5), kTimes);
  CUDA_CHECK(cudaStreamSynchronize(side.stream));
  side.meet();
  std::uint64_t sum = 0;
  CUDA_CHECK(cudaMemcpy(&sum, side.word(5), sizeof sum, cudaMemcpyDeviceToHost));
  EXPECT(side.rank == 0 || sum == 2ull * kTimes * kBlocks * kThreads);
  side.close();
  return 0;
}

int AWaitPastItsDeadlineSaysSo(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  const auto begin = std::chrono::steady_clock::now();
  wait_once<<<1, 64, 0, side.stream>>>(side.word(0), 1, 20'000'000, nullptr, side.outcome);
  CUDA_CHECK(cudaStreamSynchronize(side.stream));
  EXPECT(*side.outcome == 2);
  EXPECT(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(19));
  fairway::StreamWait wait;
  wait.word = side.word(0);
  wait.timeout = std::chrono::milliseconds(20);
  wait.outcome = side.outcome;
  FAIRWAY_CHECK(side.engine->stream_wait_signal(wait, side.stream));
  CUDA_CHECK(cudaStreamSynchronize(side.stream));
  EXPECT(*side.outcome == static_cast<std::uint32_t>(fairway::ErrorCode::deadline_exceeded));
  side.close();
  return 0;
}

// Rank 0 takes its box back while a kernel of rank 1's waits for something of it that will not come.
int WhoTakesItsMemoryBackLetsWaitingKernelsGo(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  if (side.rank == 0) {
    side.meet();
    const fairway::Status early = side.engine->deregister(side.own, std::chrono::milliseconds(200));
    EXPECT(early.code() == fairway::ErrorCode::not_fenced);
    EXPECT(early.message().find("rank1") != std::string::npos);
    side.meet();
  } else {
    wait_once<<<1, 64, 0, side.stream>>>(side.word(0), 1, kLong, side.there.ended, side.outcome);
    CUDA_CHECK(cudaGetLastError());
    side.meet();
    CUDA_CHECK(cudaStreamSynchronize(side.stream));
    EXPECT(*side.outcome == 2);
    EXPECT(*side.there.ended == static_cast<std::uint32_t>(fairway::ErrorCode::revoked));
    side.meet();
  }
  side.close();
  return 0;
}

__global__ void write_on(unsigned char* there, std::uint64_t length, const volatile std::uint32_t* ended,
                         unsigned long long* rounds) {
  const std::uint64_t until = dev::now() + kLong;
  for (unsigned long long round = 0; dev::now() < until && *ended == 0; ++round) {
    for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) there[i] = static_cast<unsigned char>(round);
    __syncthreads();
    if (threadIdx.x == 0) *rounds = round;
  }
}

int AKilledOwnerIsToldToKernelsThatWriteThere(Side& side) {
  side.open(kBytes, fairway::Progress::threads);
  if (side.rank == 1) {
    side.shared.words[0] = static_cast<std::uint64_t>(::getpid());
    side.meet();
    ::sleep(30);
    return 1;
  }
  side.meet();
  write_on<<<1, 256, 0, side.stream>>>(reinterpret_cast<unsigned char*>(side.there.address), 65536, side.there.ended,
                                       side.wrong);
  CUDA_CHECK(cudaGetLastError());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(static_cast<pid_t>(side.shared.words[0].load()), SIGKILL);
  const cudaError_t end = cudaStreamSynchronize(side.stream);
  std::printf("  the kernel that wrote there ended with: %s, after %llu rounds; ended says %u\n",
              cudaGetErrorString(end), *side.wrong, *side.there.ended);
  EXPECT(*side.there.ended == static_cast<std::uint32_t>(fairway::ErrorCode::peer_dead));
  FAIRWAY_CHECK(side.engine->unmap(side.there.id));
  side.engine->close();
  return 0;
}

__global__ void write_there(unsigned char* there, std::uint64_t length, std::uint64_t seed) {
  for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) there[i] = pair::pattern(seed, i);
}

// One process, two GPUs.
int KernelsReachThisProcessesMemoryOfAnotherGpu(Side& side) {
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  if (side.rank != 0 || devices < 2) return 0;
  side.bytes = kBytes;
  CUDA_CHECK(cudaMalloc(&side.box, kBytes));
  CUDA_CHECK(cudaHostAlloc(&side.wrong, sizeof *side.wrong, cudaHostAllocPortable));
  *side.wrong = 0;
  auto engine = fairway::Engine::open({});
  FAIRWAY_CHECK(engine.status());
  const auto region = engine->register_memory(side.box, kBytes, fairway::Access::none);
  FAIRWAY_CHECK(region.status());
  const auto mapping = engine->map(*region, 1);
  FAIRWAY_CHECK(mapping.status());
  CUDA_CHECK(cudaSetDevice(1));
  write_there<<<1, 1024>>>(reinterpret_cast<unsigned char*>(mapping->address), kBytes, 5);
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaSetDevice(0));
  pair::compare<<<64, 256>>>(side.box, kBytes, 5, nullptr, side.wrong);
  CUDA_CHECK(cudaDeviceSynchronize());
  EXPECT(*side.wrong == 0);
  EXPECT(engine->deregister(*region, std::chrono::milliseconds(50)).code() == fairway::ErrorCode::not_fenced);
  FAIRWAY_CHECK(engine->unmap(mapping->id));
  return 0;
}

struct Case {
  std::string_view name;
  int (*body)(Side&);
  bool one_dies = false;
};
#define CASE(name) {#name, name}
constexpr Case kCases[] = {CASE(PutsOfEveryPlaceAndLengthLandWholeAndNothingBeside),
                           CASE(PagesOfEveryPlaceAndLengthLandWholeAndNothingBeside),
                           CASE(InAKernelNoSignalComesBeforeItsBytes),
                           CASE(InAGraphNoSignalComesBeforeItsBytes),
                           CASE(AddsOfBothSidesAreAllCounted),
                           CASE(AWaitPastItsDeadlineSaysSo),
                           CASE(WhoTakesItsMemoryBackLetsWaitingKernelsGo),
                           CASE(KernelsReachThisProcessesMemoryOfAnotherGpu),
                           {"AKilledOwnerIsToldToKernelsThatWriteThere", AKilledOwnerIsToldToKernelsThatWriteThere, true}};

// In a process of its own, since nobody forks once CUDA was started. 77: no GPU.
template <class Body>
int apart(Body body) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(100);
    const int code = body();
    std::fflush(stdout);
    std::_Exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int count, char** words) {
  const int gpus = apart([] {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
  });
  if (gpus == 0) {
    // In GoogleTest's words, which scripts/summary reads.
    std::printf("kernels.cu: Skipped\nthis machine has no GPU, or no driver for it\n\n[  SKIPPED ] %s\n",
                count > 1 ? words[1] : "all");
    return 77;
  }
  int failed = 0, ran = 0;
  for (const Case& each : kCases) {
    if (count > 1 && each.name != words[1]) continue;
    ++ran;
    const int code = apart([&] { return pair::run(each.body); });
    const bool ok = code == 0 || (each.one_dies && code == 128);
    std::printf("%s %.*s\n", ok ? "ok    " : "FAILED", static_cast<int>(each.name.size()), each.name.data());
    std::fflush(stdout);
    failed += ok ? 0 : 1;
  }
  if (ran == 0) std::fprintf(stderr, "no such case: %s\n", words[1]);
  return failed == 0 && ran > 0 ? 0 : 1;
}
