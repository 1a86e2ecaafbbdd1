#include "collectives/job/launcher.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

// What each launcher's environment says, and what is missing or wrong in it.
namespace fairway::collectives {
namespace {

Whereabouts somewhere() {
  return {[] { return "node1"; }, [] { return "node1"; }, [] { return "session-9"; },
          [](std::string_view name) { return std::string(name) + "-7"; },
          [](const std::string&) { return std::optional<std::string>(); }};
}

struct Said {
  const char* name;
  Environment words;
  int rank, size, local_rank;
  const char* launcher;
  bool one_host;
  const char* job;
  const char* master;
};

TEST(Launcher, EachOnesWordsSayWhoTheRanksAre) {
  const Environment torchrun{
      {"RANK", "5"},        {"WORLD_SIZE", "8"},  {"LOCAL_RANK", "1"},         {"LOCAL_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "n"}, {"MASTER_PORT", "9"}, {"TORCHELASTIC_RUN_ID", "x"}};
  Environment torchrun_here = torchrun;
  torchrun_here["LOCAL_WORLD_SIZE"] = "8";
  torchrun_here["TORCHELASTIC_RESTART_COUNT"] = "2";
  const Environment mpi{{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_NAMESPACE", "12"},
                        {"OMPI_MCA_orte_precondition_transports", "ab-cd"}};
  Environment prrte = mpi;
  prrte.erase("OMPI_MCA_orte_precondition_transports");
  prrte["PMIX_SERVER_TMPDIR"] = "/t";
  prrte["PMIX_SERVER_URI4"] = "u";
  Environment mpi_apart = mpi;
  mpi_apart["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  mpi_apart["MASTER_ADDR"] = "n";
  const Environment slurm{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"},       {"SLURM_STEP_NUM_NODES", "1"},
                          {"SLURM_JOB_ID", "17"},        {"SLURM_STEP_ID", "0"},      {"SLURM_LOCALID", "1"},
                          {"SLURM_CLUSTER_NAME", "c"},   {"SLURM_RESTART_COUNT", "1"}};
  Environment named = slurm;
  named["FAIRWAY_JOB"] = "mine";
  Environment served = slurm;
  served["FAIRWAY_MASTER"] = "n7:70";
  // srun --mpi=pmi2: the plugin's variables stand beside Slurm's own, and MPICH's launcher's do not.
  const Environment pmi2{{"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_JOB_ID", "17"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_STEP_NODELIST", "n[1-2]"},
                         {"PMI_RANK", "1"},
                         {"PMI_SIZE", "2"},
                         {"MASTER_ADDR", "fd00::1"},
                         {"MASTER_PORT", "9"}};
  Environment hydra = pmi2;  // of MPICH, in a job of Slurm
  hydra["MPI_LOCALNRANKS"] = "1";
  hydra["MPI_LOCALRANKID"] = "0";
  const Said all[] = {
      {"Slurm's PMI", pmi2, 1, 2, 0, "Slurm", false, "", "[fd00::1]:9"},
      {"MPICH in Slurm", hydra, 1, 2, 0, "MPICH", false, "", "[fd00::1]:9"},
      {"PMI alone, here",
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"FAIRWAY_JOB", "mine"}},
       0,
       2,
       -1,
       "MPICH",
       true,
       "job-mine",
       ""},
      {"PMI alone, apart",
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "n"}},
       0,
       2,
       -1,
       "MPICH",
       false,
       "",
       "n:29511"},
      {"by hand, IPv6",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "4"}},
       1,
       2,
       -1,
       "environment",
       false,
       "",
       "[fd00::1]:4"},
      {"by hand, IPv6 loopback",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "4"}},
       1,
       2,
       -1,
       "environment",
       true,
       "",
       "[::1]:4"},
      {"by hand", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, 1, 2, -1, "environment", true, "session-9", ""},
      {"by hand, here by name",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4"}},
       1,
       2,
       -1,
       "environment",
       true,
       "",
       "node1:4"},
      {"by hand, loopback",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "4"}},
       1,
       2,
       -1,
       "environment",
       true,
       "",
       "127.0.0.1:4"},
      {"by hand, apart",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node2"}, {"MASTER_PORT", "4"}},
       1,
       2,
       -1,
       "environment",
       false,
       "",
       "node2:4"},
      {"torchrun, apart", torchrun, 5, 8, 1, "torchrun", false, "", "n:10"},
      {"torchrun", torchrun_here, 5, 8, 1, "torchrun", true, "torchrun-x-2-n-9", "n:10"},
      {"Open MPI", mpi, 2, 4, 2, "Open MPI", true, "mpirun-12-ab-cd", ""},
      {"PRRTE", prrte, 2, 4, 2, "Open MPI", true, "mpirun-12-/tu", ""},
      {"Open MPI, apart", mpi_apart, 2, 4, 2, "Open MPI", false, "", "n:29511"},
      {"MPICH",
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}, {"MPI_LOCALRANKID", "0"}},
       0,
       3,
       0,
       "MPICH",
       true,
       "mpich-hydra_pmi_prox-7",
       ""},
      {"MPICH, apart",
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "1"}},
       0,
       3,
       -1,
       "MPICH",
       false,
       "",
       ""},
      {"Slurm", slurm, 3, 4, 1, "Slurm", true, "slurm-c-17.0-1", ""},
      {"a name of the job's own", named, 3, 4, 1, "Slurm", true, "job-mine", ""},
      {"rank 0's address as given", served, 3, 4, 1, "Slurm", true, "", "n7:70"},
      {"Kubernetes",
       {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"HOSTNAME", "job-2"}},
       2,
       3,
       0,
       "Kubernetes",
       false,
       "",
       "job-0:29511"},
      {"Kubernetes, told",
       {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}},
       2,
       3,
       0,
       "Kubernetes",
       false,
       "",
       "a:5"},
      {"Kubernetes, one pod",
       {{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "1"}, {"HOSTNAME", "job-0"}},
       0,
       1,
       0,
       "Kubernetes",
       true,
       "",
       "job-0:29511"},
  };
  for (const Said& said : all) {
    const auto found = detect(said.words, somewhere());
    ASSERT_TRUE(found) << said.name << ": " << found.status().to_string();
    EXPECT_EQ(found->rank, said.rank) << said.name;
    EXPECT_EQ(found->size, said.size) << said.name;
    EXPECT_EQ(found->local_rank, said.local_rank) << said.name;
    EXPECT_EQ(found->launcher, said.launcher) << said.name;
    EXPECT_EQ(found->one_host, said.one_host) << said.name;
    EXPECT_EQ(found->job, said.job) << said.name;
    EXPECT_EQ(found->master, said.master) << said.name;
  }
}

