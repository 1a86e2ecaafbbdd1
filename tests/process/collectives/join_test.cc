#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include "fairway/collectives.h"

#include "collectives/job/launcher.h"
#include "process/collectives/started.h"

// Ranks find each other by what a launcher says: examples/job.cc, started as people start it.
namespace fairway {
namespace {

using Variables = std::map<std::string, std::string>;

// A name that no other test of this host has.
std::string job_name() {
  static int count = 0;
  return "join_test " + std::to_string(::getpid()) + " " + std::to_string(++count);
}

Started start_rank(int rank, int size, Variables more) {
  more["RANK"] = std::to_string(rank);
  more["WORLD_SIZE"] = std::to_string(size);
  return Started({FAIRWAY_JOB_EXAMPLE}, more);
}

void expect_ranks(std::vector<Started>& ranks) {
  const auto size = static_cast<int>(ranks.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto [status, said] = ranks[static_cast<std::size_t>(rank)].end();
    EXPECT_EQ(status, 0) << said;
    EXPECT_EQ(said, "rank " + std::to_string(rank) + " of " + std::to_string(size) + ": the sum is " +
                        std::to_string(size * (size - 1) / 2) + "\n");
  }
}

std::vector<Started> start_ranks(int size, const Variables& more) {
  std::vector<Started> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(start_rank(rank, size, more));
  return ranks;
}

// Two ranks, by a launcher: what they say may come in any order, and in one line.
void expect_two(const Started::End& end) {
  EXPECT_EQ(end.status, 0) << end.said;
  for (const char* said : {"rank 0 of 2: the sum is 1", "rank 1 of 2: the sum is 1"})
    EXPECT_NE(end.said.find(said), std::string::npos) << end.said;
}

// Waits until a folder says that the process is in it.
bool has_entered(pid_t process) {
  const auto own = collectives::MeetingPlace::usual_base() / ("fairway-" + std::to_string(::geteuid()));
  const std::string begins = std::to_string(process) + " ";
  for (int tries = 0; tries < 1000; ++tries) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(own, ignored)) {
      std::string line;
      std::ifstream file(entry.path());
      if (entry.path().filename().string().starts_with("process-") && std::getline(file, line) &&
          line.starts_with(begins))
        return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST(Join, PlainVariablesOnOneHost) {
  auto ranks = start_ranks(3, {{"FAIRWAY_JOB", job_name()}});
  expect_ranks(ranks);
}

TEST(Join, TwoJobsAtOnceKeepApart) {
  auto one = start_ranks(2, {{"FAIRWAY_JOB", job_name()}});
  auto other = start_ranks(3, {{"FAIRWAY_JOB", job_name()}});
  expect_ranks(one);
  expect_ranks(other);
}

TEST(Join, AtRankNoughtsAddress) {
  const std::string port = std::to_string(20000 + ::getpid() % 10000);
  auto ranks = start_ranks(3, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}, {"FAIRWAY_JOB_KEY", "secret"}});
  expect_ranks(ranks);
}

TEST(Join, AJobThatWasKilledStartsAgain) {
  const Variables job{{"FAIRWAY_JOB", job_name()}};
  {
    std::vector<Started> killed;
    for (int rank = 0; rank < 2; ++rank) killed.push_back(start_rank(rank, 3, job));  // rank 2 never comes
    for (const Started& rank : killed) ASSERT_TRUE(has_entered(rank.process()));
  }
  auto again = start_ranks(3, job);
  expect_ranks(again);
  auto once_more = start_ranks(2, job);
  expect_ranks(once_more);
}

TEST(Join, ASecondProcessOfARankIsTold) {
  const Variables job{{"FAIRWAY_JOB", job_name()}};
  std::vector<Started> ranks;
  ranks.push_back(start_rank(0, 2, job));
  ASSERT_TRUE(has_entered(ranks[0].process()));
  const auto second = start_rank(0, 2, job).end();
  EXPECT_EQ(second.status, 1);
  const std::string told = "process " + std::to_string(ranks[0].process()) + " is rank 0 of this job";
  EXPECT_NE(second.said.find(told), std::string::npos) << second.said;
  ranks.push_back(start_rank(1, 2, job));
  expect_ranks(ranks);
}

TEST(Join, OpenMpisMpirun) {
  if (installed("mpirun.openmpi").empty()) GTEST_SKIP() << "Open MPI is not installed (apt-get install openmpi-bin)";
  Started job({"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", FAIRWAY_JOB_EXAMPLE}, {});
  Started beside({"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", FAIRWAY_JOB_EXAMPLE}, {});
  expect_two(job.end());
  expect_two(beside.end());
}

TEST(Join, MpichsMpiexec) {
  if (installed("mpiexec.mpich").empty()) GTEST_SKIP() << "MPICH is not installed (apt-get install mpich)";
  expect_two(Started({"mpiexec.mpich", "-n", "2", FAIRWAY_JOB_EXAMPLE}, {}).end());
  // Behind a shell of each rank's own.
  expect_two(Started({"mpiexec.mpich", "-n", "2", "sh", "-c", FAIRWAY_JOB_EXAMPLE "; true"}, {}).end());
}

TEST(Join, Torchrun) {
  if (installed("torchrun").empty()) GTEST_SKIP() << "torchrun is not installed (apt-get install python3-torch)";
  expect_two(Started({"torchrun", "-r", "1", "-t", "1", "--standalone", "--nproc_per_node", "2", "--no_python",
                      FAIRWAY_JOB_EXAMPLE},
                     {})
                 .end());
}

TEST(Join, SrunOfARealSlurm) {
  for (const char* program : {"slurmctld", "slurmd", "srun", "unshare", "ip", "python3"})
    if (installed(program).empty() || ::geteuid() != 0)
      GTEST_SKIP() << "needs root and Slurm (apt-get install slurmctld slurmd slurm-client): " << program;
  expect_two(Started({"unshare", "--net", "--uts", "python3", FAIRWAY_SLURM_CLUSTER, FAIRWAY_JOB_EXAMPLE}, {}).end());
}

// ---- hosts and containers, as far as one machine has them ----

// Whether this user may do that, with `unshare`.
bool may_unshare(const std::vector<std::string>& flags) {
  std::vector<std::string> command{"unshare"};
  command.insert(command.end(), flags.begin(), flags.end());
  command.emplace_back("true");
  return !installed("unshare").empty() && Started(command, {}).end().status == 0;
}

// A container for each rank, with one /dev/shm.
TEST(Join, RanksInPidNamespacesOfTheirOwn) {
  const std::vector<std::string> apart{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"};
  if (!may_unshare({apart.begin() + 1, apart.end()})) GTEST_SKIP() << "this user may make no PID namespaces";
  Variables job{{"FAIRWAY_JOB", job_name()}, {"WORLD_SIZE", "3"}};
  std::vector<Started> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    job["RANK"] = std::to_string(rank);
    std::vector<std::string> command = apart;
    command.emplace_back(FAIRWAY_JOB_EXAMPLE);
    ranks.emplace_back(command, job);
    if (rank == 0) {
      ASSERT_TRUE(has_entered(1)) << "of its namespace";
    }
  }
  expect_ranks(ranks);
}

// Runs a script of sh with a network, a host name and files of its own.
Started::End on_a_host_of_its_own(const std::string& script) {
  return Started({"unshare", "--net", "--uts", "--mount", "sh", "-c", script}, {}).end();
}

constexpr const char* kNoHosts = "this user may make no hosts of namespaces, or `ip` is not installed";
bool may_make_hosts() {
  return may_unshare({"--net", "--uts", "--mount"}) && !installed("ip").empty();
}

TEST(Join, OnHostsThatHaveIpv6Alone) {
  if (!may_make_hosts()) GTEST_SKIP() << kNoHosts;
  for (const char* written : {"fd00::7", "[fd00::7]"})
    expect_two(on_a_host_of_its_own(
        "export WORLD_SIZE=2 FAIRWAY_JOB_KEY=secret MASTER_PORT=29700 MASTER_ADDR=" + std::string(written) +
        "; ip link set lo up; ip addr add fd00::7/128 dev lo nodad; ip addr del 127.0.0.1/8 dev lo; "
        "RANK=0 " FAIRWAY_JOB_EXAMPLE " & RANK=1 " FAIRWAY_JOB_EXAMPLE " & wait"));
}

// As Debian installs itself: a host's own name is 127.0.1.1 in its files, and its address for all others.
TEST(Join, WhereRankNoughtsOwnNameIsOfItsLoopback) {
  if (!may_make_hosts()) GTEST_SKIP() << kNoHosts;
  const auto folder = std::filesystem::temp_directory_path() / ("fairway-hosts-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::string script = "ip link set lo up; ip addr add 198.51.100.7/32 dev lo; ";
  for (const auto& [rank, lines] : {std::pair("0", "127.0.1.1 n0\n"), std::pair("1", "198.51.100.7 n0\n")}) {
    const std::string hosts = folder / (std::string("hosts") + rank), host = folder / (std::string("host") + rank);
    std::ofstream(hosts) << lines;
    std::ofstream(host) << "mount --bind " << hosts << " /etc/hosts && hostname n" << rank << " && RANK=" << rank
                        << " WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=29701 FAIRWAY_JOB_KEY=secret exec "
                        << FAIRWAY_JOB_EXAMPLE << '\n';
    script += "unshare --uts --mount sh " + host + " & ";
  }
  const auto end = on_a_host_of_its_own(script + "wait");
  std::filesystem::remove_all(folder);
  expect_two(end);
}

// ---- what this machine's limits are ----

TEST(Join, WithAShortStack) {
  for (int size : {1, 2}) {
    const std::string job = job_name();
    std::vector<Started> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back(
          std::vector<std::string>{"sh", "-c", "ulimit -s 128; exec " FAIRWAY_JOB_EXAMPLE},
          Variables{{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)}, {"FAIRWAY_JOB", job}});
    expect_ranks(ranks);
  }
}

TEST(Join, ALimitOfFilesIsAnError) {
  const std::string job = job_name();
  std::vector<Started> ranks;
  for (const char* rank : {"0", "1"})
    ranks.emplace_back(std::vector<std::string>{"sh", "-c", "ulimit -f 64; exec " FAIRWAY_JOB_EXAMPLE},
                       Variables{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"FAIRWAY_JOB", job}});
  bool named = false;
  for (Started& rank : ranks) {
    const auto end = rank.end();
    EXPECT_EQ(end.status, 1) << end.said;
    const bool own = end.said.find("raise the limit with `ulimit -f`") != std::string::npos;
    EXPECT_TRUE(own || end.said.find("the engine closed") != std::string::npos) << end.said;  // of one that left before
    named |= own;
  }
  EXPECT_TRUE(named);
}

