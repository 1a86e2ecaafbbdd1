#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "copies_answers.cuh"
#include "copies_driver.cuh"

// Compares ways to copy a list of pieces: one call per piece, on one stream or alternating between two; one batch call
// for all (cuMemcpyBatchAsync); and libfairway's kernel for page lists. Between two GPUs, and between a GPU and pinned
// memory.
//   copies [--rounds 25] [--least 4K] [--most 1G] [--json FILE] [--answers]
// The ways take turns. The table shows medians of the time until the calls return, the time until the word behind the
// last copy is seen, and, for back-to-back lists, the time per list. Buffers are poisoned before and every byte is
// compared after. --answers tests how the batch call reports bad arguments instead. FILE gets one JSON object per row
// of the table.
struct Piece {  // the same struct as in copy_pieces.cu, which is linked in
  unsigned char* to;
  const unsigned char* from;
  unsigned long long size;
};
extern "C" __global__ void fairway_copy_pieces(const Piece* pieces, unsigned count);

namespace {

using namespace copies;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCounts[] = {1, 2, 4, 7, 8, 16, 32, 64, 256, 1024};
constexpr std::size_t kSizes[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr std::size_t kListed = 4096;  // pieces in one list of the kernel
constexpr std::size_t kRow = 8;  // back-to-back lists
constexpr std::size_t kRowBytes = 64ull << 20;  // a larger list takes long enough by itself

enum class Way { one, two, batch, batch_two, kernel };
constexpr Way kWays[] = {Way::one, Way::two, Way::batch, Way::batch_two, Way::kernel};
constexpr std::size_t kWayCount = sizeof kWays / sizeof kWays[0];
const char* name_of(Way way) {
  switch (way) {
    case Way::one: return "one stream";
    case Way::two: return "two streams";
    case Way::batch: return "batch";
    case Way::batch_two: return "two batches";
    case Way::kernel: return "kernel";
  }
  return "";
}

struct Path {
  const char* name;
  unsigned char *to, *from;
  int device;  // the device that copies
};

__device__ unsigned char pattern(std::uint64_t seed, std::uint64_t at) {
  std::uint64_t h = (at + 1) * 0x9E3779B97F4A7C15ull ^ seed * 0xC2B2AE3D27D4EB4Full;
  h ^= h >> 29;
  return static_cast<unsigned char>(h >> 7);
}
__global__ void fill(unsigned char* to, std::uint64_t count, std::uint64_t seed) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count; i += step)
    to[i] = pattern(seed, i);
}
// Compares the pieces at the target with their sources; `source` maps each target place to its source place.
__global__ void compare(const unsigned char* at, std::uint64_t count, std::uint64_t size, const unsigned* source,
                        std::uint64_t seed, unsigned long long* wrong) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count; i += step)
    if (at[i] != pattern(seed, source[i / size] * size + i % size)) atomicAdd(wrong, 1ull);
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all.empty() ? 0 : all[all.size() / 2];
}

struct Times {
  std::vector<double> calls, all, row;
};

