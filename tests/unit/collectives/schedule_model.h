#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "collectives/host/schedule.h"

namespace fairway::collectives {

// All ranks of one collective, executed step by step in one thread. Elements are 8 bytes, and combining adds: a value
// that is lost, counted twice or multiplied twice, shows. Where the order of ranks counts, combining shows it. Between
// two ranks a message waits until it is received, and so many at most.
class ScheduleModel {
 public:
  // Which rank's step is next.
  enum class Order : std::uint8_t { round_robin, first_that_can, last_that_can, random };

  // `shape` of every rank but for its rank; `blocks` of all_to_allv: counts[from][to].
  // `order`: as of order_of().
  ScheduleModel(Shape shape, std::vector<std::vector<std::size_t>> blocks = {}, std::vector<int> order = {});

  // Runs to the end. Empty: every rank has what the collective promises; else what is wrong.
  std::string run(Order order, std::uint64_t seed, unsigned room);
  [[nodiscard]] std::uint64_t messages() const { return messages_; }

 private:
  struct Rank {
    Shape shape;
    std::vector<std::size_t> send_counts, send_offsets, receive_counts, receive_offsets;
    Schedule schedule;
    std::size_t next = 0;
    std::vector<std::uint64_t> input, output, scratch;
  };
  struct Message {
    std::uint64_t of = 0;
    std::vector<std::uint64_t> values;
  };

  void prepare();
  bool step(int rank, unsigned room);  // false: it has to wait, or has ended
  std::string wrong_step(const Step& step, const Message& message);
  std::uint64_t* at(Rank& rank, Place place, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t value(int rank, std::uint64_t index) const;  // of that rank's input
  [[nodiscard]] std::string compare() const;
  [[nodiscard]] std::string compare_rank(const Rank& rank) const;
  [[nodiscard]] std::vector<std::uint64_t> expected(const Rank& rank) const;
  [[nodiscard]] std::uint64_t sum(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t factor(int rank) const {  // of what it brings to a sum
    return shape_.premul ? 2 * static_cast<std::uint64_t>(rank) + 3 : 1;
  }
  [[nodiscard]] std::uint64_t combined(std::uint64_t a, std::uint64_t b) const {
    return shape_.ordered ? a * 0x9E3779B97F4A7C15U + b : a + b;
  }

  const Shape shape_;
  const std::vector<std::vector<std::size_t>> blocks_;
  const std::vector<int> order_;
  std::vector<Rank> ranks_;
  std::vector<std::deque<Message>> between_;  // [from * size + to]
  std::uint64_t messages_ = 0;
  std::string wrong_;
};

}  // namespace fairway::collectives
