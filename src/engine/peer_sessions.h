#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/engine.h"

#include "control/control.h"
#include "engine/control_message.h"
#include "engine/messages/arrivals.h"
#include "engine/peer_events.h"
#include "engine/pending_calls.h"
#include "engine/workers.h"

namespace fairway::engine {

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
class PeerSessions final : private control::Observer {
 public:
  // Everything given outlives it.
  PeerSessions(const EngineOptions& options, Runtime& runtime, PeerTable& peers, const Workers& workers,
               Waiting& waiting, Arrivals& arrivals);

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
  void tell(control::SessionId session, const std::vector<std::byte>& bytes);  // as send; drops it where that fails
  void drop(control::SessionId session, const Status& reason);                 // ends it for that reason
  PeerEvents& events() { return events_; }

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

  const EngineOptions& options_;
  Runtime& runtime_;
  PeerTable& peers_;
  const Workers& workers_;
  Waiting& waiting_;
  Arrivals& arrivals_;
  SessionListener* listener_ = nullptr;  // from open() on
  PeerEvents events_{peers_};
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
