#include <utility>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// Notifications of kind `event`, both ways: behind their bytes, or riding on them (armed_events.h).
namespace fairway::engine {
namespace {

// A longer write would hold up the messages behind it, whose order it keeps, for longer than its acknowledgement takes.
constexpr std::uint64_t kMostThatRides = 16 * 1024;

}  // namespace

// ---- the sender ----

// What the immediate of the write that is about to be posted says of its event: all of it, or that the peer may tell
// what it was handed ahead.
std::optional<std::uint32_t> Peer::event_immediate(std::uint32_t slot, std::uint8_t link) {
  const Transfer& t = transfer(slot);
  if (t.armed || t.total > kMostThatRides || t.request.options.start_after != nullptr) return std::nullopt;
  if ((t.memory_kinds & kDeviceBit) != 0) return std::nullopt;  // its copies go side by side, and order would end that
  const std::uint32_t immediate = t.request.options.notify.immediate;
  if (t.message_bytes == 0 && immediate <= kEventValue) return kEventBit | kBareEventBit | immediate;
  arm(slot, link);
  return kEventBit | (t.event & kEventValue);
}

void Peer::arm(std::uint32_t slot, std::uint8_t link) {
  Transfer& t = transfer(slot);
  t.arming = send(
      record::EventArmed{t.request.options.notify.immediate, {std::span(t.message.data(), t.message_bytes)}}, slot);
  const Record& record = worker_.records()[t.arming];
  t.armed = true;
  t.event = record.sequence;
  const Link& by = links_[link];
  if (records_.next() == t.arming && views_[link].room > 0 && worker_.slices().room() > 0 &&
      by.has(transport::Op::message) && by.capabilities->max_message_bytes >= record.size)
    post_record(t.arming, link);  // just ahead of the write; elsewhere or later will do
}

// A write that carries its event in its immediate has failed with its link: whether the peer was told is known once
// both ends have closed the epoch, and the event's credit is spent until then.
void Peer::doubt_event(const SliceEntry& entry) {
  const Transfer& t = transfer(entry.owner);
  if (entry.op == transport::Op::write_immediate && t.credit_taken && !t.armed)
    links_[entry.link].doubtful_events.push_back(entry.immediate);
}

void Peer::settle_events(Link& link) {
  for (const std::uint64_t number : link.doubtful_events)
    if (number >= link.immediates_there) --events_sent_;
  link.doubtful_events.clear();
}

void Peer::record_arrived(std::uint32_t slot, std::uint32_t record) {
  Transfer& t = transfer(slot);
  if (record != t.arming) return drained(slot);
  t.arming = kNoSlot;
  if (t.phase == Phase::notifying) set_off(slot);
}

// The bytes are there. The event is too, once its record is, if an immediate has set it off.
void Peer::set_off(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.arming != kNoSlot) return;  // record_arrived() goes on
  if (t.immediate_sent) return finish(slot, {});
  t.notify_record = send(record::EventSetOff{t.event}, slot);
}

// The transfer has failed: the peer waits for its event no more, should it still do so.
void Peer::give_up(Transfer& t) {
  if (!t.armed || down_) return;
  if (t.arming != kNoSlot) worker_.records()[t.arming].owner = kNoSlot;
  send(record::EventGivenUp{t.event});
}

// ---- the target ----

bool Peer::check_credit() {
  if (notifications_delivered_ + events_given_up_ + armed_.waiting() - credits_returned_ >= granted_credits_) {
    violation("a notification without a credit");
    return false;
  }
  return true;
}

bool Peer::read_notification(std::uint32_t immediate, std::span<const std::byte> message, Notification& notification) {
  notification.peer = id_;
  notification.immediate = immediate;
  if (message.size() > kMaxNotifyMessage) {
    violation("a notification with too long a message");
    return false;
  }
  if (!check_credit()) return false;
  notification.message_bytes = static_cast<std::uint32_t>(message.size());
  std::copy(message.begin(), message.end(), notification.message);
  return true;
}

void Peer::deliver(Notification&& notification) {
  ++notifications_delivered_;
  (void)worker_.services().notifications.push(std::move(notification));  // the credits keep room for it
  worker_.services().notice();
}

void Peer::on_event(const record::Event& event) {
  Notification notification;
  if (read_notification(event.immediate, event.message.bytes, notification)) deliver(std::move(notification));
}

void Peer::on_event_armed(std::uint32_t number, const record::EventArmed& event) {
  Notification notification;
  if (!read_notification(event.immediate, event.message.bytes, notification)) return;
  switch (armed_.hear(number, notification)) {
    case ArmedEvents::Heard::waits: return;
    case ArmedEvents::Heard::deliver: return deliver(std::move(notification));
    case ArmedEvents::Heard::given_up: return event_given_up();
  }
}

void Peer::on_event_sign(std::uint32_t number, bool set_off) {
  const RecordStream::Past record = records_.past(number);
  if (record == RecordStream::Past::beyond || armed_.early() >= 2 * std::size_t{granted_credits_})
    return violation("a sign of an event that cannot have been sent");
  const bool taken = record == RecordStream::Past::taken;
  if (!set_off) {
    if (armed_.give_up(number, taken)) event_given_up();
  } else if (auto now = armed_.set_off(number, taken)) {
    deliver(std::move(*now));
  }
}

void Peer::event_given_up() {
  ++events_given_up_;
  notifications_consumed(notifications_polled_);
}

void Peer::notifications_consumed(std::uint32_t polled) {
  notifications_polled_ = polled;
  const std::uint32_t total = polled + events_given_up_;
  // By the half: the peer still has the rest, and what it sends next need not carry a credit each.
  if (total - credits_returned_ < std::max(1u, granted_credits_ / 2)) return;
  credits_returned_ = total;
  if (!down_) send(record::Credit{credits_returned_});
}

void Peer::on_immediate(std::uint32_t immediate) {
  if (down_) return;
  if ((immediate & kEventBit) == 0) return on_count(immediate);
  if ((immediate & kBareEventBit) == 0) return on_event_sign(records_.nearest(immediate & kEventValue), true);
  if (!check_credit()) return;
  Notification notification;
  notification.peer = id_;
  notification.immediate = immediate & kEventValue;
  deliver(std::move(notification));
}

void Peer::on_count(std::uint32_t immediate) {
  if (!worker_.services().counters.add(immediate))
    return violation("more different counters than EngineOptions::max_counters");
  worker_.services().notice();
}

// What the peer's user has consumed of our events, since the session began.
void Peer::on_credit(std::uint32_t consumed) {
  if (static_cast<std::int32_t>(consumed - events_consumed_there_) <= 0) return;  // overtaken by a later one
  if (consumed - events_consumed_there_ > events_sent_ - events_consumed_there_)
    return violation("a credit for notifications that were never sent");
  events_consumed_there_ = consumed;
}

}  // namespace fairway::engine