TEST(Join, MoreRanksThanAnEngineHasPeersAreRefused) {
  const auto end = start_rank(0, 1'000'000'000, {{"FAIRWAY_JOB", job_name()}}).end();
  EXPECT_EQ(end.status, 1) << end.said;
  EXPECT_NE(end.said.find("a job of 1000000000 ranks, and an engine has at most 1024 peers: raise "
                          "EngineOptions::max_peers"),
            std::string::npos)
      << end.said;
}

// ---- in this process: a thread and an engine each ----

// Two groups of one job at rank 0's address: the second meets in the directory of the first.
TEST(Join, TwoGroupsOfOneJobAtOneAddress) {
  const std::string port = "MASTER_PORT=" + std::to_string(20000 + (::getpid() + 5000) % 10000);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&port, rank] {
      const std::string own = "RANK=" + std::to_string(rank);
      const char* const environment[] = {own.c_str(),  "WORLD_SIZE=2",           "MASTER_ADDR=127.0.0.1",
                                         port.c_str(), "FAIRWAY_JOB_KEY=secret", nullptr};
      JobOptions options;
      options.environment = environment;
      options.communicator.timeout = std::chrono::seconds(20);
      std::optional<Communicator> first;
      for (const char* name : {"a", "b"}) {
        options.communicator.name = name;
        auto group = Communicator::join(options);
        ASSERT_TRUE(group) << name << ": " << group.status().to_string();
        const Status status = group->run({});
        EXPECT_TRUE(status) << name << ": " << status.to_string();
        if (!first) first.emplace(std::move(*group));
      }
      EXPECT_TRUE(first->run({}));
    });
  for (std::thread& thread : threads) thread.join();
}

