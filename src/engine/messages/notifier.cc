#include "engine/messages/notifier.h"

#include <algorithm>
#include <utility>

#include "engine/tables/route.h"

namespace fairway::engine {

std::optional<Notification> ArmedEvents::take(std::uint32_t number) {
  const auto found = std::find(numbers_.begin(), numbers_.end(), number);
  if (found == numbers_.end()) return std::nullopt;
  const auto at = static_cast<std::size_t>(found - numbers_.begin());
  std::optional<Notification> taken(std::move(waiting_[at]));
  numbers_[at] = numbers_.back();
  waiting_[at] = waiting_.back();
  numbers_.pop_back();
  waiting_.pop_back();
  return taken;
}

void ArmedEvents::keep(Early early) {
  if (std::find(early_.begin(), early_.end(), early) == early_.end()) early_.push_back(early);
}

ArmedEvents::Heard ArmedEvents::hear(std::uint32_t number, Notification& notification) {
  bool set_off = false;
  const bool sign = std::erase_if(early_, [&](const Early& early) {
                      set_off |= early.number == number && early.set_off;
                      return early.number == number;
                    }) != 0;
  if (set_off) return Heard::deliver;
  if (sign) return Heard::given_up;
  numbers_.push_back(number);
  waiting_.push_back(std::move(notification));
  return Heard::waits;
}

std::optional<Notification> ArmedEvents::set_off(std::uint32_t number, bool taken) {
  if (taken) return take(number);
  keep({number, true});
  return std::nullopt;
}

bool ArmedEvents::give_up(std::uint32_t number, bool taken) {
  if (taken) return take(number).has_value();
  keep({number, false});
  return false;
}

bool ArmedEvents::take_early(std::uint32_t number) {
  return std::erase_if(early_, [&](const Early& early) { return early.number == number; }) != 0;
}

namespace {

// A longer write would delay the ordered messages behind it for longer than its acknowledgement takes.
constexpr std::uint64_t kLongestThatCarries = 256 * 1024;

}  // namespace

// ---- the sender ----

bool Notifier::take_credit(Transfer& t) {
  if (t.request.options.notify.kind != NotifyKind::event || t.credit_taken) return true;
  if (!has_credit()) return false;
  ++sent_;
  t.credit_taken = true;
  return true;
}

void Notifier::notify(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  const Notify& notify = t.request.options.notify;
  t.phase = Phase::notifying;
  switch (notify.kind) {
    case NotifyKind::none: return peer_.finish(slot, {});
    case NotifyKind::signal: return peer_.signal(slot);
    case NotifyKind::counter:
      if (t.immediate_sent) return peer_.finish(slot, {});
      t.notify_record = peer_.send(record::Counter{notify.immediate}, slot);
      return;
    case NotifyKind::event:
      if (t.armed) return set_off(slot);
      if (t.immediate_sent) return peer_.finish(slot, {});
      t.notify_record =
          peer_.send(record::Event{notify.immediate, {std::span(t.message.data(), t.message_bytes)}}, slot);
      return;
  }
}

std::optional<std::uint32_t> Notifier::event_immediate(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.armed || t.total > kLongestThatCarries || t.request.options.start_after != nullptr) return std::nullopt;
  if ((t.memory_kinds & kDeviceBit) != 0)
    return std::nullopt;  // its copies run in parallel, which ordering would prevent
  const std::uint32_t immediate = t.request.options.notify.immediate;
  if (t.message_bytes == 0 && immediate <= kEventValue) return kEventBit | kBareEventBit | immediate;
  t.arming = peer_.send(record::EventArmed{immediate, {std::span(t.message.data(), t.message_bytes)}}, slot);
  t.armed = true;
  t.event = peer_.records()[t.arming].sequence;
  return kEventBit | (t.event & kEventValue);
}

void Notifier::record_arrived(std::uint32_t slot, std::uint32_t record) {
  Transfer& t = peer_.transfer(slot);
  if (record != t.arming) return peer_.drained(slot);
  t.arming = kNoSlot;
  if (t.phase == Phase::notifying) set_off(slot);
}

// The bytes have arrived. If an immediate triggers the event, it is delivered once its record has arrived too.
void Notifier::set_off(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.arming != kNoSlot) return;  // record_arrived() goes on
  if (t.immediate_sent) return peer_.finish(slot, {});
  t.notify_record = peer_.send(record::EventSetOff{t.event}, slot);
}

