#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairway/engine.h"
#include "fairway/status.h"

#include "control/control.h"
#include "core/time.h"
#include "engine/control_message.h"
#include "engine/tables/engine_tables.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// Calls of the API that wait for an answer from control's thread, by token. Any thread.
template <class Answer>
class PendingCalls {
 public:
  static constexpr std::size_t kMostLeft = 256;       // questions that nobody waits for
  static constexpr Time kAnswerHolds = 10 * kSecond;  // for who asks again

  explicit PendingCalls(Waiting& waiting) : waiting_(waiting) {}

  // Asks by `send(token)` and waits for the answer. `of`: the session that is asked, 0: none. `late`: the result if no
  // answer comes in time. `about`: what is asked; who asks that session the same again, because its time was up, waits
  // for the first question's answer, or has it at once. So a caller may wait in slices, however late the answer comes.
  // Empty: each call asks for itself.
  template <class Send>
  Result<Answer> ask(control::SessionId of, Time until, const Status& late, Send send, std::string_view about = {}) {
    std::uint64_t token = 0;
    bool asked = false;
    {
      const std::lock_guard lock(mutex_);
      if (!about.empty()) token = asked_before(of, about);
      asked = token != 0;
      if (!asked) {
        token = ++last_;
        calls_[token].of = of;
        calls_[token].about = about;
      }
      ++calls_[token].waiters;
    }
    const Status sent = asked ? Status() : send(token);
    if (sent)
      (void)waiting_.wait_until(until, [&] {
        const std::lock_guard lock(mutex_);
        return calls_[token].answer.has_value();
      });
    bool others_wait = false;
    const Result<Answer> result = [&] {
      const std::lock_guard lock(mutex_);
      Call& call = calls_[token];
      others_wait = --call.waiters > 0;
      if (!sent) call.answer = sent;
      const Result<Answer> answer = call.answer ? *call.answer : Result<Answer>(late);
      if (!others_wait && (call.answer || call.about.empty())) calls_.erase(token);
      return answer;
    }();
    if (!sent && others_wait) waiting_.notice();  // who joined meanwhile
    return result;
  }

  // After these, the caller must call notice(), which wakes the waiting callers. False: nobody waits for that any more,
  // or not for `from` to say it.
  bool answer(control::SessionId from, std::uint64_t token, Result<Answer> answer) {
    const Time now = waiting_.now();
    const std::lock_guard lock(mutex_);
    const auto call = calls_.find(token);
    if (call == calls_.end() || call->second.of != from || call->second.answer) return false;
    call->second.answer = std::move(answer);
    call->second.answered = now;
    return true;
  }
  void session_ended(control::SessionId session, const Status& why) {
    const std::lock_guard lock(mutex_);
    end_if([&](const Call& call) { return call.of == session; }, why);
  }
  void end_all(const Status& why) {
    const std::lock_guard lock(mutex_);
    end_if([](const Call&) { return true; }, why);
  }

 private:
  struct Call {
    control::SessionId of = 0;
    std::string about;
    std::size_t waiters = 0;
    std::optional<Result<Answer>> answer;
    Time answered = 0;
  };

  // The question that is open, or answered while nobody waited; 0: none. Makes room for another.
  std::uint64_t asked_before(control::SessionId of, std::string_view about) {
    const Time now = waiting_.now();
    std::size_t left = 0;
    std::uint64_t oldest = 0;
    for (auto at = calls_.begin(); at != calls_.end();) {
      const Call& call = at->second;
      const bool stale = call.waiters == 0 && call.answer && now > after(call.answered, kAnswerHolds);
      if (!stale && call.of == of && call.about == about) return at->first;
      if (!stale && call.waiters == 0 && left++ == 0) oldest = at->first;
      at = stale ? calls_.erase(at) : std::next(at);
    }
    if (left >= kMostLeft) calls_.erase(oldest);
    return 0;
  }
  // What was answered before stays, for who waits.
  template <class Test>
  void end_if(const Test& test, const Status& why) {
    for (auto at = calls_.begin(); at != calls_.end();) {
      Call& call = at->second;
      if (test(call) && !call.answer) call.answer = why;
      at = test(call) && call.waiters == 0 ? calls_.erase(at) : std::next(at);
    }
  }

  Waiting& waiting_;
  std::mutex mutex_;  // guards both
  std::map<std::uint64_t, Call> calls_;
  std::uint64_t last_ = 0;
};

// Receives messages of peers' engines that no worker handles. Called on control's thread, or on the thread that ends a
// session.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  // An error ends the session for that reason.
  virtual Status on_message(control::SessionId session, MessageType type, std::span<const std::byte> bytes) = 0;
  virtual void on_session_down(control::SessionId session, const Status& why) = 0;
};

// The sessions with other engines: each becomes a peer of a worker, its messages go to that worker in order. Any
// thread; control calls the Observer part on its own.
class PeerSessions final : public SessionControl, private control::Observer {
 public:
  // Everything given outlives it.
  PeerSessions(EngineTables& tables, const Workers& workers, Waiting& waiting)
      : tables_(tables), workers_(workers), waiting_(waiting) {}

  Status open(SessionListener& listener);  // once the workers run
  void close();                            // ends every session; control calls nothing afterwards
  void end_calls(const Status& why);       // of callers that still wait for control

  // As the calls of Engine: address, connect, disconnect, poll_peer_events, wait_peer_event.
  [[nodiscard]] std::string address() const { return control_->address(); }
  Result<PeerId> connect(std::string_view address, Timeout timeout);
  Status disconnect(PeerId peer);
  std::size_t poll_events(std::span<PeerEvent> events);
  Status wait_event(Timeout timeout);

  [[nodiscard]] std::uint64_t incarnation() { return control_now().incarnation(); }  // of this engine
  Status send(control::SessionId session, std::span<const std::byte> bytes);
  void tell(control::SessionId session, const std::vector<std::byte>& bytes) override;
  void drop(control::SessionId session, const Status& reason) override;

 private:
  void session_up(control::SessionId session, const control::PeerInfo& peer) override;
  void session_down(control::SessionId session, const Status& reason) override;
  void message(control::SessionId session, std::span<const std::byte> bytes) override;
  void connect_done(std::uint64_t token, Result<control::SessionId> session) override;
  void resolve_done(std::uint64_t token, Result<std::string> address) override;
  control::Progress progress() override;
  void beat(control::SessionId session, std::uint64_t steps, Time now) override;

  control::Control& control_now();
  // `target`: "host:port", or a name, which becomes the address that the directory gave.
  Result<control::SessionId> session_with(std::string& target, Time until);
  Status turned_away(control::SessionId session);  // why there is no peer of that session

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
  SessionListener* listener_ = nullptr;  // from open() on
  PendingCalls<control::SessionId> connects_{waiting_};
  PendingCalls<std::string> resolves_{waiting_};
  static constexpr std::size_t kMaxTurnedAway = 64;
  std::mutex mutex_;                                  // guards turned_away_
  std::map<control::SessionId, Status> turned_away_;  // sessions that found no place in `peers`, for their connect()
  std::unique_ptr<control::Control> control_;
  std::atomic<control::Control*> control_now_{nullptr};  // the same, for control's and the workers' threads
  std::atomic<std::uint32_t> opened_{0};                 // 1: it is there
};

}  // namespace fairway::engine
