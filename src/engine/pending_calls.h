#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "fairway/status.h"

#include "control/control.h"
#include "engine/waiting.h"

namespace fairway::engine {

// Calls of the API that wait for an answer from control's thread, by token. Any thread.
template <class Answer>
class PendingCalls {
 public:
  explicit PendingCalls(Waiting& waiting) : waiting_(waiting) {}

  // Asks by `send(token)` and waits for the answer. `of`: the session that is asked, 0: none. `late`: the result if no
  // answer comes in time.
  template <class Send>
  Result<Answer> ask(control::SessionId of, Time until, const Status& late, Send send) {
    std::uint64_t token = 0;
    {
      const std::lock_guard lock(mutex_);
      token = ++last_;
      calls_[token].of = of;
    }
    const Status sent = send(token);
    if (sent)
      (void)waiting_.wait_until(until, [&] {
        const std::lock_guard lock(mutex_);
        return calls_[token].answer.has_value();
      });
    const std::lock_guard lock(mutex_);
    auto call = calls_.extract(token);
    if (!sent) return sent;
    return call.mapped().answer ? std::move(*call.mapped().answer) : Result<Answer>(late);
  }

  // After these, the caller must call notice(), which wakes the waiting callers. False: nobody waits for that any more,
  // or not for `from` to say it.
  bool answer(control::SessionId from, std::uint64_t token, Result<Answer> answer) {
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(token);
    if (call == calls_.end() || call->second.of != from || call->second.answer) return false;
    call->second.answer = std::move(answer);
    return true;
  }
  void session_ended(control::SessionId session, const Status& why) {
    const std::lock_guard lock(mutex_);
    for (auto& [token, call] : calls_)
      if (call.of == session && !call.answer) call.answer = why;
  }
  void end_all(const Status& why) {
    const std::lock_guard lock(mutex_);
    for (auto& [token, call] : calls_) call.answer = why;
  }

 private:
  struct Call {
    control::SessionId of = 0;
    std::optional<Result<Answer>> answer;
  };
  Waiting& waiting_;
  std::mutex mutex_;  // guards both
  std::map<std::uint64_t, Call> calls_;
  std::uint64_t last_ = 0;
};

}  // namespace fairway::engine
