#include <array>
#include <atomic>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "ranks.h"

// Collectives in C with arguments that are wrong, handles of what has ended, and structs of other versions.
namespace c_abi {
namespace {

TEST(CGroupWrong, NullNeverCrashes) {
  fairway_communicator_free(nullptr);
  fairway_failure_free(nullptr);
  fairway_progress_free(nullptr);
  EXPECT_EQ(-1, fairway_communicator_rank(nullptr));
  EXPECT_EQ(0, fairway_communicator_size(nullptr));
  EXPECT_EQ(nullptr, fairway_communicator_engine(nullptr));
  EXPECT_EQ(nullptr, fairway_communicator_failure(nullptr));
  EXPECT_EQ(1, fairway_communicator_test(nullptr, 1));
  fairway_communicator* made = nullptr;
  std::uint64_t operation = 0;
  std::int32_t algorithm = 0;
  std::uint64_t window = 0;
  char nothing = 0, *text = &nothing;
  char** addresses = nullptr;
  fairway_collective barrier;
  fairway_collective_init(&barrier);
  fairway_error* error = nullptr;
  const auto refused = [&](fairway_code code) {
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, code);
    EXPECT_NE(std::string::npos, text_of(error).find("null"));
    error = nullptr;
  };
  refused(fairway_communicator_create(nullptr, 0, nullptr, 0, nullptr, &made, &error));
  refused(fairway_communicator_split(nullptr, 0, 0, &made, &error));
  refused(fairway_communicator_shrink(nullptr, nullptr, 0, &made, &error));
  refused(fairway_communicator_grow(nullptr, nullptr, 0, nullptr, &made, &error));
  refused(fairway_communicator_run(nullptr, &barrier, &error));
  refused(fairway_communicator_run_all(nullptr, &barrier, 1, &error));
  refused(fairway_communicator_start(nullptr, &barrier, &operation, &error));
  refused(fairway_communicator_wait(nullptr, 1, &error));
  refused(fairway_communicator_chosen(nullptr, &barrier, &algorithm, &error));
  refused(fairway_communicator_send(nullptr, nullptr, 0, 0, 0, 0, &error));
  refused(fairway_communicator_receive(nullptr, nullptr, 0, 0, 0, nullptr, 0, &error));
  refused(fairway_communicator_start_send(nullptr, nullptr, 0, 0, 0, 0, &operation, &error));
  refused(fairway_communicator_start_receive(nullptr, nullptr, 0, 0, 0, 0, &operation, &error));
  refused(fairway_communicator_wait_message(nullptr, 1, nullptr, &error));
  EXPECT_EQ(1, fairway_communicator_test_message(nullptr, 1));
  refused(fairway_communicator_measure(nullptr, 512, 0, &text, &error));
  refused(fairway_communicator_explain(nullptr, &barrier, &text, &error));
  refused(fairway_communicator_use_gpu(nullptr, 0, nullptr, &error));
  refused(fairway_communicator_measure_gpu(nullptr, 512, 0, &text, &error));
  refused(fairway_communicator_explain_stream(nullptr, &barrier, 0, &text, &error));
  refused(fairway_communicator_stream_run(nullptr, &barrier, nullptr, &error));
  refused(fairway_communicator_stream_status(nullptr, &error));
  refused(fairway_communicator_register_window(nullptr, &algorithm, sizeof algorithm, &window, &error));
  refused(fairway_communicator_deregister_window(nullptr, 1, &error));
  refused(fairway_exchange_addresses(nullptr, 0, 1, "a", 0, &addresses, &error));
  refused(fairway_exchange_addresses("/tmp", 0, 1, nullptr, 0, &addresses, &error));
  refused(fairway_exchange_addresses("/tmp", 0, 1, "a", 0, nullptr, &error));
  refused(fairway_progress_of_ranks(0, nullptr, &error));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_run(nullptr, nullptr, nullptr));
  run_ranks(1, [&](GroupPtr& group) {
    refused(fairway_communicator_run(group.get(), nullptr, &error));
    refused(fairway_communicator_run_all(group.get(), nullptr, 2, &error));
    refused(fairway_communicator_start(group.get(), &barrier, nullptr, &error));
    refused(fairway_communicator_stream_run(group.get(), nullptr, nullptr, &error));
    refused(fairway_communicator_measure(group.get(), 512, 0, nullptr, &error));
    refused(fairway_communicator_explain(group.get(), &barrier, nullptr, &error));
    refused(fairway_communicator_measure_gpu(group.get(), 512, 0, nullptr, &error));
    refused(fairway_communicator_explain_stream(group.get(), &barrier, 0, nullptr, &error));
    text = &nothing;
    refused(fairway_communicator_explain_stream(group.get(), nullptr, 0, &text, &error));
    EXPECT_EQ(nullptr, text);
    refused(fairway_communicator_register_window(group.get(), &algorithm, sizeof algorithm, nullptr, &error));
    refused(fairway_communicator_start_send(group.get(), nullptr, 0, 0, 0, 0, nullptr, &error));
    refused(fairway_communicator_split(group.get(), 0, 0, nullptr, &error));
    refused(fairway_communicator_shrink(group.get(), nullptr, 1, &made, &error));
    fairway_communicator_options options;
    fairway_communicator_options_init(&options);
    refused(fairway_communicator_grow(group.get(), nullptr, 1, &options, &made, &error));
    const char* const none = nullptr;
    refused(fairway_communicator_grow(group.get(), &none, 1, &options, &made, &error));
    refused(fairway_communicator_create(fairway_communicator_engine(group.get()), 0, &none, 1, nullptr, &made, &error));
    EXPECT_EQ(nullptr, made);
  });
}

