#include "transport/tcp/strangers.h"

#include <algorithm>
#include <utility>

#include "core/turns_away.h"

namespace fairway::transport::tcp {
namespace {

constexpr Time kCalmLook = kMillisecond;  // while nobody sleeps; a listener wakes who does

}  // namespace

Status Strangers::listen(const std::string& address, Task& task) {
  if (listener_) return {};
  task_ = &task;
  auto opened = runtime_.network.listen(address, task);
  if (!opened) return opened.status();
  listener_ = std::move(*opened);
  const auto words = encode_welcome(0, Answer::out_of_descriptors);
  if (auto* door = dynamic_cast<TurnsAway*>(listener_.get())) door->turn_away_with({words.begin(), words.end()});
  return {};
}

void Strangers::look(Time now, const Meet& meet) {
  if (!listener_) return;
  if (now >= paused_until_ && (now >= look_at_ || listener_->announced())) {
    accept(now);
    look_at_ = after(now, kCalmLook);
  }
  std::erase_if(strangers_, [&](Stranger& stranger) { return hear(stranger, now, meet); });
}

Time Strangers::next() const {
  Time next = paused_until_ != 0 ? paused_until_ : kNever;
  if (!strangers_.empty()) next = std::min(next, after(strangers_.front().since, kPatience));
  return next;
}

void Strangers::accept(Time now) {
  paused_until_ = 0;
  for (std::size_t i = 0; i < kPerLook; ++i) {
    if (strangers_.size() == kMost && !make_room(now)) {
      paused_until_ = after(strangers_.front().since, kEvictable);
      return;
    }
    auto accepted = listener_->accept(*task_);
    if (!accepted) {
      paused_until_ = after(now, kAfterExhaustion);
      return;
    }
    if (*accepted == nullptr) return;
    strangers_.push_back({std::move(*accepted), now, {}, 0});
  }
  paused_until_ = after(now, kPause);
}

// The oldest goes if it had time enough.
bool Strangers::make_room(Time now) {
  if (now < after(strangers_.front().since, kEvictable)) return false;
  strangers_.erase(strangers_.begin());
  return true;
}

bool Strangers::hear(Stranger& stranger, Time now, const Meet& meet) {
  const auto got = stranger.channel->receive(std::span(stranger.bytes).subspan(stranger.heard));
  if (!got) return true;
  stranger.heard += *got;
  if (stranger.heard < kHelloBytes) return now >= after(stranger.since, kPatience);
  if (const auto hello = decode_hello(stranger.bytes)) meet(std::move(stranger.channel), *hello);
  return true;
}

void Strangers::close() {
  listener_.reset();
  strangers_.clear();
  paused_until_ = 0;
}

}  // namespace fairway::transport::tcp