class Bench {
 public:
  Bench(unsigned rounds, std::size_t most, std::FILE* json) : rounds_(rounds), most_(most), json_(json) {
    CUDA_CHECK(cudaGetDeviceCount(&devices_));
    devices_ = std::min(devices_, 2);
    for (int device = 0; device < devices_; ++device) {
      CUDA_CHECK(cudaSetDevice(device));
      if (devices_ == 2) CUDA_CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
      CUDA_CHECK(cudaMalloc(&on_[device], most_));
    }
    CUDA_CHECK(cudaSetDevice(0));
    for (cudaStream_t& stream : streams_) CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaHostAlloc(&host_, most_, cudaHostAllocPortable | cudaHostAllocMapped));
    CUDA_CHECK(cudaHostAlloc(&words_, 4096, cudaHostAllocPortable | cudaHostAllocMapped));
    CUDA_CHECK(cudaHostAlloc(&lists_, kRow * kListed * sizeof(Piece), cudaHostAllocPortable | cudaHostAllocMapped));
    CUDA_CHECK(cudaHostAlloc(&source_, 1024 * sizeof *source_, cudaHostAllocPortable | cudaHostAllocMapped));
    CUDA_CHECK(cudaHostAlloc(&wrong_, sizeof *wrong_, cudaHostAllocPortable | cudaHostAllocMapped));
    std::memset(words_, 0, 4096);
    CUDA_CHECK(cudaGetFuncBySymbol(&kernel_, reinterpret_cast<const void*>(fairway_copy_pieces)));
  }

  bool run(std::size_t least) {
    std::printf("%-12s %5s %8s", "", "", "");
    for (const Way way : kWays) std::printf(" | %-23s", name_of(way));
    std::printf("\n%-12s %5s %8s", "", "list", "each");
    for (std::size_t i = 0; i < kWayCount; ++i) std::printf(" | %7s %7s %7s", "calls", "all", "in row");
    std::printf("   us\n");
    for (const Path& path : paths())
      for (const std::size_t size : kSizes)
        for (const std::size_t count : kCounts)
          if (size >= least && size * count <= most_) measure(path, size, count);
    return sound_;
  }

 private:
  std::vector<Path> paths() const {
    std::vector<Path> all;
    if (devices_ == 2) {
      all.push_back({"to a GPU", on_[1], on_[0], 0});
      all.push_back({"from a GPU", on_[0], on_[1], 0});
    }
    all.push_back({"GPU to host", host_, on_[0], 0});
    all.push_back({"host to GPU", on_[0], host_, 0});
    return all;
  }

  void measure(const Path& path, std::size_t size, std::size_t count) {
    shuffle(path, size, count);
    Times times[kWayCount];
    for (std::size_t i = 0; i < kWayCount; ++i) verify(path, kWays[i], size, count);
    const bool row = size * count <= kRowBytes;
    for (unsigned round = 0; round < rounds_ + 3; ++round)
      for (std::size_t k = 0; k < kWayCount; ++k) {
        const std::size_t i = (k + round) % kWayCount;
        if (!does(kWays[i])) continue;
        double calls = 0, behind = 0;
        const double all = time(kWays[i], size, count, 1, calls);
        const double part = row ? time(kWays[i], size, count, kRow, behind) / kRow : 0;
        if (round < 3) continue;
        times[i].calls.push_back(calls);
        times[i].all.push_back(all);
        if (row) times[i].row.push_back(part);
      }
    for (std::size_t i = 0; i < kWayCount; ++i) verify(path, kWays[i], size, count);
    tell(path, size, count, times);
  }

  bool does(Way way) const { return driver_.has_batch() || (way != Way::batch && way != Way::batch_two); }

  // Maps each place to another one, in an irregular order.
  void shuffle(const Path& path, std::size_t size, std::size_t count) {
    list_.resize(count);
    std::vector<unsigned> order(count), target(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = target[i] = static_cast<unsigned>(i);
    const auto mix = [this](std::vector<unsigned>& all) {
      for (std::size_t i = all.size(); i > 1; --i) {
        draw_ = draw_ * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(all[i - 1], all[(draw_ >> 33) % i]);
      }
    };
    mix(order);
    mix(target);
    for (std::size_t i = 0; i < count; ++i) {
      list_[i] = {path.to + target[i] * size, path.from + order[i] * size, size};
      source_[target[i]] = order[i];
    }
  }

  // Time for `lists` back-to-back lists until the last word is seen; `calls`: until all of them were submitted.
  double time(Way way, std::size_t size, std::size_t count, std::size_t lists, double& calls) {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < lists; ++i) start(way, size, count, i);
    const auto handed = Clock::now();
    for (std::size_t queue = 0; queue < 2; ++queue) {
      const volatile std::uint32_t* word = words_ + 16 * queue;
      const auto limit = handed + std::chrono::seconds(20);
      for (std::uint64_t looks = 1; static_cast<std::int32_t>(*word - serial_[queue]) < 0; ++looks)
        if (looks % (1u << 20) == 0 && Clock::now() > limit) {
          std::fprintf(stderr, "%s, %zu of %zu bytes: its word never came\n", name_of(way), count, size);
          std::_Exit(4);
        }
    }
    const auto end = Clock::now();
    calls = std::chrono::duration<double, std::micro>(handed - begin).count();
    return std::chrono::duration<double, std::micro>(end - begin).count();
  }

  static CUdeviceptr place(const void* at) { return reinterpret_cast<CUdeviceptr>(at); }
  void copy(const Piece& piece, std::size_t queue) {
    DRIVER_CHECK(driver_.copy(place(piece.to), place(piece.from), piece.size, streams_[queue]));
  }
  void tell_of(std::size_t queue) {
    DRIVER_CHECK(driver_.word(streams_[queue], place(words_ + 16 * queue), ++serial_[queue], 0));
  }
  void copy_all(std::size_t first, std::size_t end, std::size_t queue) {
    if (first == end) return;
    to_.clear();
    from_.clear();
    sizes_.clear();
    for (std::size_t i = first; i < end; ++i) {
      to_.push_back(place(list_[i].to));
      from_.push_back(place(list_[i].from));
      sizes_.push_back(list_[i].size);
    }
    DRIVER_CHECK(driver_.copy_all(to_.data(), from_.data(), sizes_.data(), end - first, streams_[queue]));
  }

  void start(Way way, std::size_t size, std::size_t count, std::size_t turn) {
    const std::size_t queue = turn % 2;
    switch (way) {
      case Way::one:
        for (const Piece& piece : list_) copy(piece, queue);
        tell_of(queue);
        break;
      case Way::two:
        for (std::size_t i = 0; i < count; ++i) copy(list_[i], i % 2);
        tell_of(0);
        if (count > 1) tell_of(1);
        break;
      case Way::batch:
        copy_all(0, count, queue);
        tell_of(queue);
        break;
      case Way::batch_two:
        copy_all(0, (count + 1) / 2, 0);
        copy_all((count + 1) / 2, count, 1);
        tell_of(0);
        if (count > 1) tell_of(1);
        break;
      case Way::kernel:
        copy_by_kernel(size, count, turn);
        tell_of(queue);
        break;
    }
  }

  // As the transport does: cut into pieces so that all warps have work, at most 32 blocks of 16 warps (queues.cc,
  // mover.cc).
  void copy_by_kernel(std::size_t size, std::size_t count, std::size_t turn) {
    Piece* const pieces = lists_ + turn % kRow * kListed;
    const std::size_t most = std::max<std::size_t>(2048, (size * count / 512 + 15) / 16 * 16);
    unsigned listed = 0;
    for (const Piece& piece : list_)
      for (std::size_t at = 0; at < piece.size; at += most)
        pieces[listed++] = {piece.to + at, piece.from + at, std::min<unsigned long long>(most, piece.size - at)};
    const Piece* list = pieces;
    void* arguments[] = {&list, &listed};
    DRIVER_CHECK(driver_.launch(reinterpret_cast<CUfunction>(kernel_), std::min(32u, (listed + 15) / 16), 1, 1, 512, 1,
                                1, 0, streams_[turn % 2], arguments, nullptr));
  }

  // Runs one list into poisoned memory and checks every byte.
  void verify(const Path& path, Way way, std::size_t size, std::size_t count) {
    if (!does(way)) return;
    const std::size_t bytes = size * count;
    const unsigned blocks = static_cast<unsigned>(std::min<std::size_t>(1024, bytes / 256));
    ++seed_;
    *wrong_ = 0;
    fill<<<blocks, 256, 0, streams_[0]>>>(path.from, bytes, seed_);
    if (path.to == host_)
      std::memset(host_, 0xA5, bytes);
    else
      CUDA_CHECK(cudaMemsetAsync(path.to, 0xA5, bytes, streams_[0]));
    CUDA_CHECK(cudaStreamSynchronize(streams_[0]));
    double calls = 0;
    (void)time(way, size, count, 1, calls);
    compare<<<blocks, 256, 0, streams_[0]>>>(path.to, bytes, size, source_, seed_, wrong_);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaStreamSynchronize(streams_[0]));
    if (*wrong_ == 0) return;
    std::fprintf(stderr, "%s, %s, %zu of %zu bytes: %llu wrong bytes\n", path.name, name_of(way), count, size, *wrong_);
    sound_ = false;
  }

  void tell(const Path& path, std::size_t size, std::size_t count, const Times* times) {
    std::printf("%-12s %5zu %4zu KiB", path.name, count, size >> 10);
    for (std::size_t i = 0; i < kWayCount; ++i) {
      const double calls = median(times[i].calls), all = median(times[i].all), row = median(times[i].row);
      std::printf(" | %7.1f %7.1f %7.1f", calls, all, row);
      if (json_ != nullptr && !times[i].all.empty())
        std::fprintf(json_,
                     "{\"path\": \"%s\", \"count\": %zu, \"bytes\": %zu, \"way\": \"%s\", \"calls_us\": %.2f, "
                     "\"all_us\": %.2f, \"row_us\": %.2f}\n",
                     path.name, count, size, name_of(kWays[i]), calls, all, row);
    }
    std::printf("\n");
    std::fflush(stdout);
    if (json_ != nullptr) std::fflush(json_);
  }

  const Driver driver_;
  const unsigned rounds_;
  const std::size_t most_;
  std::FILE* const json_;
  int devices_ = 0;
  unsigned char *on_[2] = {}, *host_ = nullptr;
  cudaStream_t streams_[2] = {};
  cudaFunction_t kernel_ = nullptr;
  Piece* lists_ = nullptr;
  std::uint32_t* words_ = nullptr;  // the word of queue n is at 16 n: each has its own cache line
  std::uint32_t serial_[2] = {};
  unsigned* source_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  std::vector<Piece> list_;
  std::vector<CUdeviceptr> to_, from_;
  std::vector<std::size_t> sizes_;
  std::uint64_t seed_ = 0, draw_ = 1;
  bool sound_ = true;
};

