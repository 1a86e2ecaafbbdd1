#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/host/lanes.h"
#include "collectives/host/reduce.h"
#include "collectives/host/schedule.h"

namespace fairway::collectives {

// Why an operation cannot end well, and whose fault it is. A value.
struct Fault {
  int rank = -1;  // -1: nobody's alone
  Status status = {};
};

// One operation from its start to its end. Owner: a communicator.
class Running {
 public:
  Running(const Collective& call, const Shape& shape, std::uint64_t number, Schedule schedule);

  // After its end: whether that call has the same shape, though not the same memory, perhaps; and the operation once
  // more, for it.
  [[nodiscard]] bool has_shape_of(const Collective& call) const;
  [[nodiscard]] bool has_memory_of(const Collective& call) const {
    return call.input == input_ && call.output == output_;
  }
  [[nodiscard]] bool is_in_place() const { return in_place_; }
  void again(const Collective& call, std::uint64_t number);

  // Much data is sent straight from the caller's memory from here on, if that can be registered and the schedule does
  // not change what it has just sent.
  void send_in_place(Lanes& lanes);
  void enter(Lanes& lanes) const { lanes.enter(header_); }
  // Ends send_in_place(). ok: no transfer refers to the caller's memory.
  Status release(Engine& engine);
  [[nodiscard]] bool is_released() const { return !own_input_.id && !own_output_.id; }
  // Does the steps that can be done now. Ok and blocked on nothing: it has ended.
  Fault advance(Lanes& lanes, Blocked& blocked);

  [[nodiscard]] std::uint64_t number() const { return header_.operation; }
  [[nodiscard]] CollectiveKind kind() const { return header_.kind; }
  [[nodiscard]] std::optional<Timeout> timeout() const { return timeout_; }
  // Its results are there; what it sent may still be on its way.
  [[nodiscard]] bool has_results() const { return next_ == schedule_.steps.size(); }
  [[nodiscard]] std::size_t steps() const { return schedule_.steps.size(); }
  [[nodiscard]] std::size_t step() const { return std::min(next_ + 1, steps()); }
  // As soon as it is so: Collective::local_completion. What is long is not all on its way by then: it settles, as
  // others.
  [[nodiscard]] bool is_local() const { return header_.local != 0; }
  [[nodiscard]] bool settles_at_once() const { return is_local() && call_.count * width_ <= kSettles; }
  [[nodiscard]] std::string phase() const;  // "step 3 of 8"
  Schedule take_schedule() { return std::move(schedule_); }
  // After its end: keeps no more than a little memory.
  void free_much() {
    constexpr std::size_t kMuch = 256U << 10;
    if (scratch_.size() > kMuch) scratch_ = {};
  }

  // When there is something to do about time: to look at the others, twice, then to end.
  [[nodiscard]] Time next_look() const { return looked_twice ? deadline : looked_once ? second_look : first_look; }

  // From when it is its turn.
  Time deadline = Time::max(), first_look = Time::max(), second_look = Time::max();
  Time settled = Time::max();  // has_results(), and its last messages have had time to arrive
  bool begun = false, waited = false, looked_once = false, looked_twice = false;
  bool looks_last = false;  // it has looked around: once more before it ends well

 private:
  Fault go_on(Lanes& lanes, Blocked& blocked);
  Fault send(Lanes& lanes, const Step& step);
  [[nodiscard]] bool changes_what_it_sends() const;
  [[nodiscard]] Slice registered(const Step& step) const;  // what it sends; of no region: it is not registered
  Fault take(Lanes& lanes, const Step& step);
  void local(const Step& step, int size);
  void copy_bytes(const Step& step, const std::byte* from);
  void combine(std::byte* into, const std::byte* a, const std::byte* b, std::size_t bytes) const;
  [[nodiscard]] float* wide_at(Place place) { return reinterpret_cast<float*>(at(place)); }  // in scratch memory
  [[nodiscard]] Fault compare(Lanes& lanes, int peer, const Header& header, const Step& step) const;
  [[nodiscard]] std::byte* at(Place place);

  static constexpr std::uint64_t kSettles = 64U << 10;  // bytes that a connection takes at once

  Header header_;  // of every message
  std::optional<Timeout> timeout_;
  const std::size_t width_;  // bytes of an element
  const CustomReduction custom_;
  double factor_;  // of a premul_sum
  const bool in_place_;
  const Collective call_;  // without its memory, which input_ and output_ are
  std::byte* input_;
  std::byte* output_;
  std::vector<std::byte> scratch_;
  Region own_input_, own_output_;  // registered
  const Combine combine_;
  Schedule schedule_;
  std::size_t next_ = 0;
};

// A call in words: "all_reduce (sum) of 10 f32".
std::string call_text(const Header& header);

}  // namespace fairway::collectives
