#include "fairway/collectives.h"

#include <array>
#include <atomic>
#include <numeric>
#include <thread>

#include "ranks.h"

// Collectives in C: every call once with right values, ranks that go and come, and the names of all values.
namespace c_abi {
namespace {

using Values = std::vector<std::int32_t>;

TEST(CGroup, ValuesAreTheCppOnes) {
  for (int type = 0; type <= FAIRWAY_F8E5M2; ++type) {
    EXPECT_EQ(to_string(static_cast<fairway::DataType>(type)), fairway_type_name(type));
    EXPECT_EQ(size_of(static_cast<fairway::DataType>(type)), fairway_type_size(type));
  }
  for (int one = 0; one <= FAIRWAY_PREMUL_SUM; ++one)
    EXPECT_EQ(to_string(static_cast<fairway::Reduction>(one)), fairway_reduction_name(one));
  for (int kind = 0; kind <= FAIRWAY_ALL_TO_ALLV; ++kind)
    EXPECT_EQ(to_string(static_cast<fairway::CollectiveKind>(kind)), fairway_collective_name(kind));
  for (int one = 0; one <= FAIRWAY_ALGORITHM_HIERARCHICAL; ++one)
    EXPECT_EQ(to_string(static_cast<fairway::Algorithm>(one)), fairway_algorithm_name(one));
  EXPECT_STREQ("bf16", fairway_type_name(FAIRWAY_BF16));
  EXPECT_STREQ("f8e5m2", fairway_type_name(FAIRWAY_F8E5M2));
  EXPECT_STREQ("custom", fairway_reduction_name(FAIRWAY_CUSTOM));
  EXPECT_STREQ("premul_sum", fairway_reduction_name(FAIRWAY_PREMUL_SUM));
  EXPECT_STREQ("all_to_allv", fairway_collective_name(FAIRWAY_ALL_TO_ALLV));
  EXPECT_STREQ("hierarchical", fairway_algorithm_name(FAIRWAY_ALGORITHM_HIERARCHICAL));
  for (const int none : {-1, 14, 1000}) {
    EXPECT_STREQ("unknown", fairway_type_name(none));
    EXPECT_EQ(0u, fairway_type_size(none));
    EXPECT_STREQ("unknown", fairway_reduction_name(none));
    EXPECT_STREQ("unknown", fairway_collective_name(none));
    EXPECT_STREQ("unknown", fairway_algorithm_name(none));
  }
}

TEST(CGroup, GpuOptionsHaveTheCppDefaults) {
  fairway_gpu_options options;
  fairway_gpu_options_init(&options);
  const fairway::GpuOptions expected;
  EXPECT_EQ(sizeof options, options.struct_size);
  EXPECT_EQ(static_cast<int>(expected.nccl), options.nccl);
  EXPECT_EQ(expected.guarded, options.guarded != 0);
  EXPECT_EQ(expected.windows_from, options.windows_from);
  EXPECT_EQ(expected.meet_from, options.meet_from);
  EXPECT_EQ(expected.messages, options.messages != 0);
  EXPECT_EQ(expected.graphs_in_turn, options.graphs_in_turn != 0);
  EXPECT_EQ(nullptr, options.nccl_library);
  EXPECT_EQ(nullptr, options.table);
}

// Rank r has 100 r, 100 r + 1 and so on.
TEST(CGroup, EveryKindMovesItsBlocks) {
  run_ranks(3, [](GroupPtr& group) {
    const int rank = fairway_communicator_rank(group.get());
    ASSERT_EQ(3, fairway_communicator_size(group.get()));
    Values in(6), out(6, -1);
    std::iota(in.begin(), in.end(), 100 * rank);
    const auto is = [&](std::initializer_list<int> want) { EXPECT_EQ(Values(want), out) << "rank " << rank; };
    const auto play = [&](int kind, std::uint64_t count, int root = 0) {
      out.assign(6, -1);
      fairway_collective call = call_of(kind, in.data(), out.data(), count);
      call.root = root;
      run(group, call);
    };
    play(FAIRWAY_BARRIER, 0);
    is({-1, -1, -1, -1, -1, -1});
    play(FAIRWAY_ALL_REDUCE, 2);
    is({300, 303, -1, -1, -1, -1});
    play(FAIRWAY_REDUCE, 2, 1);
    if (rank == 1) is({300, 303, -1, -1, -1, -1});
    play(FAIRWAY_BROADCAST, 2, 2);
    is({200, 201, -1, -1, -1, -1});
    play(FAIRWAY_ALL_GATHER, 2);
    is({0, 1, 100, 101, 200, 201});
    play(FAIRWAY_GATHER, 2, 2);
    if (rank == 2) is({0, 1, 100, 101, 200, 201});
    play(FAIRWAY_SCATTER, 2, 1);
    is({100 + 2 * rank, 101 + 2 * rank, -1, -1, -1, -1});
    play(FAIRWAY_REDUCE_SCATTER, 2);
    is({300 + 6 * rank, 303 + 6 * rank, -1, -1, -1, -1});
    play(FAIRWAY_ALL_TO_ALL, 2);
    is({2 * rank, 2 * rank + 1, 100 + 2 * rank, 101 + 2 * rank, 200 + 2 * rank, 201 + 2 * rank});

    // Every rank sends one to rank 0, two to rank 1 and three to rank 2.
    const std::array<std::size_t, 3> counts{1, 2, 3}, from{0, 1, 3};
    const auto own = static_cast<std::size_t>(rank + 1);
    const std::array<std::size_t, 3> come{own, own, own}, to{0, own, 2 * own};
    Values mixed(9, -1), want(9, -1);
    fairway_collective call = call_of(FAIRWAY_ALL_TO_ALLV, in.data(), mixed.data(), 0);
    call.send_counts = counts.data();
    call.send_offsets = from.data();
    call.receive_counts = come.data();
    call.receive_offsets = to.data();
    run(group, call);
    for (std::size_t block = 0; block < 3; ++block)
      for (std::size_t i = 0; i < own; ++i)
        want[block * own + i] = static_cast<int>(100 * block + from[static_cast<std::size_t>(rank)] + i);
    EXPECT_EQ(want, mixed) << "rank " << rank;
  });
}

// Appends its digits: not commutative, so only the order of ranks gives this.
void append(void* into, const void* a, const void* b, std::size_t count, void* context) {
  static_cast<std::atomic<int>*>(context)->fetch_add(1);
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t left = 0, right = 0;
    std::memcpy(&left, static_cast<const char*>(a) + 4 * i, 4);
    std::memcpy(&right, static_cast<const char*>(b) + 4 * i, 4);
    const std::int32_t both = left * (right < 10 ? 10 : right < 100 ? 100 : 1000) + right;
    std::memcpy(static_cast<char*>(into) + 4 * i, &both, 4);
  }
}

TEST(CGroup, TheCallersReductionGetsItsContext) {
  std::atomic<int> calls{0};
  run_ranks(3, [&](GroupPtr& group) {
    std::int32_t value = fairway_communicator_rank(group.get()) + 1;
    fairway_collective call = call_of(FAIRWAY_ALL_REDUCE, &value, &value, 1);
    call.reduction = FAIRWAY_CUSTOM;
    call.reproducible = 1;
    call.combine = append;
    call.combine_context = &calls;
    call.element_bytes = 4;
    run(group, call);
    EXPECT_EQ(123, value);
  });
  EXPECT_GE(calls.load(), 6);
}

TEST(CGroup, EachRanksInputIsMultipliedByItsFactor) {
  run_ranks(3, [](GroupPtr& group) {
    const int rank = fairway_communicator_rank(group.get());
    std::array<double, 2> in{1, 10}, out{};
    fairway_collective call = call_of(FAIRWAY_ALL_REDUCE, in.data(), out.data(), 2);
    EXPECT_EQ(1, call.factor);
    call.type = FAIRWAY_F64;
    call.reduction = FAIRWAY_PREMUL_SUM;
    call.factor = rank == 0 ? 0.5 : rank;
    run(group, call);
    EXPECT_EQ((std::array<double, 2>{3.5, 35}), out);
    EXPECT_EQ((std::array<double, 2>{1, 10}), in);
    call.reduction = FAIRWAY_SUM;
    call.factor = 0;  // of a struct that was zeroed
    run(group, call);
    EXPECT_EQ((std::array<double, 2>{3, 30}), out);
  });
}

TEST(CGroup, OperationsAreStartedTestedAndWaitedFor) {
  run_ranks(2, [](GroupPtr& group) {
    std::array<Values, 8> values;
    std::array<std::uint64_t, 8> ids{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i].assign(1000, static_cast<int>(i) + fairway_communicator_rank(group.get()));
      fairway_collective call = call_of(FAIRWAY_ALL_REDUCE, values[i].data(), values[i].data(), 1000);
      call.algorithm = i % 2 == 0 ? FAIRWAY_ALGORITHM_RING : FAIRWAY_ALGORITHM_AUTOMATIC;
      ASSERT_EQ(FAIRWAY_OK, fairway_communicator_start(group.get(), &call, &ids[i], nullptr));
      EXPECT_EQ(ids[0] + i, ids[i]);
    }
    while (fairway_communicator_test(group.get(), ids[7]) == 0) std::this_thread::yield();
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(1, fairway_communicator_test(group.get(), ids[i]));
      EXPECT_EQ(FAIRWAY_OK, fairway_communicator_wait(group.get(), ids[i], nullptr));
      EXPECT_EQ(Values(1000, 2 * static_cast<int>(i) + 1), values[i]);
    }
    fairway_error* error = nullptr;
    EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_communicator_wait(group.get(), ids[0], &error));
    EXPECT_NE(std::string::npos, text_of(error).find("collected before"));
  });
}

