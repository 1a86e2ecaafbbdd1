#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include <unistd.h>

#include "ranks.h"

// The ranks of a job in C: who they are, how they join, and how one ends it.
namespace c_abi {
namespace {

using RanksPtr = std::unique_ptr<fairway_ranks, Freed<fairway_ranks_free>>;

TEST(CJobs, WhatALauncherSays) {
  const char* const mpi[] = {"OMPI_COMM_WORLD_RANK=2",       "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
                             "OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_ADDR=n",          nullptr};
  fairway_ranks* found = nullptr;
  fairway_error* error = nullptr;
  ASSERT_EQ(FAIRWAY_OK, fairway_detect_ranks(mpi, &found, &error)) << text_of(error);
  const RanksPtr ranks(found);
  EXPECT_EQ(2, ranks->rank);
  EXPECT_EQ(4, ranks->size);
  EXPECT_EQ(0, ranks->local_rank);
  EXPECT_EQ(0, ranks->one_host);
  EXPECT_STREQ("Open MPI", ranks->launcher);
  EXPECT_STREQ("", ranks->job);
  EXPECT_STREQ("n:29511", ranks->master);
  const char* const wrong[] = {"RANK=x", "WORLD_SIZE=2", nullptr};
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_detect_ranks(wrong, &found, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("RANK is no number: 'x'"));
  EXPECT_EQ(nullptr, found);
}

TEST(CJobs, NullAndOtherVersionsAreRefused) {
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_detect_ranks(nullptr, nullptr, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("null"));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_join(nullptr, nullptr, nullptr));
  fairway_communicator_abort(nullptr);
  fairway_ranks_free(nullptr);
  EXPECT_EQ(nullptr, fairway_communicator_address(nullptr, 0));
  fairway_job_options options = {};
  fairway_communicator* made = nullptr;
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_join(&options, &made, nullptr));  // struct_size
}

TEST(CJobs, RanksJoinSplitAndOneEndsIt) {
  const std::string job = "FAIRWAY_JOB=CJobs " + std::to_string(::getpid());
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      const std::string own = "RANK=" + std::to_string(rank);
      const std::array<const char*, 4> lines{own.c_str(), "WORLD_SIZE=3", job.c_str(), nullptr};
      fairway_communicator_options communicator;
      fairway_communicator_options_init(&communicator);
      communicator.timeout_us = 60'000'000;
      fairway_job_options options;
      fairway_job_options_init(&options);
      options.communicator = &communicator;
      options.environment = lines.data();
      fairway_communicator* made = nullptr;
      fairway_error* error = nullptr;
      ASSERT_EQ(FAIRWAY_OK, fairway_communicator_join(&options, &made, &error)) << text_of(error);
      GroupPtr whole(made);
      EXPECT_EQ(rank, fairway_communicator_rank(whole.get()));
      EXPECT_EQ(3, fairway_communicator_size(whole.get()));
      char* address = fairway_communicator_address(whole.get(), rank);
      EXPECT_STREQ(fairway_address(fairway_communicator_engine(whole.get())), address);
      fairway_free(address);
      EXPECT_EQ(nullptr, fairway_communicator_address(whole.get(), 3));
      std::int32_t value = rank;
      run(whole, call_of(FAIRWAY_ALL_REDUCE, &value, &value, 1));
      EXPECT_EQ(3, value);

      ASSERT_EQ(FAIRWAY_OK, fairway_communicator_split(whole.get(), 0, 0, &made, &error)) << text_of(error);
      GroupPtr half(made);
      whole.reset();  // the engine stays
      run(half, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
      std::thread other;
      if (rank == 1)
        other = std::thread([&half] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          fairway_communicator_abort(half.get());
        });
      if (rank != 2) {  // it never comes
        const std::string text = refusal(half, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0), FAIRWAY_CANCELLED);
        EXPECT_EQ(rank != 1, text.find("rank 1") != std::string::npos) << text;
        ++told;
      }
      if (other.joinable()) other.join();
      while (told < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace c_abi
