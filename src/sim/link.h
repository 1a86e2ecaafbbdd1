#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sim/simulation.h"
#include "transport/loopback/wire.h"

namespace fairway::sim {

class Fabric;
class FabricPort;
struct SimLink;

// A slice, from post() until the last frame that refers to it is gone, which may be long after its event. Pooled by the
// fabric.
struct Flight {
  SimLink* link = nullptr;
  unsigned side = 0;  // side of the initiator
  transport::loopback::Command command;
  std::uint64_t total = 0;
  std::vector<std::byte> payload;
  struct Part {
    std::uint64_t block;   // offset of the block at the target
    std::uint64_t offset;  // offset within the block
    std::uint64_t length;
    std::uint64_t at;  // offset in the payload
  };
  std::vector<Part> parts;                             // the ranges that gather() found, of all pieces
  std::uint64_t pieces = 0, departed = 0, landed = 0;  // bit sets, by piece
  std::uint32_t frames = 0;                            // events that refer to this flight
  bool left = false;                                   // a frame has left the NIC
  bool settled = false;                                // the target is finished with it: all landed, or refused
  bool ended = false;                                  // its event is decided: local memory is no longer accessed
  bool waits_turn = false;
  ErrorCode result = ErrorCode::ok;
  std::uint64_t old_value = 0;
  Time arrives = 0;         // at a steady NIC: its last byte
  std::size_t carried = 0;  // its place in what Fabric::watch() fills, from 1 on
  std::uint64_t turn = 0;   // position among messages and immediates, in posting order
};

// An event that a port's poll() will return.
struct Outcome {
  transport::EventKind kind = transport::EventKind::done;
  transport::SliceToken token = 0;
  ErrorCode code = ErrorCode::ok;
  Effect effect = Effect::not_applied;
  std::uint64_t value = 0;
  std::uint64_t local_handle = 0;
};

struct Inbound {
  transport::EventKind kind = transport::EventKind::message;
  std::uint32_t immediate = 0;
  std::vector<std::byte> bytes;
};

// First in, first out; takes no memory before its first entry, as a simulated rank has a thousand links.
template <class T>
class Queue {
 public:
  [[nodiscard]] bool empty() const { return next_ == entries_.size(); }
  [[nodiscard]] std::size_t size() const { return entries_.size() - next_; }
  T& front() { return entries_[next_]; }
  void push_back(T entry) { entries_.push_back(std::move(entry)); }
  T& emplace_back() { return entries_.emplace_back(); }
  void pop_front() {
    if (++next_ != entries_.size()) return;
    entries_.clear();
    next_ = 0;
  }
  [[nodiscard]] auto begin() const { return entries_.begin() + static_cast<std::ptrdiff_t>(next_); }
  [[nodiscard]] auto end() const { return entries_.end(); }

 private:
  std::vector<T> entries_;
  std::size_t next_ = 0;
};

struct LinkEnd {
  Host* host = nullptr;
  std::size_t nic = 0;
  transport::DeviceIndex device = 0;
  transport::RegionTable* regions = nullptr;
  std::shared_ptr<transport::loopback::Doorbell> doorbell;
  bool open = false;  // its port exists
  bool fencing = false;
  bool fenced = false;
  std::vector<Flight*> flights;  // posted here and not ended
  std::uint32_t in_flight = 0;   // posted here, event not returned yet
  Queue<Outcome> outcomes;
  Queue<Inbound> inbound;
  // Where the transport looks for ends that have something to poll; null: it looks at all.
  std::vector<std::uint32_t>* ready = nullptr;
  std::uint32_t slot = 0;
  bool told = false;  // it is in there
  void ring();
  std::uint64_t immediates = 0;    // number returned to the engine
  std::uint64_t next_turn = 0;     // turn of the next one posted here
  std::uint64_t current_turn = 0;  // turn that the other end delivers next
  std::vector<Flight*> arrived;    // posted here, waiting for their turn
  bool retrying = false;           // the other end was not ready for one of them
};

// One epoch of one link.
struct SimLink {
  Fabric* fabric = nullptr;
  std::uint64_t name = 0;
  bool broken = false;
  LinkEnd ends[2];
};

}  // namespace fairway::sim
