#include "control/outbox.h"

#include <fmt/format.h>

namespace fairway::control {

std::optional<Outbox::Next> Outbox::next() const {
  if (written_ == count()) return std::nullopt;
  return Next{first_ + written_, (*messages_)[written_]};
}

Result<std::uint64_t> Outbox::acknowledge(std::uint64_t sequence) {
  // Only a written message can be acknowledged. An acknowledgement may repeat an earlier number.
  if (sequence >= first_ + written_)
    return Status(ErrorCode::protocol_error, fmt::format("the peer acknowledged message {} of {} that were sent",
                                                         sequence, first_ + written_ - 1));
  std::uint64_t freed = 0;
  while (first_ <= sequence) {
    freed += messages_->front().size() + kMessageOverhead;
    messages_->pop_front();
    ++first_;
    --written_;
  }
  if (empty()) messages_.reset();
  return freed;
}

Result<std::uint64_t> Outbox::resume(std::uint64_t sequence) {
  if (sequence + 1 < first_)
    return Status(
        ErrorCode::protocol_error,
        fmt::format("the peer resumed at message {} after it had acknowledged message {}", sequence, first_ - 1));
  written_ = count();
  auto freed = acknowledge(sequence);
  written_ = 0;
  return freed;
}

}  // namespace fairway::control