std::size_t bytes_of(const char* text) {
  char* end = nullptr;
  const std::size_t value = std::strtoull(text, &end, 10);
  return value << (*end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0);
}

}  // namespace

int main(int count, char** words) {
  unsigned rounds = 25;
  std::size_t least = 0, most = std::size_t{1} << 30;  // bytes of one copy, of one list
  const char* file = nullptr;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--answers") return copies::show_answers();
    if (i + 1 == count || (word != "--rounds" && word != "--least" && word != "--most" && word != "--json")) {
      std::fprintf(stderr, "copies [--rounds 25] [--least 4K] [--most 1G] [--json FILE] [--answers]\n");
      return 2;
    }
    const char* value = words[++i];
    if (word == "--rounds") rounds = static_cast<unsigned>(std::max(1, std::atoi(value)));
    if (word == "--least") least = bytes_of(value);
    if (word == "--most") most = std::max<std::size_t>(bytes_of(value), 1 << 20);
    if (word == "--json") file = value;
  }
  std::FILE* const json = file == nullptr ? nullptr : std::fopen(file, "w");
  if (file != nullptr && json == nullptr) {
    std::perror(file);
    return 2;
  }
  const bool sound = Bench(rounds, most, json).run(least);
  if (json != nullptr) std::fclose(json);
  return sound ? 0 : 1;
}