TEST(CGroupWrong, WhatNoEnumHasIsNamedAndHurtsNobody) {
  run_ranks(2, [](GroupPtr& group) {
    std::array<std::int32_t, 4> in{}, out{};
    const auto wrong = [&](const char* word, auto change) {
      fairway_collective call = call_of(FAIRWAY_ALL_REDUCE, in.data(), out.data(), 2);
      change(call);
      const std::string text = refusal(group, call, FAIRWAY_INVALID_ARGUMENT);
      EXPECT_NE(std::string::npos, text.find(word)) << text;
    };
    for (const int value : {-1, 99, 256, INT32_MAX}) {
      wrong("kind", [value](auto& call) { call.kind = value; });
      wrong("type", [value](auto& call) { call.type = value; });
      wrong("reduction", [value](auto& call) { call.reduction = value; });
      wrong("algorithm", [value](auto& call) { call.algorithm = value; });
    }
    wrong("root 2", [](auto& call) { call.kind = FAIRWAY_BROADCAST, call.root = 2; });
    wrong("root -1", [](auto& call) { call.kind = FAIRWAY_REDUCE, call.root = -1; });
    wrong("count", [](auto& call) { call.count = UINT64_MAX; });
    wrong("input is null", [](auto& call) { call.input = nullptr; });
    wrong("output is null", [](auto& call) { call.output = nullptr; });
    wrong("overlap", [&](auto& call) { call.output = in.data() + 1; });
    wrong("custom.combine is null", [](auto& call) { call.reduction = FAIRWAY_CUSTOM, call.element_bytes = 4; });
    wrong("premul_sum is of floating-point types", [](auto& call) { call.reduction = FAIRWAY_PREMUL_SUM; });
    wrong("factor is 2", [](auto& call) { call.factor = 2; });
    wrong("send.counts", [](auto& call) { call.kind = FAIRWAY_ALL_TO_ALLV; });
    wrong("all_reduce has no bruck", [](auto& call) { call.algorithm = FAIRWAY_ALGORITHM_BRUCK; });
    fairway_error* error = nullptr;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_send(group.get(), in.data(), 4, 2, 0, 0, &error));
    EXPECT_NE(std::string::npos, text_of(error).find("rank 2 is not another rank"));
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT,
              fairway_communicator_receive(group.get(), nullptr, 4, 0, 0, nullptr, 0, &error));
    fairway_error_free(error);
    const std::int32_t self = fairway_communicator_rank(group.get());
    fairway_communicator* made = nullptr;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_shrink(group.get(), &self, 1, &made, nullptr));
    EXPECT_EQ(nullptr, made);
    run(group, call_of(FAIRWAY_ALL_REDUCE, in.data(), out.data(), 2));  // nothing of that has ended it
    EXPECT_EQ(nullptr, fairway_communicator_failure(group.get()));
  });
}

