#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

#include "collectives/nccl/way_table.h"
#include "process/gpu_collectives/nccl_rank.h"

// The table of a machine is measured, kept, and decides who does an operation; one that cannot be used is ignored with
// a reason.
namespace fairway {
namespace {

using namespace collectives;

std::string read_all(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// A folder that goes. Its table is made by the ranks of the first communicator.
struct NcclTable : testing::Test {
  NcclTable() {
    folder = (std::filesystem::temp_directory_path() / "fairway-ways-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "no folder";
    one.options.table = folder + "/below/table";
    one.options.nccl = NcclUse::measured;
  }
  ~NcclTable() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  // The key of these ranks' tables.
  void measure() {
    run_nccl_ranks(one, [](GpuRank& rank) {
      const auto text = rank.group.measure_gpu(512, true);
      if (!rank.expect(text.status(), "measure_gpu")) return;
      for (const char* word : {"all_reduce", "broadcast", "launched", "graph", "512", "kept in", "chosen", "NCCL 2."})
        if (text->find(word) == std::string::npos) return (void)rank.fail("no " + std::string(word) + " in " + *text);
    });
    std::istringstream lines(read_all(one.options.table));
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);
    ASSERT_EQ(line.substr(0, 4), "key ") << read_all(one.options.table);
    key = line.substr(4);
  }
  void write(const std::string& text) const { std::ofstream(one.options.table) << text; }
  // Of NCCL's and of Fairway's wins.
  [[nodiscard]] WayTable made() const {
    WayTable table;
    table.add({CollectiveKind::all_reduce, false, 400, {9000, 5000, 4000}});
    table.add({CollectiveKind::all_reduce, false, 4000, {5000, 9000, 4000}});
    table.add({CollectiveKind::all_reduce, true, 400, {5000, 9000, 8000}});
    return table;
  }
  // Whether an all_reduce of that goes by NCCL, with those words in explain_stream().
  void expect_way(std::size_t count, bool by_nccl, const std::string& words, const GpuOptions& options,
                  bool captured = false) const {
    run_nccl_ranks(
        [&] {
          NcclCase other = one;
          other.options = options;
          return other;
        }(),
        [&](GpuRank& rank) {
          NcclSum sum(rank, count);
          sum.fill();
          const GpuStream stream = rank.stream();
          const long before = nccl_operations();
          const std::string why = rank.group.explain_stream(sum.call(), captured);
          if (why.find(words) == std::string::npos) return (void)rank.fail(why);
          if (captured) {
            Graphs graphs(rank);
            const sys::cuda::ReadyGraph graph =
                graphs.capture(stream, [&] { return rank.group.stream_run(sum.call(), stream).is_ok(); });
            if (graph == nullptr || !graphs.launch(graph, stream)) return (void)rank.fail("no graph");
          } else if (!rank.expect(rank.group.stream_run(sum.call(), stream), "a sum")) {
            return;
          }
          if (!rank.synchronize(stream) || !sum.is_right(1, rank.group.size())) return;
          if (is_standin() && (nccl_operations() > before) != by_nccl) (void)rank.fail("it went the other way: " + why);
        });
  }

  std::string folder, key;
  NcclCase one;
};

TEST_F(NcclTable, DecidesWhoDoesAnOperation) {
  FAIRWAY_NEEDS_STANDIN();
  measure();
  write(made().text(key));
  GpuOptions options = one.options;
  expect_way(100, true, "by NCCL 2.28.9, guarded: 400 bytes take 9.0 us by Fairway, 5.0 us by", options);
  expect_way(10, true, "by NCCL", options);  // below the first
  expect_way(1000, false, "by Fairway's kernels: 4000 bytes", options);
  expect_way(500, false, "by Fairway's kernels", options);        // between them, where both must win
  expect_way(100, false, "by Fairway's kernels", options, true);  // in a graph
  options.guarded = false;
  expect_way(500, true, "by NCCL 2.28.9, unguarded", options);
  options.nccl = NcclUse::never;
  expect_way(100, false, "NCCL was not asked for", options);
}

TEST_F(NcclTable, OneThatCannotBeUsedIsIgnored) {
  measure();
  const GpuOptions& options = one.options;
  const std::string good = made().text(key);
  write(good.substr(0, good.size() / 2));
  expect_way(100, false, "cut or damaged", options);
  write("#!/bin/sh\n");
  expect_way(100, false, "no such table", options);
  write(made().text("Fairway 0.0.1; another"));
  expect_way(100, false, "another machine or version (Fairway 0.0.1; another)", options);
  WayTable ours;
  ours.add({CollectiveKind::all_reduce, false, 400, {5000, 9000, 9000}});
  write(ours.text(key));
  expect_way(100, false, "NCCL is nowhere faster", options);
  write(good);
  ASSERT_EQ(::chmod(options.table.c_str(), 0666), 0);
  expect_way(100, false, "others than this user can write it", options);
  ASSERT_EQ(::unlink(options.table.c_str()), 0);
  expect_way(100, false, "there is no table of this machine", options);
}

TEST_F(NcclTable, WithoutNcclThereIsNothingToMeasure) {
  one.options.nccl_library = "/nowhere/libnccl.so.2";
  run_nccl_ranks(one, [](GpuRank& rank) {
    const auto text = rank.group.measure_gpu(512);
    if (text.status().code() != ErrorCode::unsupported || text.status().message().find("/nowhere") == std::string::npos)
      (void)rank.fail(text.status().to_string());
  });
  run_ranks(one, [](GpuRank& rank) {
    if (rank.group.measure_gpu(512).status().message().find("use_gpu") == std::string::npos) (void)rank.fail("no word");
  });
}

TEST_F(NcclTable, AFolderThatCannotBeMadeIsNamed) {
  one.options.table = "/proc/nowhere/table";
  run_nccl_ranks(one, [](GpuRank& rank) {
    const auto text = rank.group.measure_gpu(512);
    if (text || text.status().message().find("/proc/nowhere/table") == std::string::npos)
      (void)rank.fail(text.status().to_string());
  });
}

}  // namespace
}  // namespace fairway
