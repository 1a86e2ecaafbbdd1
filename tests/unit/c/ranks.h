#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fairway_collectives.h"
#include "two_engines.h"

// Ranks as a caller in another language has them: a thread and an engine each, for the tests of collectives in C.
namespace c_abi {

using GroupPtr = std::unique_ptr<fairway_communicator, Freed<fairway_communicator_free>>;

// What a rank does. It may free its communicator: `group` is its.
using RankBody = std::function<void(GroupPtr& group)>;

inline std::vector<EnginePtr> open_engines(int size, fairway_loopback* meeting_place) {
  std::vector<EnginePtr> engines;
  for (int rank = 0; rank < size; ++rank) {
    fairway_options options;
    fairway_options_init(&options);
    options.loopback = meeting_place;
    options.progress = FAIRWAY_PROGRESS_CALLER;
    options.peer_timeout_ms = 120'000;  // ranks of a busy machine are late, not dead
    fairway_engine* opened = nullptr;
    EXPECT_EQ(FAIRWAY_OK, fairway_open(&options, &opened, nullptr));
    engines.emplace_back(opened);
  }
  return engines;
}

// Joins all of `engines` and runs `body` on each.
inline void run_ranks(const std::vector<EnginePtr>& engines, const RankBody& body) {
  std::vector<const char*> addresses;
  for (const EnginePtr& engine : engines) addresses.push_back(fairway_address(engine.get()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < engines.size(); ++rank)
    threads.emplace_back([&, rank] {
      fairway_communicator_options options;
      fairway_communicator_options_init(&options);
      options.timeout_us = 600'000'000;
      fairway_communicator* made = nullptr;
      fairway_error* error = nullptr;
      const fairway_code code = fairway_communicator_create(
          engines[rank].get(), static_cast<int>(rank), addresses.data(), addresses.size(), &options, &made, &error);
      GroupPtr group(made);
      ASSERT_EQ(FAIRWAY_OK, code) << text_of(error);
      body(group);
    });
  for (std::thread& thread : threads) thread.join();
}

inline void run_ranks(int size, const RankBody& body) {
  const LoopbackPtr meeting_place(fairway_loopback_make());
  run_ranks(open_engines(size, meeting_place.get()), body);
}

inline fairway_collective call_of(std::int32_t kind, const void* input, void* output, std::uint64_t count,
                                  std::int32_t type = FAIRWAY_I32) {
  fairway_collective call;
  fairway_collective_init(&call);
  call.kind = kind;
  call.input = input;
  call.output = output;
  call.count = count;
  call.type = type;
  return call;
}

inline void run(const GroupPtr& group, const fairway_collective& call) {
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_OK, fairway_communicator_run(group.get(), &call, &error)) << text_of(error);
}

// The words of the refusal, which must be one.
inline std::string refusal(const GroupPtr& group, const fairway_collective& call, fairway_code code) {
  fairway_error* error = nullptr;
  EXPECT_EQ(code, fairway_communicator_run(group.get(), &call, &error));
  return text_of(error);
}

}  // namespace c_abi
