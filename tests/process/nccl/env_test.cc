#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "process/nccl/hosts.h"
#include "process/nccl/ring.h"

// What `fairway nccl env` prints, and nothing else that is about a host.
namespace fairway::nccl {
namespace {

using Variables = std::map<std::string, std::string>;

class NcclEnv : public NcclHosts {
 protected:
  void SetUp() override {
    NcclHosts::SetUp();
    ::unsetenv("FAIRWAY_GPU_MEMORY");
    if (IsSkipped()) return;
    // Before the cable, and so of those that NCCL would take first: one that ends in this host, and a container's.
    for (const net::Host& host : *hosts_)
      for (const std::string name : {"ib7", "docker0"}) {
        host.must("ip link add " + name + " type veth peer name in" + name);
        host.must("ip address add 192.168." + std::string(name == "ib7" ? "7" : "8") + ".1/24 dev " + name);
        host.must("ip link set in" + name + " up");
        host.must("ip link set " + name + " up");
      }
  }
  // What a shell of that host exports once it has evaluated the command's output.
  Variables evaluated(int host, const std::string& arguments) {
    const net::Outcome shell = (*hosts_)[static_cast<std::size_t>(host)].run(
        {"sh", "-c", "set -e; out=$(" FAIRWAY_TOOL " nccl env " + arguments + "); eval \"$out\"; env"});
    EXPECT_EQ(shell.status, 0) << shell.output;
    Variables all;
    std::istringstream lines(shell.output);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("FAIRWAY_") || line.starts_with("NCCL_"))
        all[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    return all;
  }
  // Ranks 0 and 1, one on each host, with these variables and those of their launcher.
  void run(const std::array<Variables, 2>& each, const std::string& says_where) {
    Ranks ranks(2, [&](Board& board, int rank) {
      (*hosts_)[static_cast<std::size_t>(rank)].enter();
      for (const auto& [name, value] : each[static_cast<std::size_t>(rank)]) ::setenv(name.c_str(), value.c_str(), 1);
      ::setenv("NCCL_DEBUG", "INFO", 1);  // only then the log has the route
      ring(board, rank, 2, 12, 24);
      if (!says(" by tcp/one/")) throw Failure("not by the cable: " + said());
      if (!says(says_where)) throw Failure("no \"" + says_where + "\": " + said());
    });
    EXPECT_EQ(ranks.outcomes(), "");
  }
};

TEST_F(NcclEnv, OfOneShellIsEnoughForTwoHostsWithEachLauncher) {
  Variables handed_on = evaluated(0, "");
  ASSERT_EQ(handed_on["FAIRWAY_JOB_KEY"].size(), 64u);
  EXPECT_EQ(handed_on.count("FAIRWAY_LISTEN"), 0u) << "each host has its own";
  const auto with = [&](const Variables& launcher) {
    Variables all = handed_on;
    all.insert(launcher.begin(), launcher.end());
    return std::array{all, all};
  };
  run(with({{"MASTER_ADDR", "10.77.1.1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}}),
      "(one, the way to MASTER_ADDR 10.77.1.1)");
  run(with({{"SLURM_LAUNCH_NODE_IPADDR", "10.77.1.1"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
      "(one, the way to SLURM_LAUNCH_NODE_IPADDR 10.77.1.1)");
  run(with({{"OMPI_COMM_WORLD_SIZE", "2"},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
            {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://10.77.1.1,192.168.8.1:4444"}}),
      "(one, the way to mpirun at 10.77.1.1)");
  run(with({{"NCCL_SOCKET_IFNAME", "one"}}), "(one, by NCCL_SOCKET_IFNAME)");
}

TEST_F(NcclEnv, WithAKeyFileIsEnoughOnEachHostByItself) {
  const std::string folder = ::testing::TempDir() + "nccl-key-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const std::string argument = "--key-file " + folder + "/job.key";
  std::array<Variables, 2> each{evaluated(0, argument), evaluated(1, argument)};
  const auto mode = std::filesystem::status(folder + "/job.key").permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  for (Variables& one : each)
    one.insert({{"MASTER_ADDR", "10.77.1.1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}});
  run(each, "(one, the way to MASTER_ADDR 10.77.1.1)");
  std::filesystem::remove_all(folder);
}

TEST_F(NcclEnv, OfTwoShellsHasTwoKeysAndTheRefusalSaysWhatToDo) {
  std::array<Variables, 2> each{evaluated(0, ""), evaluated(1, "")};
  EXPECT_NE(each[0]["FAIRWAY_JOB_KEY"], each[1]["FAIRWAY_JOB_KEY"]);
  Ranks ranks(2, [&](Board& board, int rank) {
    (*hosts_)[static_cast<std::size_t>(rank)].enter();
    for (const auto& [name, value] : each[static_cast<std::size_t>(rank)]) ::setenv(name.c_str(), value.c_str(), 1);
    ::setenv("MASTER_ADDR", "10.77.1.1", 1);
    try {
      ring(board, rank, 2, 12, 1);
      throw std::logic_error("they met");
    } catch (const Failure&) {
      if (said().find("the ranks have different job keys: run `fairway nccl env` once") == std::string::npos) throw;
    }
    // Who leaves first lets the other one be refused too.
    for (++board.arrived[0]; board.arrived[0] < 2;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl
