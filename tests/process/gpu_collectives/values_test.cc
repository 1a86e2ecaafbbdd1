#include <cstdlib>
#include <initializer_list>

#include "collectives/gpu_plan.h"
#include "process/gpu_collectives/gpu_rank.h"

// Every value of operations on GPU memory, around each place where another way is taken.
namespace fairway {
namespace {

using namespace std::chrono_literals;
namespace gpu = collectives::gpu;

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::broadcast,
                                     CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_to_all, CollectiveKind::barrier};
constexpr Reduction kReductions[] = {Reduction::sum, Reduction::product, Reduction::min, Reduction::max,
                                     Reduction::average};

bool is_combining(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}

struct Try {
  CollectiveKind kind = CollectiveKind::all_reduce;
  DataType type = DataType::f32;
  Reduction reduction = Reduction::sum;
  std::size_t count = 1;
  bool in_place = false;
  std::size_t off = 0;  // bytes by which the memory is out of alignment
  Algorithm algorithm = Algorithm::automatic;

  [[nodiscard]] std::string text() const {
    return std::string(to_string(kind)) + " (" + std::string(to_string(reduction)) + ", " +
           std::string(to_string(algorithm)) + ") of " + std::to_string(count) + " " + std::string(to_string(type)) +
           (in_place ? " in place" : "") + (off != 0 ? " out of alignment" : "");
  }
};

// The blocks of this rank's input, and what its output's block `block` holds afterwards.
int blocks_in(const Try& one, int size) {
  return one.kind == CollectiveKind::reduce_scatter || one.kind == CollectiveKind::all_to_all ? size : 1;
}
int blocks_out(const Try& one, int size) {
  return one.kind == CollectiveKind::all_gather || one.kind == CollectiveKind::all_to_all ? size : 1;
}
double wanted(const Try& one, int rank, int size, int root, int block, std::size_t at) {
  switch (one.kind) {
    case CollectiveKind::all_reduce: return reduced(size, 0, at, one.reduction, one.type);
    case CollectiveKind::reduce_scatter: return reduced(size, rank, at, one.reduction, one.type);
    case CollectiveKind::broadcast: return given(root, 0, at, one.reduction);
    case CollectiveKind::all_gather: return given(block, 0, at, one.reduction);
    default: return given(block, rank, at, one.reduction);
  }
}

class Tries {
 public:
  explicit Tries(GpuRank& rank) : rank_(rank), stream_(rank.stream()) {
    for (std::byte*& place : places_) place = rank.memory(kRoom);
  }
  bool run(const Try& one) {
    const int size = rank_.group.size(), me = rank_.group.rank(), root = size - 1;
    const std::size_t width = size_of(one.type), block = one.count * width;
    const auto in = static_cast<std::size_t>(blocks_in(one, size)),
               out = static_cast<std::size_t>(blocks_out(one, size));
    Collective call{.kind = one.kind, .count = one.count, .type = one.type, .reduction = one.reduction};
    call.root = root;
    call.algorithm = one.algorithm;
    std::byte *input = places_[0] + one.off, *output = places_[1] + one.off;
    if (one.in_place && one.kind == CollectiveKind::all_gather) input = output + static_cast<std::size_t>(me) * block;
    if (one.in_place && one.kind == CollectiveKind::reduce_scatter)
      output = input + static_cast<std::size_t>(me) * block;
    if (one.in_place && (in == out)) output = input;
    call.input = input;
    call.output = output;
    std::vector<std::byte> values(in * block), guard(out * block + 16, std::byte{0x77});
    for (std::size_t b = 0; b < in; ++b)
      for (std::size_t i = 0; i < one.count; ++i)
        put(values.data() + b * block, i, one.type, given(me, static_cast<int>(b), i, one.reduction));
    if (!one.in_place) rank_.fill(output, guard);
    rank_.fill(input, values);
    if (!rank_.expect(rank_.group.stream_run(call, stream_), one.text().c_str())) return false;
    if (!rank_.synchronize(stream_)) return rank_.fail(one.text() + ": the context is broken");
    if (!rank_.expect(rank_.group.stream_status(), one.text().c_str())) return false;
    if (one.kind == CollectiveKind::barrier) return true;
    const auto seen = rank_.read(output, out * block + 16);
    for (std::size_t b = 0; b < out; ++b)
      for (std::size_t i = 0; i < one.count; ++i) {
        const double want = wanted(one, me, size, root, static_cast<int>(b), i);
        const double got = get(seen.data() + b * block, i, one.type);
        if (got != want)
          return rank_.fail(one.text() + ": block " + std::to_string(b) + ", element " + std::to_string(i) + " is " +
                            std::to_string(got) + ", not " + std::to_string(want));
      }
    for (std::size_t i = out * block; !one.in_place && i < seen.size(); ++i)
      if (seen[i] != std::byte{0x77}) return rank_.fail(one.text() + ": writes behind its output");
    return true;
  }