TEST(CGroupWrong, StructsOfOtherVersionsAreTakenOrRefusedInWords) {
  const LoopbackPtr meeting_place(fairway_loopback_make());
  const std::vector<EnginePtr> engines = open_engines(1, meeting_place.get());
  const char* const own = "";
  fairway_communicator* made = nullptr;
  fairway_error* error = nullptr;
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, SIZE_MAX}) {
    fairway_communicator_options options;
    fairway_communicator_options_init(&options);
    options.struct_size = size;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT,
              fairway_communicator_create(engines[0].get(), 0, &own, 1, &options, &made, &error));
    EXPECT_NE(std::string::npos, text_of(error).find("struct_size"));
  }
  run_ranks(engines, [&](GroupPtr& group) {
    struct Longer {
      fairway_collective known;
      std::uint64_t added = 0;
    };
    std::array<Longer, 2> longer;
    for (Longer& one : longer) {
      fairway_collective_init(&one.known);
      one.known.struct_size = sizeof one;
    }
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_run_all(group.get(), &longer[0].known, 2, nullptr));
    longer[1].added = 1;
    EXPECT_EQ(FAIRWAY_UNSUPPORTED, fairway_communicator_run_all(group.get(), &longer[0].known, 2, &error));
    const std::string unknown = text_of(error);
    EXPECT_NE(std::string::npos, unknown.find("does not know"));
    EXPECT_NE(std::string::npos, unknown.find("collective 1")) << unknown;
    longer[1].known.struct_size = sizeof(fairway_collective);
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_run_all(group.get(), &longer[0].known, 2, &error));
    EXPECT_NE(std::string::npos, text_of(error).find("different struct_size"));
    for (const std::size_t size : {std::size_t{0}, std::size_t{8}, SIZE_MAX}) {
      fairway_collective call;
      fairway_collective_init(&call);
      call.struct_size = size;
      EXPECT_NE(std::string::npos, refusal(group, call, FAIRWAY_INVALID_ARGUMENT).find("struct_size"));
    }
  });
}

// Each is refused by the rank itself; there may be no GPU here.
TEST(CGroupWrong, GpuOptionsThatCannotBeAreNamed) {
  run_ranks(1, [](GroupPtr& group) {
    fairway_error* error = nullptr;
    const auto refused = [&](fairway_code code, const fairway_gpu_options& options, const char* word) {
      EXPECT_EQ(code, fairway_communicator_use_gpu(group.get(), 0, &options, &error));
      const std::string text = text_of(std::exchange(error, nullptr));
      EXPECT_NE(std::string::npos, text.find(word)) << text;
    };
    struct Longer {
      fairway_gpu_options known;
      std::uint64_t added = 1;
    } longer;
    fairway_gpu_options_init(&longer.known);
    for (const std::int32_t none : {-1, 3, 256, INT32_MIN, INT32_MAX}) {
      longer.known.nccl = none;
      refused(FAIRWAY_INVALID_ARGUMENT, longer.known, ("nccl has no value " + std::to_string(none)).c_str());
    }
    longer.known.nccl = FAIRWAY_NCCL_NEVER;
    for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof longer.known - 1, SIZE_MAX}) {
      longer.known.struct_size = size;
      refused(FAIRWAY_INVALID_ARGUMENT, longer.known, "struct_size");
    }
    longer.known.struct_size = sizeof longer;
    refused(FAIRWAY_UNSUPPORTED, longer.known, "does not know");
    longer.added = 0;  // a newer caller's, who has set nothing that this version lacks
    longer.known.nccl = -1;
    refused(FAIRWAY_INVALID_ARGUMENT, longer.known, "nccl has no value -1");
    EXPECT_EQ(nullptr, fairway_communicator_failure(group.get()));
    run(group, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
  });
}