TEST(CGroup, AGroupOfCallsIsAsOneAfterTheOther) {
  run_ranks(2, [](GroupPtr& group) {
    Values small(3, 1), more(4, 2), large(40'000, 3);
    const std::array<fairway_collective, 4> calls{call_of(FAIRWAY_ALL_REDUCE, small.data(), small.data(), 3),
                                                  call_of(FAIRWAY_ALL_REDUCE, more.data(), more.data(), 4),
                                                  call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0),
                                                  call_of(FAIRWAY_ALL_REDUCE, large.data(), large.data(), 40'000)};
    fairway_error* error = nullptr;
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_run_all(group.get(), calls.data(), calls.size(), &error))
        << text_of(error);
    EXPECT_EQ(Values(3, 2), small);
    EXPECT_EQ(Values(4, 4), more);
    EXPECT_EQ(Values(40'000, 6), large);
    std::int32_t taken = -1;
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_chosen(group.get(), &calls[0], &taken, nullptr));
    EXPECT_EQ(FAIRWAY_ALGORITHM_ONE_SHOT, taken);
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_run_all(group.get(), nullptr, 0, nullptr));
  });
}

TEST(CGroup, MessagesGoByRankAndTag) {
  run_ranks(2, [](GroupPtr& group) {
    std::array<char, 6> text{"hello"};
    if (fairway_communicator_rank(group.get()) == 0) {
      EXPECT_EQ(FAIRWAY_OK, fairway_communicator_send(group.get(), text.data(), 6, 1, 5, FAIRWAY_OWN_TIMEOUT, nullptr));
      EXPECT_EQ(FAIRWAY_OK, fairway_communicator_send(group.get(), nullptr, 0, 1, 6, FAIRWAY_OWN_TIMEOUT, nullptr));
      return;
    }
    std::array<char, 10> got{};
    std::size_t bytes = 99;
    EXPECT_EQ(FAIRWAY_OK,
              fairway_communicator_receive(group.get(), got.data(), 10, 0, 5, &bytes, FAIRWAY_OWN_TIMEOUT, nullptr));
    EXPECT_EQ(6u, bytes);
    EXPECT_STREQ("hello", got.data());
    EXPECT_EQ(FAIRWAY_OK,
              fairway_communicator_receive(group.get(), nullptr, 0, 0, 6, nullptr, FAIRWAY_OWN_TIMEOUT, nullptr));
    fairway_error* error = nullptr;
    EXPECT_EQ(FAIRWAY_DEADLINE_EXCEEDED,
              fairway_communicator_receive(group.get(), got.data(), 10, 0, 7, nullptr, 1000, &error));
    EXPECT_NE(std::string::npos, text_of(error).find("receive from rank 0"));
  });
}

TEST(CGroup, MessagesAreStartedTogetherAndWaitedForInAnyOrder) {
  run_ranks(2, [](GroupPtr& group) {
    const std::int32_t me = fairway_communicator_rank(group.get()), other = 1 - me;
    const Values mine(50'000, me);
    Values theirs(50'000, -1);
    std::uint64_t out = 0, in = 0;
    fairway_error* error = nullptr;
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_start_send(group.get(), mine.data(), 200'000, other, 3,
                                                          FAIRWAY_OWN_TIMEOUT, &out, &error));
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_start_receive(group.get(), theirs.data(), 200'000, other, 3,
                                                             FAIRWAY_OWN_TIMEOUT, &in, &error));
    std::size_t bytes = 0;
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_wait_message(group.get(), in, &bytes, &error)) << text_of(error);
    EXPECT_EQ(200'000u, bytes);
    EXPECT_EQ(other, theirs.back());
    while (fairway_communicator_test_message(group.get(), out) == 0) std::this_thread::yield();
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_wait_message(group.get(), out, nullptr, &error)) << text_of(error);
    EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_communicator_wait_message(group.get(), out, nullptr, nullptr));
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT,
              fairway_communicator_start_send(group.get(), mine.data(), 4, me, 3, FAIRWAY_OWN_TIMEOUT, &out, nullptr));
    EXPECT_EQ(0u, out);
  });
}

