#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "group_plan.h"

namespace fairway::tool::soak::groups {

// What all ranks agree on of one operation. A value.
struct Drawn {
  CollectiveKind kind = CollectiveKind::barrier;
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::size_t count = 0;
  int root = 0;
  bool reproducible = false;
  bool real = false;             // random floating-point numbers; else such whose results are exact in any order
  std::size_t custom_bytes = 0;  // Reduction::custom: of an element
  std::uint64_t salt = 0;        // of its values
};
// Every rank draws the same, since chosen() is the same on all of them.
Drawn draw_call(Draws& draws, const Communicator& group, std::uint64_t largest);

// One rank's part of an operation: its memory, with bytes around it that must stay, and what should be in it
// afterwards. The memory's alignment, and whether output lies in the input's place, are the rank's own matter.
class Call {
 public:
  Call(const Drawn& drawn, int rank, int size);
  Call(const Call&) = delete;
  Call(Call&&) noexcept = default;

  [[nodiscard]] const Collective& collective() const { return call_; }
  // "": every byte is as it should be. For an operation that was ok.
  [[nodiscard]] std::string wrong() const;
  [[nodiscard]] std::uint64_t bytes() const;  // that wrong() compares

 private:
  void place();
  void expect();
  [[nodiscard]] std::string text() const;

  Drawn drawn_;
  int rank_, size_;
  std::size_t width_;
  Collective call_;
  std::vector<std::size_t> send_counts_, send_offsets_, receive_counts_, receive_offsets_;
  std::vector<std::byte> input_, output_, want_input_, want_output_;  // in place: all is in output_
  std::size_t input_at_ = 0, output_at_ = 0;                          // where the operation's memory begins
};

}  // namespace fairway::tool::soak::groups