TEST(Launcher, APodsFullNameLeadsToThatOfIndexNought) {
  Whereabouts pod = somewhere();
  pod.full_host_name = [] { return "train-12.workers.space.svc.cluster.local"; };
  const auto found = detect({{"JOB_COMPLETION_INDEX", "12"}, {"WORLD_SIZE", "13"}}, pod);
  ASSERT_TRUE(found) << found.status().to_string();
  EXPECT_EQ(found->master, "train-0.workers.space.svc.cluster.local:29511");
}

TEST(Launcher, TasksOfAStepOnSeveralHostsComputeTheSameAddress) {
  Environment words{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"},
                    {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_JOB_ID", "17"},
                    {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NODELIST", "rack[03-05,9],spare"}};
  const auto third = detect(words, somewhere());
  words["SLURM_PROCID"] = "0";
  const auto first = detect(words, somewhere());
  words["SLURM_STEP_ID"] = "1";
  const auto other = detect(words, somewhere());
  ASSERT_TRUE(third && first && other);
  EXPECT_EQ(third->master, first->master);
  EXPECT_NE(first->master, other->master);
  EXPECT_EQ(first->master.substr(0, 8), "rack03:2");
  EXPECT_EQ(first->master.size(), 12U) << first->master;
  EXPECT_FALSE(first->one_host);
}

TEST(Launcher, SlurmsListsAreHosts) {
  using Hosts = std::vector<std::string>;
  const std::pair<const char*, Hosts> lists[] = {
      {"a", {"a"}},
      {"a,b", {"a", "b"}},
      {"n[1,3]", {"n1", "n3"}},
      {"n[08-11]-ib,x", {"n08-ib", "n09-ib", "n10-ib", "n11-ib", "x"}},
      {"n[7]", {"n7"}},
      {"", {}},
      {"rack[03-05,9],spare", {"rack03", "rack04", "rack05", "rack9", "spare"}},
      {"r[0-1]n[0-1]", {"r0n0", "r0n1", "r1n0", "r1n1"}},
      {"broken[1-2", {"broken1", "broken2"}},
      {"n[x]", {"n0"}}};
  for (const auto& [list, hosts] : lists) EXPECT_EQ(hosts_of(list), hosts) << list;
  EXPECT_EQ(hosts_of("n[1-4000000000]", 2), (Hosts{"n1", "n2"}));
}

Environment slurm_step(const char* nodes, const char* rank) {
  return {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", rank}, {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_JOB_ID", "17"},        {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", nodes}};
}

std::string master_host(const Environment& words, const Whereabouts& whereabouts = somewhere()) {
  const auto found = detect(words, whereabouts);
  return found ? found->master.substr(0, found->master.rfind(':')) : found.status().message();
}

TEST(Launcher, RankNoughtOfAStepMayBeOnAnotherHostThanTheFirst) {
  Environment words = slurm_step("n[1,3]", "1");
  EXPECT_EQ(master_host(words), "n1");
  for (const char* group : {"SLURM_JOB_NODELIST_PACK_GROUP_0", "SLURM_JOB_NODELIST_HET_GROUP_0"}) {
    Environment het = words;
    het[group] = "n3";
    EXPECT_EQ(master_host(het), "n3") << group;
    het[group] = "n[7-8]";
    EXPECT_EQ(master_host(het), "n1") << "a step in another group";
  }
  words["SLURM_DISTRIBUTION"] = "arbitrary";
  words["SLURM_HOSTFILE"] = "/a/file";
  EXPECT_NE(master_host(words).find("SLURM_HOSTFILE (/a/file), which cannot be read here: set FAIRWAY_MASTER"),
            std::string::npos);
  Whereabouts whereabouts = somewhere();
  whereabouts.first_line = [](const std::string& file) {
    return file == "/a/file" ? std::optional("n3,n1") : std::nullopt;
  };
  EXPECT_EQ(master_host(words, whereabouts), "n3");
}

TEST(Launcher, RankNoughtSaysThatItIsNotWhereAllWillLookForIt) {
  Environment words = slurm_step("n[1,3]", "0");
  words["SLURMD_NODENAME"] = "n1";
  EXPECT_EQ(master_host(words), "n1");
  words["SLURMD_NODENAME"] = "n3";
  const std::string told = master_host(words);
  EXPECT_NE(told.find("rank 0 is on n3 and not on n1, the first host of n[1,3]: set FAIRWAY_MASTER=n3:2"),
            std::string::npos)
      << told;
  words["FAIRWAY_MASTER"] = "n3:29000";
  EXPECT_EQ(master_host(words), "n3");
}

TEST(Launcher, APidNamespaceThatHidesTheLauncherIsTold) {
  Whereabouts hidden = somewhere();
  hidden.ancestor = [](std::string_view) { return ""; };
  Environment words{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_NE(detect(words, hidden).status().message().find("set FAIRWAY_JOB"), std::string::npos);
  words["FAIRWAY_JOB"] = "mine";
  EXPECT_EQ(detect(words, hidden)->job, "job-mine");
}

TEST(Launcher, WhatIsMissingOrWrongIsNamed) {
  const std::pair<Environment, const char*> wrong[] = {
      {{}, "set RANK and WORLD_SIZE"},
      {{{"RANK", "1"}}, "the environment has no WORLD_SIZE"},
      {{{"RANK", "x"}, {"WORLD_SIZE", "2"}}, "RANK is no number: 'x'"},
      {{{"RANK", ""}, {"WORLD_SIZE", "2"}}, "RANK is no number: ''"},
      {{{"RANK", "1 "}, {"WORLD_SIZE", "2"}}, "RANK is no number: '1 '"},
      {{{"RANK", "99999999999"}, {"WORLD_SIZE", "2"}}, "RANK is no number"},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is -1"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "environment: rank 2 of 2: there is no such rank"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "rank 0 of 0"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n"}}, "MASTER_ADDR without MASTER_PORT"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "x"}}, "no LOCAL_WORLD_SIZE"},
      {{{"OMPI_COMM_WORLD_RANK", "2"}}, "OMPI_COMM_WORLD_SIZE"},
      {{{"PMI_RANK", "0"}}, "PMI_SIZE"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "nothing says which ranks share a host: set FAIRWAY_JOB"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n"}, {"MASTER_PORT", "65536"}}, "a port is 1 to 65535"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n"}, {"MASTER_PORT", "0"}}, "a port is 1 to 65535"},
      {{{"RANK", "0"},
        {"WORLD_SIZE", "2"},
        {"MASTER_ADDR", "n"},
        {"MASTER_PORT", "65535"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"TORCHELASTIC_RUN_ID", "x"}},
       "a port is 1 to 65534"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"FAIRWAY_MASTER", "n"}}, "FAIRWAY_MASTER is no host:port: 'n'"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "many"}}, "MPI_LOCALNRANKS is no number: 'many'"},
      {{{"SLURM_STEP_NUM_TASKS", "2"}}, "SLURM_PROCID"},
      {{{"JOB_COMPLETION_INDEX", "2"}}, "set WORLD_SIZE to `completions`"},
      {{{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"HOSTNAME", "pod"}}, "this pod's name is pod"},
  };
  for (const auto& [words, complaint] : wrong) {
    const auto found = detect(words, somewhere());
    ASSERT_FALSE(found) << complaint;
    EXPECT_NE(found.status().message().find(complaint), std::string::npos) << found.status().to_string();
    EXPECT_EQ(found.status().code(), words.empty() ? ErrorCode::not_found : ErrorCode::invalid_argument);
  }
}

