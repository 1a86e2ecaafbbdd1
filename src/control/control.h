#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "core/runtime.h"

// Membership and the control channel. Control finds peers, authenticates both sides with the job's key, keeps a session
// with each peer alive, and carries the engine's own messages in order. It knows nothing of transports, regions or
// transfers.
namespace fairway::control {

struct Options {
  std::string name;  // this engine's name in the directory and in messages; empty: its address
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // "host:port" that peers reach this engine by; empty: the address it listens on, where
                          // a wildcard (0.0.0.0) stands for whatever address a peer sees it come from
  std::string job_key;    // required to listen beyond loopback
  // "": none; "serve": serve one here; "host:port": one served there; "redis://..." and "etcd://...": directory.h
  std::string directory;
  Time peer_timeout = 2 * kSecond;  // a peer that sends nothing valid for this long is dead
  bool by_caller = false;           // the application drives this engine's progress; every peer is told
  std::uint32_t max_peers = 1024;
  std::uint32_t max_queued_bytes =
      1 << 20;  // per session, of messages not yet acknowledged; beyond it send() says queue_full
};

// A session with one incarnation of one peer. A Control never reuses an id.
using SessionId = std::uint64_t;

struct PeerInfo {
  std::string name;     // as the peer announced it
  std::string address;  // where the peer listens, "host:port"
  std::uint64_t incarnation = 0;
  bool by_caller = false;  // the application drives the peer's progress and may compute for long: see Observer::beat
  bool initiated_here = false;  // true on exactly one side, also when both connect to each other at once
  std::array<std::byte, 32>
      secret{};  // known to both ends of this session only: lanes prove by it that they belong to it
};

// Whether this engine's workers make progress. Heartbeats carry it, so that the peer detects a stuck worker.
// Workers that the application drives never count as `queued`: they stop while it computes, and are not stuck.
struct Progress {
  bool queued = false;      // work is waiting
  std::uint64_t steps = 0;  // rises with every worker step
};

// Callbacks from control to the engine, on the control thread. They must not block or call Control::close().
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void session_up(SessionId session, const PeerInfo& peer) = 0;
  // Called once for each session that was up. The code of `reason` is peer_dead, stale_incarnation, closed or
  // protocol_error.
  virtual void session_down(SessionId session, const Status& reason) = 0;
  // A message from the peer: in order and exactly once, even when the connection breaks and resumes.
  virtual void message(SessionId session, std::span<const std::byte> bytes) = 0;
  // Completes connect(): the session, which session_up() already announced, or the error.
  virtual void connect_done(std::uint64_t token, Result<SessionId> session) = 0;
  virtual void resolve_done(std::uint64_t token, Result<std::string> address) = 0;
  virtual Progress progress() = 0;
  // A heartbeat from a peer with PeerInfo::by_caller; `steps` counts the steps its workers had made when it was sent.
  virtual void beat(SessionId /*session*/, std::uint64_t /*steps*/, Time /*now*/) {}
  // There is room again after send() to this session returned queue_full.
  virtual void session_writable(SessionId) {}
  // An incoming connection was refused: it did not prove the key, shares no version, or does not speak Fairway. For
  // logs.
  virtual void refused(const std::string& /*address*/, const Status& /*why*/) {}
  // Whether this engine's record is in the directory. Called when that changes.
  virtual void published(const Status& /*status*/) {}
};

// Any thread may call these. Each queues a command for the control thread and returns.
class Control {
 public:
  virtual ~Control() = default;  // calls close()
  virtual std::string address() const = 0;
  virtual std::uint64_t incarnation() const = 0;
  // Connecting twice to a live peer returns the same session. While nobody listens at `address`, control retries until
  // `timeout`, so engines may start in any order. An engine that connects to its own address gets a session with
  // itself.
  virtual Status connect(const std::string& address, std::uint64_t token, Time timeout) = 0;
  // Looks up the address of the engine with that name in the directory; retries until it is published or `timeout`.
  virtual Status resolve(const std::string& name, std::uint64_t token, Time timeout) = 0;
  // Copies `bytes`, at most kMaxMessage. Errors: not_found when the session is down; queue_full when max_queued_bytes
  // are unacknowledged (Observer::session_writable reports when to retry).
  virtual Status send(SessionId session, std::span<const std::byte> bytes) = 0;
  // Orderly shutdown of one session. The peer sees the code `closed`, or protocol_error if `why` has that code, with
  // the text of `why`.
  virtual void disconnect(SessionId session, const Status& why = {}) = 0;
  // Ends every session (session_down with `closed`) and every pending call, tells every peer, then stops. Takes at most
  // half a second even when peers hang. No observer call follows. Must not be called from an observer callback.
  virtual void close() = 0;
};
inline constexpr std::size_t kMaxMessage = 4096;

Result<std::unique_ptr<Control>> open_control(const Options& options, Runtime& runtime, Observer& observer);

}  // namespace fairway::control