TEST(CGroupWrong, WithoutAGpuTheTextsSaySo) {
  run_ranks(1, [](GroupPtr& group) {
    fairway_error* error = nullptr;
    char* text = nullptr;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_measure_gpu(group.get(), 512, 0, &text, &error));
    const std::string why = text_of(std::exchange(error, nullptr));
    EXPECT_NE(std::string::npos, why.find("use_gpu")) << why;
    EXPECT_EQ(nullptr, text);
    fairway_collective call = call_of(FAIRWAY_ALL_REDUCE, nullptr, nullptr, 2);
    ASSERT_EQ(FAIRWAY_OK, fairway_communicator_explain_stream(group.get(), &call, 0, &text, &error));
    EXPECT_STREQ("use_gpu() was not called", text);
    fairway_free(text);
    for (const std::int32_t kind : {FAIRWAY_REDUCE, FAIRWAY_GATHER, FAIRWAY_SCATTER, FAIRWAY_ALL_TO_ALLV}) {
      call.kind = kind;
      ASSERT_EQ(FAIRWAY_OK, fairway_communicator_explain_stream(group.get(), &call, 1, &text, &error));
      EXPECT_STREQ("use_gpu() was not called", text) << fairway_collective_name(kind);
      fairway_free(text);
    }
    call.kind = 99;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_communicator_explain_stream(group.get(), &call, 0, &text, &error));
    const std::string kind = text_of(std::exchange(error, nullptr));
    EXPECT_NE(std::string::npos, kind.find("kind has no value 99")) << kind;
    EXPECT_EQ(nullptr, text);
  });
}

TEST(CGroupWrong, OptionsThatCannotBeAreNamed) {
  const LoopbackPtr meeting_place(fairway_loopback_make());
  const std::vector<EnginePtr> engines = open_engines(1, meeting_place.get());
  const char* const own = "";
  const auto wrong = [&](const char* word, int rank, std::size_t count, auto change) {
    fairway_communicator_options options;
    fairway_communicator_options_init(&options);
    change(options);
    fairway_communicator* made = nullptr;
    fairway_error* error = nullptr;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT,
              fairway_communicator_create(engines[0].get(), rank, &own, count, &options, &made, &error));
    const std::string text = text_of(error);
    EXPECT_NE(std::string::npos, text.find(word)) << text;
    EXPECT_EQ(nullptr, made);
  };
  const auto as_it_is = [](auto&) {};
  wrong("rank 1 of 1", 1, 1, as_it_is);
  wrong("rank -1 of 1", -1, 1, as_it_is);
  wrong("rank 0 of 0", 0, 0, as_it_is);
  wrong("name", 0, 1, [](auto& options) { options.name = ""; });
  wrong("timeout", 0, 1, [](auto& options) { options.timeout_us = 0; });
  wrong("slot_bytes", 0, 1, [](auto& options) { options.slot_bytes = 63; });
}

TEST(CGroupWrong, ATimeoutOfNothingHasPassedAndTheDefaultIsTheCommunicators) {
  run_ranks(2, [](GroupPtr& group) {
    const int rank = fairway_communicator_rank(group.get()), other = 1 - rank;
    fairway_collective barrier = call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0);
    EXPECT_EQ(FAIRWAY_OWN_TIMEOUT, barrier.timeout_us);
    run(group, barrier);
    barrier.timeout_us = -1;  // for ever
    run(group, barrier);
    char byte = 0;
    EXPECT_EQ(FAIRWAY_DEADLINE_EXCEEDED, fairway_communicator_send(group.get(), &byte, 1, other, 1, 0, nullptr));
    EXPECT_EQ(FAIRWAY_DEADLINE_EXCEEDED,
              fairway_communicator_receive(group.get(), &byte, 1, other, 1, nullptr, 0, nullptr));
    uint64_t message = 0;
    ASSERT_EQ(FAIRWAY_OK,
              fairway_communicator_start_send(group.get(), &byte, 1, other, 2, FAIRWAY_OWN_TIMEOUT, &message, nullptr));
    char came = 1;
    EXPECT_EQ(FAIRWAY_OK,
              fairway_communicator_receive(group.get(), &came, 1, other, 2, nullptr, FAIRWAY_OWN_TIMEOUT, nullptr));
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_wait_message(group.get(), message, nullptr, nullptr));
    run(group, barrier);
    barrier.timeout_us = 0;
    EXPECT_NE(std::string::npos, refusal(group, barrier, FAIRWAY_DEADLINE_EXCEEDED).find("had passed"));
  });
}