TEST(CGroup, SplitsShrinksAndGrows) {
  const LoopbackPtr meeting_place(fairway_loopback_make());
  const std::vector<EnginePtr> engines = open_engines(3, meeting_place.get()),
                               later = open_engines(1, meeting_place.get());
  std::vector<const char*> all;
  for (const EnginePtr& engine : engines) all.push_back(fairway_address(engine.get()));
  const char* const added = fairway_address(later[0].get());
  all.push_back(added);
  fairway_communicator_options options;
  fairway_communicator_options_init(&options);
  options.name = "larger";
  options.timeout_us = 600'000'000;
  const auto sum_is = [](const GroupPtr& group, std::int32_t want) {
    std::int32_t one = 1;
    run(group, call_of(FAIRWAY_ALL_REDUCE, &one, &one, 1));
    EXPECT_EQ(want, one);
  };
  std::thread joins([&] {
    fairway_communicator* made = nullptr;
    EXPECT_EQ(FAIRWAY_OK, fairway_communicator_create(later[0].get(), 3, all.data(), 4, &options, &made, nullptr));
    const GroupPtr larger(made);
    sum_is(larger, 4);
  });
  run_ranks(engines, [&](GroupPtr& group) {
    const int rank = fairway_communicator_rank(group.get());
    fairway_communicator* made = nullptr;
    fairway_error* error = nullptr;
    const fairway_code code = fairway_communicator_split(group.get(), rank == 1 ? -1 : 7, -rank, &made, &error);
    if (rank == 1) {
      EXPECT_EQ(FAIRWAY_NOT_FOUND, code);
      EXPECT_EQ(nullptr, made);
      fairway_error_free(error);
    } else {
      ASSERT_EQ(FAIRWAY_OK, code) << text_of(error);
      const GroupPtr part(made);
      EXPECT_EQ(rank == 2 ? 0 : 1, fairway_communicator_rank(part.get()));  // by the key
      EXPECT_EQ(fairway_communicator_engine(group.get()), fairway_communicator_engine(part.get()));
      sum_is(part, 2);
    }
    ASSERT_EQ(FAIRWAY_OK, fairway_communicator_grow(group.get(), &added, 1, &options, &made, &error)) << text_of(error);
    const GroupPtr larger(made);
    EXPECT_EQ(4, fairway_communicator_size(larger.get()));
    sum_is(larger, 4);
    sum_is(group, 3);
    if (rank == 2) return;
    const std::int32_t without = 2;
    ASSERT_EQ(FAIRWAY_OK, fairway_communicator_shrink(group.get(), &without, 1, &made, &error)) << text_of(error);
    const GroupPtr rest(made);
    EXPECT_EQ(2, fairway_communicator_size(rest.get()));
    sum_is(rest, 2);
  });
  joins.join();
}

