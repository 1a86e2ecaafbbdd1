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

// Who is there. Control finds peers, proves both sides' knowledge of the job's key, keeps a session with each alive,
// and carries the engine's own messages in order. It knows nothing of transports, regions or transfers.
namespace fairway::control {

struct Options {
  std::string name;  // this engine's name in the directory and in messages; empty: its address
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // "host:port" that peers reach this engine by; empty: the address it listens on, where
                          // a wildcard (0.0.0.0) stands for whatever address a peer sees it come from
  std::string job_key;    // needed to listen beyond loopback
  std::string
      directory;  // "": none; "serve": serve one here; "host:port": one served there; "redis://host:port[/prefix]"
  Time peer_timeout = 2 * kSecond;  // a peer that shows no life for so long is dead
  bool by_caller = false;           // who steps this engine's workers is its caller; told to every peer
  std::uint32_t max_peers = 1024;
  std::uint32_t max_queued_bytes =
      1 << 20;  // per session, of messages not yet acknowledged; beyond it send() says queue_full
};

// A session with one life of one peer. Never reused within one Control.
using SessionId = std::uint64_t;

struct PeerInfo {
  std::string name;     // as the peer gave it
  std::string address;  // where the peer listens, "host:port"
  std::uint64_t incarnation = 0;
  bool by_caller = false;       // its engine is stepped by its caller, who may compute for long: see Observer::beat
  bool initiated_here = false;  // of two sides that connect to each other at once, exactly one says true
  std::array<std::byte, 32>
      secret{};  // known to both ends of this session only: lanes prove by it that they belong to it
};

// Whether the workers behind this control make progress; carried by the heartbeat so that a stuck worker is seen. Of
// workers that their caller steps none counts as queued: they stand still while it computes, and are not stuck.
struct Progress {
  bool queued = false;      // work waits
  std::uint64_t steps = 0;  // grows with every worker step
};

// What control tells the engine. Called on control's own thread; must not block or call Control::close().
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void session_up(SessionId session, const PeerInfo& peer) = 0;
  // Once per session that was up. `reason` names the cause: peer_dead, stale_incarnation, closed, protocol_error.
  virtual void session_down(SessionId session, const Status& reason) = 0;
  // In order, exactly once, also across a broken and resumed connection.
  virtual void message(SessionId session, std::span<const std::byte> bytes) = 0;
  // Answers connect(): the session, already announced by session_up, or why there is none.
  virtual void connect_done(std::uint64_t token, Result<SessionId> session) = 0;
  virtual void resolve_done(std::uint64_t token, Result<std::string> address) = 0;
  virtual Progress progress() = 0;
  // A heartbeat of a peer with PeerInfo::by_caller: how many steps its workers have made by then.
  virtual void beat(SessionId /*session*/, std::uint64_t /*steps*/, Time /*now*/) {}
  // After a send() to this session said queue_full: there is room again.
  virtual void session_writable(SessionId) {}
  // Somebody was turned away: who did not prove the key, spoke no common version or no Fairway at all. For logs.
  virtual void refused(const std::string& /*address*/, const Status& /*why*/) {}
  // Whether this engine's record is in the directory; told when that changes.
  virtual void published(const Status& /*status*/) {}
};

// All calls are for any thread; they queue a command for control's thread and return.
class Control {
 public:
  virtual ~Control() = default;  // close()
  virtual std::string address() const = 0;
  virtual std::uint64_t incarnation() const = 0;
  // Connecting twice to one living peer gives the same session. While nobody listens there it tries again until
  // `timeout`, so that engines may start in any order. To its own address an engine gets a session with itself.
  virtual Status connect(const std::string& address, std::uint64_t token, Time timeout) = 0;
  // The address of the engine with that name, by the directory; asks until it is published or `timeout`.
  virtual Status resolve(const std::string& name, std::uint64_t token, Time timeout) = 0;
  // At most kMaxMessage bytes, copied. not_found when the session is down, queue_full when max_queued_bytes wait: see
  // Observer::session_writable.
  virtual Status send(SessionId session, std::span<const std::byte> bytes) = 0;
  // Orderly. The peer sees `closed`, or protocol_error if that is why, and the words of it.
  virtual void disconnect(SessionId session, const Status& why = {}) = 0;
  // Ends every session (session_down, closed) and every wait, tells every peer, then stops; within half a second even
  // when peers hang. No observer call follows. Not from the observer.
  virtual void close() = 0;
};
inline constexpr std::size_t kMaxMessage = 4096;

Result<std::unique_ptr<Control>> open_control(const Options& options, Runtime& runtime, Observer& observer);

}  // namespace fairway::control