TEST(CGroupWrong, ARankThatIsGoneIsNamedAndItsOperationToo) {
  run_ranks(3, [](GroupPtr& group) {
    run(group, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
    EXPECT_EQ(nullptr, fairway_communicator_failure(group.get()));
    if (fairway_communicator_rank(group.get()) == 1) return group.reset();
    fairway_collective barrier = call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0);
    fairway_error* error = nullptr;
    const fairway_code code = fairway_communicator_run(group.get(), &barrier, &error);
    EXPECT_NE(FAIRWAY_OK, code);
    const std::string text = text_of(error);
    EXPECT_NE(std::string::npos, text.find("rank 1")) << text;
    fairway_failure* why = fairway_communicator_failure(group.get());
    ASSERT_NE(nullptr, why);
    EXPECT_EQ(sizeof *why, why->struct_size);
    EXPECT_EQ(1, why->rank);
    EXPECT_EQ(code, why->code);
    EXPECT_GE(why->operation, 2u);
    EXPECT_NE(nullptr, std::strstr(why->text, "rank 1"));
    EXPECT_NE(nullptr, why->phase);
    fairway_failure_free(why);
    EXPECT_EQ(code, fairway_communicator_run(group.get(), &barrier, nullptr));  // later calls repeat it
    fairway_communicator* rest = nullptr;
    ASSERT_EQ(FAIRWAY_OK, fairway_communicator_shrink(group.get(), nullptr, 0, &rest, &error)) << text_of(error);
    EXPECT_EQ(2, fairway_communicator_size(rest));
    run(GroupPtr(rest), barrier);
  });
}

TEST(CGroupWrong, AnEngineMayEndBeforeItsCommunicators) {
  const LoopbackPtr meeting_place(fairway_loopback_make());
  std::vector<EnginePtr> engines = open_engines(2, meeting_place.get());
  std::array<GroupPtr, 2> groups;
  run_ranks(engines, [&](GroupPtr& group) {
    const auto rank = static_cast<std::size_t>(fairway_communicator_rank(group.get()));
    groups[rank] = std::move(group);
  });
  fairway_close(engines[0].get());
  const fairway_collective barrier = call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0);
  EXPECT_NE("", refusal(groups[0], barrier, FAIRWAY_CLOSED));
  engines.clear();
  EXPECT_NE(FAIRWAY_OK, fairway_communicator_run(groups[1].get(), &barrier, nullptr));
  EXPECT_EQ(2, fairway_communicator_size(groups[1].get()));
  EXPECT_STRNE("", fairway_address(fairway_communicator_engine(groups[1].get())));
}

TEST(CGroupWrong, AddressesAreExchangedInAFolder) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("fairway-c-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto exchange = [&](int rank, int size, const char* address, char*** out, fairway_error** error) {
    return fairway_exchange_addresses(folder.c_str(), rank, size, address, 50'000, out, error);
  };
  char** found = nullptr;
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_TIMED_OUT, exchange(0, 2, "here:1", &found, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("1"));
  EXPECT_EQ(nullptr, found);
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, exchange(2, 2, "here:3", &found, &error));
  fairway_error_free(error);
  ASSERT_EQ(FAIRWAY_OK, exchange(1, 2, "there:22", &found, nullptr));
  EXPECT_STREQ("here:1", found[0]);
  EXPECT_STREQ("there:22", found[1]);
  EXPECT_EQ(nullptr, found[2]);
  fairway_free(found);
  std::filesystem::remove_all(folder);
}

TEST(CGroupWrong, WhoHangsIsTold) {
  std::atomic<bool> told{false};
  run_ranks(2, [&](GroupPtr& group) {
    run(group, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
    if (fairway_communicator_rank(group.get()) == 0) {
      run(group, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
      return;
    }
    const std::string own = std::to_string(::getpid());
    for (int i = 0; i < 20'000 && !told; ++i) {
      fairway_progress* progress = nullptr;
      ASSERT_EQ(FAIRWAY_OK, fairway_progress_of_ranks(0, &progress, nullptr));
      bool waits = false;
      for (std::size_t k = 0; k < progress->rank_count; ++k) {
        const fairway_rank_progress& rank = progress->ranks[k];
        if (rank.process != static_cast<std::uint64_t>(::getpid())) continue;
        EXPECT_STREQ("world", rank.name);
        EXPECT_EQ(2, rank.size);
        EXPECT_EQ(1, rank.lives);
        waits = waits || (rank.rank == 0 && rank.inside == 1 && rank.kind == FAIRWAY_BARRIER && rank.waits_for == 1);
      }
      // Beside those of other programs; rank 0 may still be in the barrier before.
      for (std::size_t k = 0; k < progress->hang_count && waits; ++k)
        told = told || std::strstr(progress->hangs[k], "rank 1 never entered barrier") != nullptr;
      fairway_progress_free(progress);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(told);
    run(group, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
  });
}

}  // namespace
}  // namespace c_abi
