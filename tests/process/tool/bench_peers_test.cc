#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "process/tool/ran.h"

// `fairway bench peers`: other tools beside ours, here stand-ins that print what a tool prints.
namespace {

using namespace ran;

TEST(BenchPeers, APathThatIsComparedWithNothingIsNamed) {
  const Ran ran = fairway("bench peers --via tcp,nonsense --size 8");
  EXPECT_EQ(ran.exit, 2);
  EXPECT_NE(ran.out.find("'nonsense' is none of shm, tcp, verbs, fabric:tcp, fabric:shm"), std::string::npos)
      << ran.out;
}

// A row that UCX's variables made is told with them.
TEST(BenchPeers, RowsSayWithWhichVariablesTheToolRan) {
  char folder[] = "/tmp/fairway-ucx-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string tools(folder);
  for (const char* tool : {"sh", "timeout", "env"})
    ASSERT_EQ(std::system(("ln -s \"$(command -v " + std::string(tool) + ")\" " + tools).c_str()), 0);
  std::ofstream(tools + "/ucx_perftest") << "#!/bin/sh\necho '1000 0.1 2.0 2.0 1 1 1 1'\n";
  ASSERT_EQ(std::system(("chmod +x " + tools + "/ucx_perftest").c_str()), 0);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", tools.c_str(), 1);
  ::setenv("UCX_RNDV_THRESH", "8K", 1);
  const Ran ran = fairway("bench peers --tool ucx_perftest --via tcp --size 8 --turns 1 --seconds 0 --sleep");
  ::unsetenv("UCX_RNDV_THRESH");
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(std::system(("rm -r " + tools).c_str()), 0);
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "environment: UCX_TLS=tcp UCX_RNDV_THRESH=8K\n"), 1u) << ran.out;
}

// Nothing is on PATH but an iperf3 that says 8 Gb/s.
TEST(BenchPeers, RowsAreWrittenAsJsonAndCsv) {
  char folder[] = "/tmp/fairway-peers-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string tools(folder);
  for (const char* tool : {"sh", "timeout", "env"})
    ASSERT_EQ(std::system(("ln -s \"$(command -v " + std::string(tool) + ")\" " + tools).c_str()), 0);
  std::ofstream(tools + "/iperf3") << "#!/bin/sh\necho '{\"sum_received\": {\"bits_per_second\": 8e9}}'\n";
  ASSERT_EQ(std::system(("chmod +x " + tools + "/iperf3").c_str()), 0);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", tools.c_str(), 1);
  const Ran ran = fairway("bench peers --via tcp --size 1M --seconds 0 --json - --csv " + tools + "/rows.csv");
  ::setenv("PATH", path.c_str(), 1);
  std::stringstream csv;
  csv << std::ifstream(tools + "/rows.csv").rdbuf();
  EXPECT_EQ(std::system(("rm -r " + tools).c_str()), 0);
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"format\": \"fairway-bench-peers\",\n  \"version\": 1,"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "{\"tool\": \"iperf3\", \"version\": null, \"environment\": null, \"test\": \"-P "), 2u)
      << ran.out;
  EXPECT_EQ(count(ran.out, "\"path\": \"tcp\", \"bytes\": 1048576, \"depth\": 1, \"its_us\": 1048.576, \"ours_us\": "),
            2u)
      << ran.out;
  EXPECT_EQ(count(ran.out, "\"ratio\": 0.0000"), 0u) << ran.out;
  EXPECT_EQ(csv.str().rfind("tool,version,environment,test,path,bytes,depth,its_us,ours_us,ratio,ratio_low,ratio_"
                            "high\niperf3,,,-P 1,tcp,1048576,",
                            0),
            0u)
      << csv.str();
}

}  // namespace