TEST(Launcher, WhatMpiexecLeavesOutIsNamed) {
  const auto found = detect({{"PMI_ID", "0"}, {"PMI_PORT", "host:1"}}, somewhere());
  EXPECT_EQ(found.status().code(), ErrorCode::not_found);
  EXPECT_NE(found.status().message().find("-pmi-port"), std::string::npos);
}

TEST(Launcher, AnEnvironmentIsLinesOrThisProcesss) {
  const char* const lines[] = {"RANK=1", "EMPTY=", "A=b=c", "nonsense", nullptr};
  const Environment given = environment_of(lines);
  EXPECT_EQ(given, (Environment{{"RANK", "1"}, {"EMPTY", ""}, {"A", "b=c"}}));
  EXPECT_EQ(value_of(given, "A"), "b=c");
  EXPECT_EQ(value_of(given, "B"), "");
  ASSERT_EQ(::setenv("FAIRWAY_LAUNCHER_TEST", "here", 1), 0);
  EXPECT_EQ(value_of(environment_of(nullptr), "FAIRWAY_LAUNCHER_TEST"), "here");
}

TEST(Launcher, AProcessIsKnownByItsIdAndWhenItStarted) {
  const ProcessFacts own = facts_of(::getpid());
  EXPECT_EQ(own.parent, ::getppid());
  EXPECT_NE(own.started, 0U);
  EXPECT_NE(own.state, 'X');
  EXPECT_EQ(facts_of(0x7fffffff).state, 'X');
  const Whereabouts here = of_this_process();
  EXPECT_EQ(here.session(), of_this_process().session());
  const std::string parent = std::to_string(::getppid()) + "-" + std::to_string(facts_of(::getppid()).started);
  const std::string above = here.ancestor("no such name");
  EXPECT_TRUE(above == parent || (above.empty() && process_namespace() != 0xEFFFFFFC)) << above;
  EXPECT_FALSE(here.host_name().empty());
  EXPECT_FALSE(here.full_host_name().empty());
  EXPECT_EQ(own_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_of("127.0.0.1").value(), "127.0.0.1");
  EXPECT_EQ(address_of("127.0.0.1", true).value(), "127.0.0.1") << "as asked";
  EXPECT_EQ(address_of("localhost", true).value().substr(0, 4), "127.");
  EXPECT_EQ(address_of("fd00::1").value(), "[fd00::1]");
  EXPECT_EQ(address_of("[fd00::1]").value(), "[fd00::1]");
}

}  // namespace
}  // namespace fairway::collectives