void Notifier::failed(Transfer& t) {
  if (!t.armed || peer_.is_down()) return;
  if (t.arming != kNoSlot) peer_.records()[t.arming].owner = kNoSlot;
  peer_.send(record::EventGivenUp{t.event});
}

void Notifier::ended(const Transfer& t) {
  if (t.credit_taken && t.notify_record == kNoSlot && !t.armed && !t.immediate_sent) --sent_;
}

void Notifier::doubt(const Transfer& t, std::uint64_t immediate, std::vector<std::uint64_t>& doubtful) const {
  if (t.credit_taken && !t.armed) doubtful.push_back(immediate);
}

void Notifier::settle(std::vector<std::uint64_t>& doubtful, std::uint64_t received) {
  for (const std::uint64_t number : doubtful)
    if (number >= received) --sent_;
  doubtful.clear();
}

// How many of our events the peer's user has consumed since the session began.
void Notifier::on_credit(std::uint32_t consumed) {
  if (static_cast<std::int32_t>(consumed - consumed_there_) <= 0) return;  // a later update arrived first
  if (consumed - consumed_there_ > sent_ - consumed_there_)
    return peer_.violation("a credit for notifications that were never sent");
  consumed_there_ = consumed;
}

// ---- the target ----

bool Notifier::check_credit() {
  if (delivered_ + given_up_ + armed_.waiting() - credits_returned_ < granted_) return true;
  peer_.violation("a notification without a credit");
  return false;
}

bool Notifier::read(std::uint32_t immediate, std::span<const std::byte> message, Notification& notification) {
  notification.peer = peer_.id();
  notification.immediate = immediate;
  if (message.size() > kMaxNotifyMessage) {
    peer_.violation("a notification with too long a message");
    return false;
  }
  if (!check_credit()) return false;
  notification.message_bytes = static_cast<std::uint32_t>(message.size());
  std::copy(message.begin(), message.end(), notification.message);
  return true;
}

void Notifier::deliver(Notification&& notification) {
  ++delivered_;
  (void)queue_.push(std::move(notification));  // its credit reserves a slot
  peer_.notice();
}

void Notifier::on_event(const record::Event& event) {
  Notification notification;
  if (read(event.immediate, event.message.bytes, notification)) deliver(std::move(notification));
}

void Notifier::on_event_armed(std::uint32_t number, const record::EventArmed& event) {
  Notification notification;
  if (!read(event.immediate, event.message.bytes, notification)) return;
  switch (armed_.hear(number, notification)) {
    case ArmedEvents::Heard::waits: return;
    case ArmedEvents::Heard::deliver: return deliver(std::move(notification));
    case ArmedEvents::Heard::given_up: return given_up();
  }
}

void Notifier::on_event_sign(std::uint32_t number, bool set_off) {
  const RecordStream::Past record = records_.past(number);
  if (record == RecordStream::Past::beyond || armed_.early() >= 2 * std::size_t{granted_} + kRecordWindow)
    return peer_.violation("a trigger of an event that cannot have been sent");
  const bool taken = record == RecordStream::Past::taken;
  if (!set_off) {
    if (armed_.give_up(number, taken)) given_up();
  } else if (auto now = armed_.set_off(number, taken)) {
    deliver(std::move(*now));
  }
}

void Notifier::given_up() {
  ++given_up_;
  consumed(polled_);
}

void Notifier::consumed(std::uint32_t polled) {
  if (static_cast<std::int32_t>(polled - polled_) < 0) return;  // another thread has reported a later count
  polled_ = polled;
  const std::uint32_t total = polled + given_up_;
  // When half of the credits are used: the peer still has the other half, and not every event causes an update.
  if (total - credits_returned_ < std::max(1u, granted_ / 2)) return;
  credits_returned_ = total;
  if (!peer_.is_down()) peer_.send(record::Credit{credits_returned_});
}

void Notifier::on_immediate(std::uint32_t immediate) {
  if ((immediate & kEventBit) == 0) return on_count(immediate);
  if ((immediate & kBareEventBit) == 0) return on_event_sign(records_.nearest(immediate & kEventValue), true);
  if (!check_credit()) return;
  Notification notification;
  notification.peer = peer_.id();
  notification.immediate = immediate & kEventValue;
  deliver(std::move(notification));
}

void Notifier::on_count(std::uint32_t immediate) {
  if (!counters_.add(immediate)) return peer_.violation("more different counters than EngineOptions::max_counters");
  peer_.notice();
}

}  // namespace fairway::engine
