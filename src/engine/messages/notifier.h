#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fairway/request.h"

#include "core/counters.h"
#include "engine/tables/notify.h"
#include "engine/tables/peer_context.h"

namespace fairway::engine {

// Marks a native immediate that is an event and not a counter. With the second bit too, it is a whole event without a
// message: the bits below are the user's immediate. Without the second bit it triggers the event of the record with
// that number, modulo those bits.
inline constexpr std::uint32_t kEventBit = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kBareEventBit = std::uint32_t{1} << 30;
inline constexpr std::uint32_t kEventValue = kBareEventBit - 1;

// The target's side of events that travel with their write. The sender sends each event ahead by a record (it is
// armed), and the write's immediate, which comes after the bytes, triggers it. Record and immediate take different
// links and arrive in either order. An event is named by its record's number, so the record stream tells an immediate
// that is early (its record has not come) from one that is late (its event has ended). Owner: the peer's worker.
class ArmedEvents {
 public:
  enum class Heard : std::uint8_t { waits, deliver, given_up };
  // The record has arrived. deliver: its immediate came first, so deliver `notification` now; it was not moved from.
  // given_up: the word that its write failed came first.
  Heard hear(std::uint32_t number, Notification& notification);
  // The immediate has arrived, or the record that replaces one that could not be sent. `taken`: the event's own record
  // has been processed. Returns the event to deliver now, if any.
  std::optional<Notification> set_off(std::uint32_t number, bool taken);
  // The sender's write has failed. True: the event was waiting here, and is dropped.
  bool give_up(std::uint32_t number, bool taken);
  // The record with that number is no event. True: its immediate was here.
  bool take_early(std::uint32_t number);
  [[nodiscard]] std::uint32_t waiting() const { return static_cast<std::uint32_t>(waiting_.size()); }
  [[nodiscard]] std::size_t early() const { return early_.size(); }  // triggers that came before their record

 private:
  struct Early {  // a trigger that came before its record; the record follows unless the peer goes
    std::uint32_t number;
    bool set_off;
    bool operator==(const Early&) const = default;
  };
  std::optional<Notification> take(std::uint32_t number);
  void keep(Early early);
  std::vector<std::uint32_t> numbers_;  // of waiting_
  std::vector<Notification> waiting_;
  std::vector<Early> early_;
};

// The notifications of one peer, in both directions. Sent: once a transfer's bytes have arrived, an event, a count or a
// signal, by a record or in the immediate of the write itself (ArmedEvents). Received: events go to the user's
// queue, within the credits that this side granted; counts go to the counters. Owner: the peer's worker.
class Notifier {
 public:
  // `records`: number events. `granted`: how many events the peer may have here that nobody has polled.
  Notifier(PeerContext& peer, const RecordStream& records, NotificationQueue& queue, CounterTable& counters,
           std::uint32_t granted)
      : peer_(peer), records_(records), queue_(queue), counters_(counters), granted_(granted) {}
  void greeted(std::uint32_t credits) { credits_ = credits; }  // that the peer grants

  // ---- the sender: a transfer of this side ----
  [[nodiscard]] bool has_credit() const { return sent_ - consumed_there_ < credits_; }
  void spent_credit() { ++sent_; }  // the peer has that event
  bool take_credit(Transfer& t);    // false: the peer has no room for its event yet
  void notify(std::uint32_t slot);  // its bytes are there, and nothing is left to do but this
  // For a write that carries all bytes of its transfer and is about to be posted: the immediate that is the event, or
  // that triggers the event which a record sends ahead (Transfer::arming, to be posted just before the write).
  std::optional<std::uint32_t> event_immediate(std::uint32_t slot);
  void record_arrived(std::uint32_t slot, std::uint32_t record);  // one that it owns
  void failed(Transfer& t);                                       // the peer need not wait for its event
  void ended(const Transfer& t);                                  // a credit that it did not use is free again
  // A write whose immediate is the event failed with its link. Whether the event was delivered, and a credit used, is
  // known once both ends have closed the epoch. `doubtful` is the link's list of such immediates; the peer has received
  // those below `received`.
  void doubt(const Transfer& t, std::uint64_t immediate, std::vector<std::uint64_t>& doubtful) const;
  void settle(std::vector<std::uint64_t>& doubtful, std::uint64_t received);
  void on_credit(std::uint32_t consumed);

  // ---- the target ----
  void on_immediate(std::uint32_t immediate);
  // The record with that number is a message's. True: its immediate was here.
  bool take_early(std::uint32_t number) { return armed_.take_early(number); }
  void on_count(std::uint32_t immediate);
  void on_event(const record::Event& event);
  void on_event_armed(std::uint32_t number, const record::EventArmed& event);
  void on_event_sign(std::uint32_t number, bool set_off);  // else given up; `number`: of the record that armed it
  void consumed(std::uint32_t polled);                     // by the user, since the peer came
  [[nodiscard]] std::uint32_t granted() const { return granted_; }
  [[nodiscard]] std::uint32_t delivered() const { return delivered_; }  // any thread

 private:
  void set_off(std::uint32_t slot);
  bool check_credit();  // false: the peer has none left for an event, which ends it
  bool read(std::uint32_t immediate, std::span<const std::byte> message, Notification& notification);
  void deliver(Notification&& notification);
  void given_up();

  PeerContext& peer_;
  const RecordStream& records_;
  NotificationQueue& queue_;
  CounterTable& counters_;
  std::uint32_t credits_ = 0;  // the peer granted
  std::uint32_t sent_ = 0;     // events
  std::uint32_t consumed_there_ = 0;
  const std::uint32_t granted_;
  Gauge<std::uint32_t> delivered_;
  std::uint32_t polled_ = 0;
  std::uint32_t given_up_ = 0;  // by the peer: they used a credit too
  std::uint32_t credits_returned_ = 0;
  ArmedEvents armed_;
};

}  // namespace fairway::engine
