#include <cstdlib>
#include <initializer_list>

#include <dlfcn.h>

#include "collectives/gpu/plan.h"
#include "process/gpu_collectives/tries.h"

// Every value of operations on GPU memory, around each place where another way is taken.
namespace fairway {
namespace {

using namespace std::chrono_literals;
namespace gpu = collectives::gpu;

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

void try_f8_and_factors(GpuRank& rank) {
  Tries tries(rank);
  for (const CollectiveKind kind : kKinds)
    for (const DataType type :
         {DataType::f8e4m3, DataType::f8e5m2, DataType::f16, DataType::bf16, DataType::f32, DataType::f64})
      for (int reduction = 0; reduction <= static_cast<int>(Reduction::premul_sum); ++reduction)
        for (const std::size_t count : {std::size_t{37}, std::size_t{30'003}}) {
          Try one{kind, type, static_cast<Reduction>(reduction), count};
          const bool is_f8 = type >= DataType::f8e4m3;
          if (one.reduction == Reduction::custom || !is_combining(kind)) continue;
          if (!is_f8 && one.reduction != Reduction::premul_sum) continue;  // others have them
          for (const bool in_place : {false, true})
            for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::one_shot, Algorithm::direct}) {
              if (algorithm != Algorithm::automatic && kind != CollectiveKind::all_reduce) continue;
              one.in_place = in_place;
              one.algorithm = algorithm;
              if (!tries.run(one)) return;
            }
        }
}
TEST_P(GpuValues, OfF8AndOfInputsThatAreMultiplied) {
  run_gpu_ranks(GetParam(), 10min, try_f8_and_factors);
}
TEST_P(GpuValues, OfF8AndOfInputsThatAreMultipliedWithoutNvlink) {
  const WithoutNvlink without;
  run_gpu_ranks(GetParam(), 10min, try_f8_and_factors);
}

TEST_P(GpuValues, OfEveryRoot) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    Tries tries(rank);
    for (const CollectiveKind kind : {CollectiveKind::reduce, CollectiveKind::gather, CollectiveKind::scatter})
      for (int root = 0; root < rank.group.size(); ++root)
        for (const std::size_t count : {std::size_t{1}, std::size_t{40'001}, std::size_t{100'003}}) {
          Try one{kind, DataType::i32, Reduction::sum, count};
          one.root = root;
          one.in_place = root % 2 != 0;
          if (!tries.run(one)) return;
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
    const gpu::Layout layout = gpu::layout_of(static_cast<int>(size), true);
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

// Of kernels that the ranks load and whose names begin so; "" where theirs differ or are of both families.
std::string family_of(const std::function<void(int rank)>& before) {
  const char* const named = std::getenv("FAIRWAY_CUDA_DRIVER");
  if (named != nullptr && std::string(named) != FAIRWAY_STANDIN_CUDA) return "unknown";
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 1);
  ::setenv("FAIRWAY_NVML", FAIRWAY_STANDIN_CUDA, 1);
  GroupOptions options;
  options.transports = {"shm", "cuda"};
  options.change = [&](EngineOptions&, int rank) { before(rank); };
  bool lines = true, units = true;
  for (const char* const family : {"fairway_pair_", "fairway_units_"}) {
    const auto ends = run_processes(options, [&](Engine&, Communicator& communicator) {
      GpuRank rank(communicator);
      if (!rank.expect(communicator.use_gpu(rank.gpu), "use_gpu")) return 2;
      void* const driver = ::dlopen(FAIRWAY_STANDIN_CUDA, RTLD_NOW | RTLD_NOLOAD);
      const auto loaded = reinterpret_cast<bool (*)(const char*)>(::dlsym(driver, "fairway_standin_loaded"));
      if (loaded == nullptr || !loaded("fairway_read_")) return 3;
      return loaded(family) ? 0 : 1;
    });
    for (const RankEnd& end : ends) (family[8] == 'p' ? lines : units) &= end.well;
  }
  ::unsetenv("FAIRWAY_NVML");
  return lines == units ? "" : lines ? "lines" : "units";
}

TEST(GpuFamily, RanksThatEachSeeTheirOwnGpuAloneGoByLinesOverNvLink) {
  const std::string family = family_of([](int rank) {  // as under CUDA_VISIBLE_DEVICES=<rank>
    ::setenv("FAIRWAY_STANDIN_DEVICES", "1", 1);
    ::setenv("FAIRWAY_STANDIN_FIRST", std::to_string(rank).c_str(), 1);
  });
  if (family == "unknown") GTEST_SKIP() << "the driver is a real one";
  EXPECT_EQ(family, "lines");
}

// There lines may be torn.
TEST(GpuFamily, LinksThatHaveAtomicsAndAreNoNvLinkGoByUnits) {
  const std::string family = family_of([](int) {
    ::setenv("FAIRWAY_STANDIN_DEVICES", "2", 1);
    ::setenv("FAIRWAY_STANDIN_PCIE_ATOMICS", "1", 1);
  });
  if (family == "unknown") GTEST_SKIP() << "the driver is a real one";
  EXPECT_EQ(family, "units");
}

}  // namespace
}  // namespace fairway
