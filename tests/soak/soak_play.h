#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "soak_engine.h"

namespace fairway::tool::soak {

// How a step ended for who started it, or for who received it.
struct Ended {
  ErrorCode code = ErrorCode::ok;
  Effect effect = Effect::unknown;
  std::optional<Cancelled::Far> far;  // it was cancelled, and that is what cancel() said of the other side
  std::uint64_t bytes = 0, old_value = 0;
  std::uint64_t nanoseconds = 0;  // since it was submitted
  std::string words;              // of an error

  [[nodiscard]] bool ok() const { return code == ErrorCode::ok; }
  // It may have had its effect, or a part of it.
  [[nodiscard]] bool may_have_landed() const {
    return !ok() && effect != Effect::not_applied && far != Cancelled::Far::nothing;
  }
  // Whatever it has done, it does no more.
  [[nodiscard]] bool is_final() const {
    return ok() || effect != Effect::unknown || (far && *far != Cancelled::Far::unknown);
  }
};

using Clock = std::chrono::steady_clock;

// One process's part in a round: starts its steps when they are due, asks for what is sent to it, cancels, and checks
// what can be checked the moment it happens. Owner: one thread.
class Play {
 public:
  Play(Endpoint& endpoint, const Settings& settings, const Round& round);

  Status prepare();  // fills the memories
  void begin();      // the round's time begins
  // Does what is due, and before begin() nothing but see what arrives. False: there was nothing to do.
  bool turn();
  [[nodiscard]] bool over() const { return started_ == mine_.size() && under_way_ == 0 && !takes_back(); }
  // Steps of its own that have not ended, in words: they should have.
  std::string stuck() const;

  // ---- for what is checked at the end ----
  [[nodiscard]] const Round& round() const { return round_; }
  [[nodiscard]] Endpoint& endpoint() const { return endpoint_; }
  const std::optional<Ended>& ended(const Step& step) const { return ended_[step.index]; }
  void hear_of(const Step& step, Ended ended) { ended_[step.index] = std::move(ended); }  // another process's
  // That process was told to be gone, in this round.
  [[nodiscard]] bool knows_gone(unsigned process) const { return gone_[process]; }
  [[nodiscard]] bool touches_taken(const Place& place) const;
  const std::optional<Ended>& received(const Step& step) const { return received_[step.index]; }
  unsigned told(const Step& step) const { return told_[step.index]; }
  std::uint64_t counted(unsigned process) const;  // notifications of that process's, in this round
  void stop_receiving();                          // ends what was asked for and did not come
  [[nodiscard]] bool receives() const { return receiving_ != 0; }
  [[nodiscard]] bool has_asked() const { return asked_ == to_receive_.size(); }  // for all it is to receive
  // A promise that was not kept.
  void wrong(std::string text) { wrong_.push_back(std::move(text)); }
  void wrong(const Step& step, const std::string& text);
  const std::vector<std::string>& all_wrong() const { return wrong_; }

  // What it should have brought, piece by piece: {where in the memory of `to`, the bytes}.
  void each_piece(const Step& step, const std::function<void(std::uint64_t, std::span<const std::byte>)>& call) const;
  // Each byte of the target is as before or as it should become. Empty: so it is; else what it is instead.
  std::string mixture(const Step& step, bool may_be_old, bool may_be_new);
  // After an end: the owner writes there itself, and nothing else may any more.
  void close(const Step& step, bool final);

 private:
  struct Due {
    microseconds at;
    const Step* step;
  };
  bool start_due(microseconds passed);
  bool collect();
  void start(const Step& step);
  Result<TransferId> submit(const Step& step);
  Notify notification_of(const Step& step, std::vector<std::byte>& message) const;
  void receive(const Step& step);
  void cancel(const Step& step);
  void end(const Step& step, const Completion& completion, bool as_receiver);
  void end_own(const Step& step);
  void end_received(const Step& step);
  void hear(const Notification& notification);
  void take_back();
  [[nodiscard]] bool takes_back() const { return take_back_ && !taken_back_; }

  Endpoint& endpoint_;
  const Settings& settings_;
  const Round& round_;
  std::optional<Clock::time_point> begun_;
  std::vector<const Step*> mine_;            // by start
  std::vector<Due> to_receive_, to_cancel_;  // by time; cancels are counted from a step's own start
  std::size_t started_ = 0, asked_ = 0, under_way_ = 0, receiving_ = 0;
  std::vector<TransferId> ids_, receive_ids_;  // by step
  std::vector<Clock::time_point> since_;
  std::vector<std::optional<Ended>> ended_, received_;
  std::vector<std::optional<Cancelled>> cancelled_;
  std::vector<unsigned> told_;
  std::vector<std::uint64_t> counted_before_;  // by process
  std::vector<bool> gone_;                     // by process
  std::vector<std::vector<std::uint64_t>> local_pages_, remote_pages_;
  std::vector<std::string> wrong_;
  std::vector<std::byte> seen_, bytes_;
  bool take_back_ = false, taken_back_ = false;
};

}  // namespace fairway::tool::soak