Result<Communicator> join_as(const std::string& job, int rank, int size, Timeout timeout = std::chrono::seconds(20),
                             std::stop_token stop = {}) {
  const std::string own = "RANK=" + std::to_string(rank), all = "WORLD_SIZE=" + std::to_string(size);
  const std::string name = "FAIRWAY_JOB=" + job;
  const char* const environment[] = {own.c_str(), all.c_str(), name.c_str(), nullptr};
  JobOptions options;
  options.communicator.timeout = timeout;
  options.environment = environment;
  options.stop = std::move(stop);
  return Communicator::join(options);
}

void as_threads(int size, const std::function<void(Communicator group)>& body) {
  const std::string job = job_name();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto group = join_as(job, rank, size);
      ASSERT_TRUE(group) << group.status().to_string();
      body(std::move(*group));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Join, TheEngineLivesAsLongAsTheLastCommunicator) {
  as_threads(2, [](Communicator group) {
    std::weak_ptr<Engine> engine = group.engine();
    EXPECT_EQ(group.engine()->address(), group.address(group.rank()));
    EXPECT_EQ(group.address(2), "");
    std::optional<Communicator> half;
    {
      Communicator whole = std::move(group);
      auto made = whole.split(0);
      ASSERT_TRUE(made) << made.status().to_string();
      half.emplace(std::move(*made));
    }
    const Status status = half->run({});  // both ranks' first communicator is gone, or goes
    EXPECT_TRUE(status) << status.to_string();
    EXPECT_FALSE(engine.expired());
    half.reset();
    EXPECT_TRUE(engine.expired());
  });
}

