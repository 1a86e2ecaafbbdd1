#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/command.h"
#include "transport/loopback/doorbell.h"
#include "transport/region_table.h"
#include "transport/transport.h"

// The seam between the contract's state machine (transport.h here) and what carries the bytes: direct_wire.h copies
// between threads, the simulator's wire does everything that a network may do.
namespace fairway::transport::loopback {

// With what is decided at post.
struct Command : transport::Command {
  ErrorCode refusal = ErrorCode::ok;  // fails without travelling
};

// One end of one epoch of one link. Owned by a transport and called on its worker's thread. A Port counts its slices in
// flight and gives each exactly one event.
class Port {
 public:
  virtual ~Port() = default;

  // Takes commands in order; returns how many (fewer: full, or broken).
  virtual std::size_t post(std::span<const Command> commands) = 0;
  virtual void ring() {}  // after one or more post()
  // Stores done, failed, immediate, message, and once each link_down (broken) and fenced. The transport fills in link
  // and peer. Applies what came in, `budget` bytes at most, and lowers it by what it did.
  virtual std::size_t poll(std::span<Event> events, Time now, std::uint64_t& budget) = 0;
  virtual bool idle() const = 0;  // poll() has nothing to do until the doorbell rings
  // Of an offered port: the other end has begun to use it, though its `attached` is still on the way. What it sent
  // counts as delivered, so this end must be up (as a queue pair is by its "communication established" event).
  virtual bool in_use() const = 0;

  virtual void cancel(SliceToken token) = 0;
  virtual void cancel_memory(std::uint64_t local_handle) = 0;
  virtual bool uses(std::uint64_t local_handle) const = 0;  // a slice of that memory still has no event
  virtual void fence() = 0;                                 // poll() tells when it is done
  virtual void cut() = 0;                                   // breaks the link for both ends
  // fence() at once: on return nothing of this epoch touches this side's memory; poll() still gives the slices' events.
  virtual void close() = 0;

  virtual std::uint64_t name() const = 0;  // equal at both ends, unlike any other link's of the fabric
};

// What a transport brings to each of its ports.
struct End {
  RegionTable& regions;
  std::shared_ptr<Doorbell> doorbell;
  DeviceIndex device = 0;
};

// One host's access to the fabric. Any thread.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual std::uint64_t fabric() const = 0;  // equal for those that can meet
  virtual std::span<const Device> devices() const = 0;
  virtual bool ready(DeviceIndex device) const = 0;  // a new link may be tried now
  virtual void flush() {}                            // makes what has arrived on this host visible in its memory
  // A new link: one end for the caller, the other waits for attach() with the same unguessable id.
  virtual std::unique_ptr<Port> offer(std::uint64_t id, End end) = 0;
  virtual std::unique_ptr<Port> attach(std::uint64_t id, End end) = 0;  // null: no such offer
};

}  // namespace fairway::transport::loopback
