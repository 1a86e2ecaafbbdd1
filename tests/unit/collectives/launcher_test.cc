#include "collectives/launcher.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

// What each launcher's environment says, and what is missing or wrong in it.
namespace fairway::collectives {
namespace {

Whereabouts somewhere() {
  return {[] { return "node1"; }, [] { return "node1"; }, [] { return "session-9"; },
          [](std::string_view name) { return std::string(name) + "-7"; }};
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
  const Said all[] = {
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

TEST(Launcher, SlurmsListsBeginWithAHost) {
  const std::pair<const char*, const char*> lists[] = {{"a", "a"},
                                                       {"a,b", "a"},
                                                       {"n[1,3]", "n1"},
                                                       {"n[08-11]-ib,x", "n08-ib"},
                                                       {"n[7]", "n7"},
                                                       {"", ""},
                                                       {"rack[03-05,9],spare", "rack03"},
                                                       {"broken[1-2", "broken1"}};
  for (const auto& [list, first] : lists) EXPECT_EQ(first_host(list), first) << list;
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
  EXPECT_EQ(here.ancestor("no such name"),
            std::to_string(::getppid()) + "-" + std::to_string(facts_of(::getppid()).started));
  EXPECT_FALSE(here.host_name().empty());
  EXPECT_FALSE(here.full_host_name().empty());
  EXPECT_EQ(own_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_of("127.0.0.1").value(), "127.0.0.1");
}

}  // namespace
}  // namespace fairway::collectives