TEST(Join, AbsentRanksAreNamed) {
  const auto alone = join_as(job_name(), 0, 3, std::chrono::milliseconds(300));
  EXPECT_EQ(alone.status().code(), ErrorCode::timed_out);
  EXPECT_NE(alone.status().message().find("ranks: 1, 2"), std::string::npos) << alone.status().to_string();
  const auto without_first = join_as(job_name(), 1, 2, std::chrono::milliseconds(300));
  EXPECT_EQ(without_first.status().code(), ErrorCode::timed_out);
  EXPECT_NE(without_first.status().message().find("rank 0 has left no key"), std::string::npos);
}

TEST(Join, ItEndsWhenItIsToldToAndMayBeTriedAgain) {
  const std::string job = job_name();
  std::stop_source stop;
  std::thread later([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request_stop();
  });
  const auto first = join_as(job, 0, 2, std::chrono::minutes(10), stop.get_token());
  later.join();
  EXPECT_EQ(first.status().code(), ErrorCode::cancelled) << first.status().to_string();
  std::thread other([&job] { EXPECT_TRUE(join_as(job, 1, 2)); });
  EXPECT_TRUE(join_as(job, 0, 2));
  other.join();
}

// Rank 0 clears the meeting place when all have joined; another rank may be back before.
TEST(Join, AgainAndAgainUnderOneName) {
  const std::string job = job_name();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&job, rank] {
      for (int round = 0; round < 20; ++round) {
        auto group = join_as(job, rank, 2);
        ASSERT_TRUE(group) << group.status().to_string();
        const Status status = group->run({});
        EXPECT_TRUE(status) << status.to_string();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Join, WhatIsMissingOnSeveralHostsIsNamed) {
  const auto refusal = [](std::vector<const char*> lines) {
    lines.push_back(nullptr);
    JobOptions options;
    options.environment = lines.data();
    const auto group = Communicator::join(options);
    EXPECT_EQ(group.status().code(), ErrorCode::invalid_argument);
    return group.status().message();
  };
  EXPECT_EQ(refusal({"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=192.0.2.1", "MASTER_PORT=4000"}),
            "environment: the ranks are on several hosts: set FAIRWAY_JOB_KEY, the same secret for all");
  EXPECT_EQ(refusal({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1",
                     "OMPI_COMM_WORLD_LOCAL_RANK=0", "FAIRWAY_JOB_KEY=k"}),
            "Open MPI: the ranks are on several hosts: set MASTER_ADDR to that of rank 0");
  JobOptions nameless;
  nameless.communicator.name = "";
  EXPECT_EQ(Communicator::join(nameless).status().message(), "CommunicatorOptions: name: 1 to 200 characters");
}

}  // namespace
}  // namespace fairway
