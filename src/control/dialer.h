#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/sessions.h"

namespace fairway::control {

// The connections that this engine opens: for connect(), and for sessions whose connection broke. Few at a time, and
// after a failure later and later with jitter, so that engines that start together do not trample each other. Control's
// thread.
class Dialer {
 public:
  Dialer(Self& self, Sessions& sessions) : self_(self), sessions_(sessions) {}

  void connect(const std::string& address, std::uint64_t token, Time deadline, Time now);
  void cancel_all(const Status& reason);
  Time step(Time now);

  // Whether this side waits for the other's answer to the same wish, and has the right of way: of two connections that
  // cross, the one dialed by the lower incarnation stays.
  bool crosses(const Identity& peer) const;
  // Whether this side proposed that session to that peer and does not know yet that it was accepted.
  bool proposed(const Identity& peer) const;

  static constexpr std::size_t kMostConnects = 16;
  static constexpr std::size_t kMostResumes = 64;
  static constexpr std::size_t kMostWaiting = 16384;  // connects; beyond it they are queue_full
  static constexpr Time kAttempt = 2 * kSecond;       // for a handshake, while connecting

 private:
  struct Waiter {
    std::uint64_t token;
    Time deadline;
  };
  // One address to reach, from the first try to the session. `resumes` is 0 when it is for connect().
  struct Dial {
    std::string address;
    SessionId resumes = 0;
    std::vector<Waiter> waiters;
    std::unique_ptr<Connection> connection;
    std::optional<Identity> peer;   // learned on this connection
    std::uint64_t wire_id = 0;      // of the session proposed to `proposed_to`; the same for every try
    std::uint64_t proposed_to = 0;  // an incarnation
    Time attempt_ends = kNever;
    Time retry_at = 0;
    std::uint32_t failures = 0;
    Status last_error;
    bool done = false;
  };

  void note_sessions(Time now);
  void drop_obsolete();
  void expire_waiters(Dial& dial, Time now);
  bool may_start(const Dial& dial) const;
  void start(Dial& dial, Time now);
  void advance(Dial& dial, Time now);
  void on_frame(Dial& dial, const Frame& frame, Time now);
  void on_identity(Dial& dial, const Identity& peer, Time now);
  void on_accept(Dial& dial, const Accept& accept, Time now);
  void on_refuse(Dial& dial, const Refuse& refuse, Time now);
  void attempt_failed(Dial& dial, Status why, Time now);
  void finish(Dial& dial, const Result<SessionId>& result);
  Time wake_time(const Dial& dial, Time now) const;

  Self& self_;
  Sessions& sessions_;
  std::vector<std::unique_ptr<Dial>> dials_;
  std::size_t connecting_ = 0;  // with a connection, for connect()
  std::size_t resuming_ = 0;    // with a connection, for a session
};

}  // namespace fairway::control