  static constexpr std::size_t kRoom = 9U << 20;

 private:
  GpuRank& rank_;
  GpuStream stream_;
  std::byte* places_[2] = {};
};

// Of so many ranks; as many as there can be.
struct GpuValues : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuValues, testing::Range(1, 9));

// As between GPUs that PCIe connects, where lines may be torn. Of the stand-in driver alone.
struct WithoutNvlink {
  WithoutNvlink() { ::setenv("FAIRWAY_STANDIN_NO_NVLINK", "1", 1); }
  ~WithoutNvlink() { ::unsetenv("FAIRWAY_STANDIN_NO_NVLINK"); }
};

void try_sizes(GpuRank& rank, std::size_t ranks, std::initializer_list<std::size_t> sizes) {
  Tries tries(rank);
  const std::size_t most = (std::size_t{1} << 20) + 24;
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::u8}) {
    const std::size_t width = size_of(type);
    for (const std::size_t bytes : sizes)
      for (const std::size_t more : {std::size_t{0}, width}) {
        const bool is_long = bytes > most / 2;
        if (is_long && type != DataType::f32) continue;
        Try one;
        one.type = type;
        one.count = (bytes + more) / width;
        for (const CollectiveKind kind : kKinds) {
          one.kind = kind;
          if (is_long && ranks > 3 && kind != CollectiveKind::all_reduce) continue;
          one.algorithm = Algorithm::automatic;
          one.in_place = more != 0;
          if (!tries.run(one)) return;
          if (kind != CollectiveKind::all_reduce) continue;
          one.algorithm = Algorithm::one_shot;
          if (!tries.run(one)) return;
          one.algorithm = Algorithm::direct;
          if (!tries.run(one)) return;
        }
      }
  }
}

TEST_P(GpuValues, OfEveryKindTypeAndReduction) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    Tries tries(rank);
    for (const CollectiveKind kind : kKinds)
      for (const DataType type : kAllTypes)
        for (const Reduction reduction : kReductions) {
          if (!is_combining(kind) && reduction != Reduction::sum) continue;
          for (const bool in_place : {false, true})
            if (!tries.run({kind, type, reduction, 37, in_place})) return;
        }
  });
}

TEST_P(GpuValues, OfSizesAroundEachSwitchByLines) {
  const auto size = static_cast<std::size_t>(GetParam());
  run_gpu_ranks(GetParam(), 10min, [size](GpuRank& rank) {
    const std::size_t others = std::max<std::size_t>(size - 1, 1), row = gpu::kRowBytes;
    try_sizes(rank, size,
              {0, 8, 112, row, 4 * row, 5 * row, gpu::Layout::own_bytes(0) / 2 / gpu::kRowMemory / others * row,
               gpu::kMostByWideLines / others, gpu::kMostByWideLines / others * size, std::size_t{1} << 20,
               std::min<std::size_t>(gpu::kBroadcastAtOnce / others, 1U << 20) + 8});
  });
}

TEST_P(GpuValues, OfSizesAroundEachSwitchByUnitsAndPieces) {
  const auto size = static_cast<std::size_t>(GetParam());
  const WithoutNvlink without;
  run_gpu_ranks(GetParam(), 10min, [size](GpuRank& rank) {
    const gpu::Layout layout = gpu::layout_of(static_cast<int>(size));
    const std::size_t others = std::max<std::size_t>(size - 1, 1), unit_round = layout.unit_count * 8;
    const std::size_t piece = layout.area.piece_bytes;
    try_sizes(rank, size,
              {0, 8, 16, 2048, unit_round, gpu::kUnitChannels * unit_round, gpu::kMostByUnits / others, piece * size,
               std::size_t{1} << 20});
  });
}

void try_odd_places(GpuRank& rank) {
  Tries tries(rank);
  for (const CollectiveKind kind : kKinds)
    for (const std::size_t count : {std::size_t{3}, std::size_t{1001}, std::size_t{50'001}})
      for (const std::size_t off : {std::size_t{4}, std::size_t{12}, std::size_t{1}}) {
        Try one;
        one.kind = kind;
        one.count = count;
        one.off = off;
        if (!tries.run(one)) return;
      }
}
TEST(GpuValue, OfMemoryOutOfAlignment) {
  run_gpu_ranks(3, 10min, try_odd_places);
}
TEST(GpuValue, OfMemoryOutOfAlignmentWithoutNvlink) {
  const WithoutNvlink without;
  run_gpu_ranks(3, 10min, try_odd_places);
}

}  // namespace
}  // namespace fairway
