#include "engine/messages/unmatched.h"

#include <algorithm>
#include <utility>

#include "engine/tables/record.h"

namespace fairway::engine {

std::uint32_t ToldReceives::number_send(std::uint64_t tag) {
  recent_tags_[sequence_ % kRecent] = tag;
  return sequence_++;
}

ToldReceives::Told* ToldReceives::find(std::uint64_t tag) {
  Told* last = nullptr;
  for (Told& each : told_)
    if (each.tag == tag && (last == nullptr || static_cast<std::int32_t>(each.number - last->number) > 0)) last = &each;
  return last;
}

void ToldReceives::forget(std::uint64_t tag) {
  if (!told_.empty()) std::erase_if(told_, [tag](const Told& each) { return each.tag == tag; });
}

const char* ToldReceives::posted(std::uint32_t number, const record::ReceivePosted& posted) {
  if (std::erase(withdrawn_, number) != 0) return nullptr;
  auto window = parse_description(posted.window.bytes);
  if (!window) return "a receive with a malformed window";
  const auto since = static_cast<std::int32_t>(sequence_ - posted.taken);
  if (since < 0) return "a receive behind sends that were never made";
  if (static_cast<std::uint32_t>(since) > kRecent || told_.size() >= kMostTold) return nullptr;
  for (std::uint32_t sequence = posted.taken; sequence != sequence_; ++sequence)
    if (recent_tags_[sequence % kRecent] == posted.tag) return nullptr;  // that one is for it
  told_.push_back({posted.tag, posted.receiver, number, std::move(*window)});
  return nullptr;
}

const char* ToldReceives::withdrawn(std::uint32_t number, bool to_come) {
  if (!to_come) {
    std::erase_if(told_, [number](const Told& told) { return told.number == number; });
  } else if (withdrawn_.size() >= kRecordWindow) {
    return "more receives withdrawn than it has told of";
  } else {
    withdrawn_.push_back(number);
  }
  return nullptr;
}

std::uint32_t WaitingReceives::first(std::uint64_t tag) const {
  std::uint32_t slot = queue_.head();
  while (slot != kNoSlot && table_[slot].request.tag != tag) slot = table_[slot].next;
  return slot;
}

void WaitingReceives::tell(Transfer& receive) {
  receive.rendezvous.told = true;
  ++told_;
}

bool WaitingReceives::untell(Transfer& receive) {
  if (!std::exchange(receive.rendezvous.told, false)) return false;
  --told_;
  return true;
}

bool UnexpectedMessages::add_in_turn(std::uint32_t sequence, UnexpectedMessage& message) {
  if (sequence != expected_ || !early_.empty()) return false;
  directs_ += message.receiver ? 1 : 0;
  messages_.push_back(std::move(message));
  ++expected_;
  return true;
}

bool UnexpectedMessages::add(std::uint32_t sequence, UnexpectedMessage message) {
  if (sequence - expected_ >= limit_ / unexpected_cost(0, false) + 1 || early_.contains(sequence)) return false;
  directs_ += message.receiver ? 1 : 0;
  early_.emplace(sequence, std::move(message));
  return true;
}

std::optional<std::uint64_t> UnexpectedMessages::advance() {
  const auto next = early_.find(expected_);
  if (next == early_.end()) return std::nullopt;
  messages_.push_back(std::move(next->second));
  early_.erase(next);
  ++expected_;
  return messages_.back().tag;
}

const UnexpectedMessage* UnexpectedMessages::find(std::uint64_t tag) const {
  const auto found = std::ranges::find(messages_, tag, &UnexpectedMessage::tag);
  return found == messages_.end() ? nullptr : &*found;
}

UnexpectedMessage UnexpectedMessages::take(const UnexpectedMessage* message) {
  const auto at = messages_.begin() + (message - messages_.data());
  UnexpectedMessage taken = std::move(*at);
  messages_.erase(at);
  directs_ -= taken.receiver ? 1 : 0;
  return taken;
}

bool UnexpectedMessages::bytes_came(std::uint32_t number) {
  if (directs_ == 0) return false;
  const auto is_it = [number](const UnexpectedMessage& each) { return each.receiver && each.number == number; };
  for (auto& [sequence, message] : early_)
    if (is_it(message)) return message.came = true;
  for (UnexpectedMessage& message : messages_)
    if (is_it(message)) return message.came = true;
  return false;
}

}  // namespace fairway::engine
