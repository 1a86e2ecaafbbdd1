#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/session.h"

namespace fairway::control {

// Opens this engine's outgoing connections: for connect(), and for sessions whose connection broke. It limits how many
// run at once, and backs off exponentially with jitter after a failure, so that engines that start together do not
// overload each other. Runs on the control thread.
class Dialer {
 public:
  Dialer(ControlContext& context, Sessions& sessions) : context_(context), sessions_(sessions) {}

  void connect(const std::string& address, std::uint64_t token, Time deadline, Time now);
  void cancel_all(const Status& reason);
  Time step(Time now);

  // Simultaneous open: both sides dialed each other. True when this side's own connection wins; the connection dialed
  // by the lower incarnation is kept.
  bool wins_simultaneous_open(const Identity& peer) const;
  // Whether this side proposed that session to that peer and has not read its acceptance yet.
  bool has_proposed(const Identity& peer) const;

  static constexpr std::size_t kMaxConnects = 16;
  static constexpr std::size_t kMaxResumes = 64;
  static constexpr std::size_t kMaxWaiting = 16384;       // calls of connect(); further ones fail with queue_full
  static constexpr Time kHandshakeTimeout = 2 * kSecond;  // time limit of one handshake, while connecting

 private:
  struct Waiter {
    std::uint64_t token;
    Time deadline;
  };
  // One address to reach, from the first attempt to the session. `resumes` is 0 when connect() asked for it.
  struct Dial {
    std::string address;
    SessionId resumes = 0;
    std::vector<Waiter> waiters;
    std::unique_ptr<Connection> connection;
    std::optional<Identity> peer;   // learned on this connection
    std::uint64_t wire_id = 0;      // id of the session proposed to `proposed_to`; every attempt uses the same one
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

  ControlContext& context_;
  Sessions& sessions_;
  std::vector<std::unique_ptr<Dial>> dials_;
  std::size_t connecting_ = 0;  // dials for connect() that hold a connection
  std::size_t resuming_ = 0;    // dials for a broken session that hold a connection
};

}  // namespace fairway::control
