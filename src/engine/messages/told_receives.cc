#include "engine/messages/told_receives.h"

#include <utility>

#include "engine/messages/record.h"

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

}  // namespace fairway::engine
