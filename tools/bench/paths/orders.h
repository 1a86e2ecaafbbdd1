#pragma once

#include <cstdint>

#include "bench/bench.h"

namespace fairway::tool::bench {

inline constexpr std::uint64_t kOrderTag = 1, kAnswerTag = 2, kThereTag = 3, kBackTag = 4;
inline constexpr std::uint32_t kTold = 77;  // the immediate of notifications
inline constexpr Timeout kPatience = std::chrono::seconds(30);

// An order of the measuring process to the other one, and the answer; one message each.
struct Order {
  enum class Kind : std::uint64_t { begin, end, leave } kind = Kind::begin;
  std::uint64_t operation = 0, size = 0, rounds = 0, places = 1, seed = 0;
};
// Whether it keeps within `most` bytes of memory. What it says comes from the other process.
inline bool fits(const Order& order, std::uint64_t most) {
  return order.places > 0 && order.size <= most && (order.size == 0 || order.places <= most / order.size);
}
struct Answer {
  std::uint64_t error = 0;  // an ErrorCode
  std::uint64_t wrong = 0, copied = 0, calls = 0;
  double cpu_seconds = 0;
};

// CPU time of this process and the counters of its transports so far.
Answer spent(const Engine& engine);

// Waits for one transfer: in the kernel, or (hot) by polling without a pause; drops completions of earlier ones.
Status finish(Engine& engine, const Result<TransferId>& id);
Status finish_hot(Engine& engine, const Result<TransferId>& id);
RequestOptions to_poll();
// One transfer with Deliver::to_wait, as a program waits that has nothing else to do: asks, and polls without a pause.
Status finish_spinning(Engine& engine, const Result<TransferId>& id);

EngineOptions engine_options(bool sleeping, const std::vector<std::string>& via, const RdmaOptions& rdma);

}  // namespace fairway::tool::bench