// The others come once the root has ended its call.
TEST(CGroup, ARootWithLocalCompletionWaitsForNobody) {
  std::atomic<bool> sent{false};
  run_ranks(2, [&](GroupPtr& group) {
    const bool root = fairway_communicator_rank(group.get()) == 0;
    std::int32_t value = root ? 5 : 0;
    fairway_collective call = call_of(FAIRWAY_BROADCAST, &value, &value, 1);
    call.local_completion = 1;
    run(group, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
    while (!root && !sent) std::this_thread::yield();
    run(group, call);
    if (root) sent = true;
    EXPECT_EQ(5, value);
    run(group, call_of(FAIRWAY_BARRIER, nullptr, nullptr, 0));
  });
}

TEST(CGroup, AnAlgorithmIsExplainedAndOneRankMeasuresNothing) {
  run_ranks(1, [](GroupPtr& group) {
    char* text = nullptr;
    fairway_error* error = nullptr;
    std::int32_t value = 0;
    fairway_collective call = call_of(FAIRWAY_ALL_REDUCE, &value, &value, 1);
    call.algorithm = FAIRWAY_ALGORITHM_RING;
    ASSERT_EQ(FAIRWAY_OK, fairway_communicator_explain(group.get(), &call, &text, &error)) << text_of(error);
    EXPECT_STREQ("all_reduce of 4 bytes: by ring: the call names it", text);
    fairway_free(text);
    EXPECT_EQ(FAIRWAY_UNSUPPORTED, fairway_communicator_measure(group.get(), 8, 0, &text, &error));
    EXPECT_EQ(nullptr, text);
    EXPECT_NE(std::string::npos, text_of(error).find("there is one rank"));
  });
}

}  // namespace
}  // namespace c_abi
