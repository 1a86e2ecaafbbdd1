#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/messages/record.h"
#include "engine/transfers/transfer.h"
#include "transport/region_table.h"

namespace fairway::engine {

// What the parts of a peer may call. A part owns its state and reaches the other parts and the worker only through this
// interface, so it can be tested without an engine. Owner: the peer's worker.
class PeerContext {
 public:
  PeerContext(PeerId id, TransferTable& transfers, transport::RegionTable& regions, RecordPool& pool)
      : id_(id), transfers_(transfers), regions_(regions), pool_(pool) {}

  [[nodiscard]] PeerId id() const { return id_; }
  Transfer& transfer(std::uint32_t slot) { return transfers_[slot]; }
  [[nodiscard]] const Transfer& transfer(std::uint32_t slot) const { return transfers_[slot]; }
  [[nodiscard]] TransferTable& table() const { return transfers_; }
  [[nodiscard]] transport::RegionTable& regions() const { return regions_; }
  Record& record(std::uint32_t index) { return pool_[index]; }

  [[nodiscard]] virtual std::string text() const = 0;  // the peer, for people
  [[nodiscard]] virtual bool is_down() const = 0;      // its session has ended
  virtual void has_more() = 0;                         // there is more to post, now or when links have room
  virtual void again() = 0;                            // there is more to do in this step or the next
  [[nodiscard]] virtual Time now() const = 0;
  virtual void wake_at(Time time) = 0;  // the peer's timers run then at the latest
  virtual void end_session(const Status& reason) = 0;
  virtual void violation(const std::string& what) = 0;  // "the peer sent ...": ends the session
  // ---- a transfer of this peer ----
  virtual void take_turns(std::uint32_t slot) = 0;                    // it has bytes for the links
  virtual void drained(std::uint32_t slot) = 0;                       // one thing less is in flight for it
  virtual void fail(std::uint32_t slot, const Status& status) = 0;    // completes once nothing of it is in flight
  virtual void finish(std::uint32_t slot, const Status& status) = 0;  // completes now
  virtual void adopt(std::uint32_t slot) = 0;  // a receive of any peer is this peer's from now on
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
    encode(record(index), body);
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

 private:
  const PeerId id_;
  TransferTable& transfers_;
  transport::RegionTable& regions_;
  RecordPool& pool_;
};

}  // namespace fairway::engine
