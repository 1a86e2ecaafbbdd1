#include "engine/messages/unexpected_messages.h"

#include <algorithm>
#include <utility>

namespace fairway::engine {

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
