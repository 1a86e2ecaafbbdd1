#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/tables/worker_tables.h"

namespace fairway::engine {

// What the parts of a peer share, and what they may call. A part owns its state. It has references to the parts below
// it, and reaches those above it and the worker through this interface, so it can be tested without an engine. Owner:
// the peer's worker.
class PeerContext {
 public:
  PeerContext(const RegionOwner& owner, WorkerTables& tables) : owner_(owner), tables_(tables) {}

  [[nodiscard]] PeerId id() const { return owner_.id; }
  [[nodiscard]] const RegionOwner& owner() const { return owner_; }  // of its regions
  // ---- the worker's tables ----
  Transfer& transfer(std::uint32_t slot) { return tables_.transfers[slot]; }
  [[nodiscard]] const Transfer& transfer(std::uint32_t slot) const { return tables_.transfers[slot]; }
  [[nodiscard]] TransferTable& table() const { return tables_.transfers; }
  [[nodiscard]] transport::RegionTable& regions() const { return tables_.regions; }
  [[nodiscard]] RecordPool& records() const { return tables_.records; }
  [[nodiscard]] const WorkerTables::Transports& transports() const { return tables_.transports; }
  [[nodiscard]] LocalRegions& locals() const { return tables_.locals; }
  [[nodiscard]] RemoteRegions& remotes() const { return tables_.remotes; }
  [[nodiscard]] SliceTable& slices() const { return tables_.slices; }
  [[nodiscard]] Outbox& outbox() const { return tables_.outbox; }

  [[nodiscard]] virtual std::string text() const = 0;  // the peer, for people
  [[nodiscard]] virtual bool is_down() const = 0;      // its session has ended
  [[nodiscard]] virtual Status why_ended() const = 0;  // or why there is no link to it
  virtual void has_more() = 0;                         // there is more to post, now or when links have room
  virtual void again() = 0;                            // there is more to do in this step or the next
  virtual void notice() = 0;                           // something is there for the user
  [[nodiscard]] virtual Time now() const = 0;
  virtual void wake_at(Time time) = 0;  // the peer's timers run then at the latest
  virtual void end_session(const Status& reason) = 0;
  virtual void violation(const std::string& what) = 0;  // "the peer sent ...": ends the session
  // ---- a transfer of this peer ----
  virtual void take_turns(std::uint32_t slot) = 0;                    // it has bytes for the links
  virtual void drained(std::uint32_t slot) = 0;                       // one thing less is in flight for it
  virtual void fail(std::uint32_t slot, const Status& status) = 0;    // completes once nothing of it is in flight
  virtual void finish(std::uint32_t slot, const Status& status) = 0;  // completes now
  virtual void adopt(std::uint32_t slot) = 0;        // a receive of any peer is this peer's from now on
  virtual void begin_inner(std::uint32_t slot) = 0;  // of the engine's own, before it takes turns
  virtual void advance(std::uint32_t slot) = 0;      // its bytes are there, or what its phase asked for has been done
  virtual void signal(std::uint32_t slot) = 0;       // sets the word that its notification names
  // A piece of it that the peer's engine did, or could not do.
  virtual void piece_done(std::uint32_t token, std::uint64_t value) = 0;
  virtual void piece_failed(std::uint32_t token, const Status& status) = 0;
  // The checksums of a piece at both ends.
  virtual void compare(std::uint32_t slot, const Piece& piece, std::uint64_t ours, std::uint64_t theirs) = 0;
  // ---- regions ----
  // Whether a link moves between those two: a device's memory here, and host memory of the peer's.
  virtual transport::Reach reach_by_any(RegionId local, RemoteRegionId remote) = 0;
  // Removes a revoked window once nobody writes there; then the receive in `slot`, if it still waits, is told. `kept`
  // ends with that.
  virtual void remove_window(RegionId window, std::uint32_t slot, std::shared_ptr<void> kept) = 0;
  // Revoked memory that was lent to the peer: what ends its use, and then calls back.
  virtual void end_lease(RegionId region, std::function<void(Status)> done) = 0;
  // ---- records to the peer ----
  virtual std::uint32_t acquire_record(RecordType type) = 0;  // kNoSlot: the session has ended
  virtual void enqueue_record(std::uint32_t record, std::uint32_t owner) = 0;
  // Writes the record's number into its header and hands it to a link within the call. False: nothing was done.
  virtual bool post_now(std::span<std::byte> head, std::span<const std::byte> tail) = 0;

  // Queues a record and returns its index in the pool. kNoSlot: too many answers wait for the peer, and its session has
  // ended. `owner`: the transfer whose notification it is.
  template <class Body>
  std::uint32_t send(const Body& body, std::uint32_t owner = kNoSlot) {
    const std::uint32_t index = acquire_record(Body::kType);
    if (index == kNoSlot) return kNoSlot;
    encode(records()[index], body);
    enqueue_record(index, owner);
    return index;
  }
  // The same where nothing is before it and a link takes it now: then it counts as arrived. False: nothing was done.
  // `tail`: what the body ends with, beside a few fields.
  template <class Body>
  bool send_now(const Body& body, std::span<const std::byte> tail = {}) {
    std::array<std::byte, 64> head;
    return post_now(std::span(head).first(encode(std::span(head), body)), tail);
  }

 protected:
  ~PeerContext() = default;

  RegionOwner owner_;

 private:
  WorkerTables& tables_;
};

}  // namespace fairway::engine
