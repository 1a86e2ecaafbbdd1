#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fairway/loopback.h"

#include "core/gates.h"
#include "core/runtime.h"
#include "transport/command.h"
#include "transport/optional_calls.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport::loopback {

// Wakes a transport's worker when it sleeps. The transport arms and removes it; its peers ring it from their threads.
class Doorbell {
 public:
  // Owner: once, before anyone rings.
  void attach(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }

  // Peers: after publishing work. One system call if the owner sleeps, else a fence and a load.
  void ring() {
    if (!gate_.claim_wake()) return;
    std::lock_guard lock(mutex_);
    if (wake_) wake_();
  }

  // Owner: arm() before it checks for work for the last time; disarm() if it finds some, or wakes up.
  void arm() { gate_.announce(); }
  void disarm() { gate_.awake(); }
  // Owner: afterwards `wake` is not running and is not called again.
  void remove() {
    std::lock_guard lock(mutex_);
    wake_ = nullptr;
  }

 private:
  SleepGate gate_;
  std::mutex mutex_;  // guards wake_ against remove(); taken only to wake a sleeper
  std::function<void()> wake_;
};

// The interface between the contract's state machine (transport.h) and what moves the bytes: direct_wire.h copies
// between threads; the simulator's wire delays, reorders and breaks links as a network does.

// A command with the result of the checks in post().
struct Command : transport::Command {
  ErrorCode refusal = ErrorCode::ok;  // not ok: fails locally
};

// One end of one epoch of a link. Owned by a transport, called on its worker's thread. Gives each slice that it
// accepted exactly one event.
class Port {
 public:
  virtual ~Port() = default;

  // Accepts commands in order; returns how many (fewer: full or broken).
  virtual std::size_t post(std::span<const Command> commands) = 0;
  virtual void ring() {}  // call after one or more post()
  // As MovesAtOnce; `region`: the target's.
  virtual AtOnce move_now(const SmallMove& /*move*/, RegionId /*region*/) { return AtOnce::never; }
  virtual AtOnce send_now(std::span<const std::byte> /*head*/, std::span<const std::byte> /*tail*/) {
    return AtOnce::never;
  }
  // Changes with each move_now() of the other end; odd while one may access this side's memory.
  virtual std::uint64_t touched() const { return 0; }
  // Stores done, failed, immediate and message events, and one link_down (broken) and one fenced. The transport fills
  // in link and peer. Executes what arrived, at most `budget` bytes, and subtracts that from `budget`.
  virtual std::size_t poll(std::span<Event> events, Time now, std::uint64_t& budget) = 0;
  virtual bool idle() const = 0;  // poll() has nothing to do until the doorbell rings
  // For an offered port: the other end already uses it, though its `attached` has not arrived yet. What it sent counts
  // as delivered, so this end must be up (like a queue pair at IBV_EVENT_COMM_EST).
  virtual bool in_use() const = 0;

  virtual void cancel(SliceToken token) = 0;
  virtual void cancel_memory(std::uint64_t local_handle) = 0;
  virtual bool uses(std::uint64_t local_handle) const = 0;  // a slice of that memory has no event yet
  virtual void fence() = 0;                                 // asynchronous: poll() gives the event `fenced`
  virtual void cut() = 0;                                   // breaks the link for both ends
  // A synchronous fence: on return nothing of this epoch touches this side's memory; poll() still gives the events.
  virtual void close() = 0;

  virtual std::uint64_t name() const = 0;  // equal at both ends, unique in the fabric
};

// What a transport passes to each of its ports.
struct End {
  RegionTable& regions;
  std::shared_ptr<Doorbell> doorbell;
  DeviceIndex device = 0;
  // Of a wire that tells_ready(): the port adds `slot` when it has something to poll, once until it is polled.
  std::vector<std::uint32_t>* ready = nullptr;
  std::uint32_t slot = 0;
};

// One host's access to the fabric. Any thread.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual std::string name() const { return "loopback"; }  // of the transport
  virtual std::uint64_t fabric() const = 0;                // equal for wires that can connect
  virtual std::span<const Device> devices() const = 0;
  virtual bool ready(DeviceIndex device) const = 0;  // a new link may be tried now
  // The device's links are one fence domain: a fence of one of them ends the others.
  virtual bool shares_fence(DeviceIndex /*device*/) const { return false; }
  // Each port says when it has something to poll, on the thread of its transport. Else all are polled in turn.
  virtual bool tells_ready() const { return false; }
  virtual void flush() {}  // makes what has arrived on this host visible in its memory
  // A new link: returns the caller's end; the other end waits for attach() with the same unguessable id.
  virtual std::unique_ptr<Port> offer(std::uint64_t id, End end) = 0;
  virtual std::unique_ptr<Port> attach(std::uint64_t id, End end) = 0;  // null: no such offer
};

}  // namespace fairway::transport::loopback

namespace fairway {

// Holds the wire that connects the engines of one process. Immutable.
class Loopback {
 public:
  explicit Loopback(std::unique_ptr<transport::loopback::Wire> wire) : wire_(std::move(wire)) {}
  transport::loopback::Wire& wire() const { return *wire_; }

 private:
  std::unique_ptr<transport::loopback::Wire> wire_;
};

namespace transport {

// One worker's transport on that wire. `regions` and `runtime` outlive it.
std::unique_ptr<Transport> open_loopback_transport(std::shared_ptr<Loopback> loopback, RegionTable& regions,
                                                   Runtime& runtime);

}  // namespace transport
}  // namespace fairway
