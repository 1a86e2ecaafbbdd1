#include "transport/tcp/pending_connections.h"

#include <algorithm>
#include <utility>

#include "core/turns_away.h"

namespace fairway::transport::tcp {
namespace {

constexpr Time kAcceptEvery = kMillisecond;  // while the worker polls; a sleeping one is woken by the listener

}  // namespace

Status PendingConnections::listen(const std::string& address, Task& task) {
  if (listener_) return {};
  task_ = &task;
  auto opened = runtime_.network.listen(address, task);
  if (!opened) return opened.status();
  listener_ = std::move(*opened);
  const auto words = encode_welcome(0, Answer::out_of_descriptors);
  if (auto* door = dynamic_cast<TurnsAway*>(listener_.get())) door->turn_away_with({words.begin(), words.end()});
  return {};
}

void PendingConnections::look(Time now, const Meet& meet) {
  if (!listener_) return;
  if (now >= paused_until_ && (now >= look_at_ || listener_->announced())) {
    accept(now);
    look_at_ = after(now, kCalmLook);
  }
  std::erase_if(all_, [&](Pending& pending) { return hear(pending, now, meet); });
}

Time PendingConnections::next() const {
  Time next = paused_until_ != 0 ? paused_until_ : kNever;
  if (!all_.empty()) next = std::min(next, after(all_.front().since, kHelloWithin));
  return next;
}

void PendingConnections::accept(Time now) {
  paused_until_ = 0;
  for (std::size_t i = 0; i < kPerLook; ++i) {
    if (all_.size() == kMost && !make_room(now)) {
      paused_until_ = after(all_.front().since, kEvictable);
      return;
    }
    auto accepted = listener_->accept(*task_);
    if (!accepted) {
      paused_until_ = after(now, kAfterExhaustion);
      return;
    }
    if (*accepted == nullptr) return;
    all_.push_back({std::move(*accepted), now, {}, 0});
  }
  paused_until_ = after(now, kPause);
}

// Drops the oldest connection if it had enough time.
bool PendingConnections::make_room(Time now) {
  if (now < after(all_.front().since, kEvictable)) return false;
  all_.erase(all_.begin());
  return true;
}

bool PendingConnections::hear(Pending& pending, Time now, const Meet& meet) {
  const auto got = pending.channel->receive(std::span(pending.bytes).subspan(pending.heard));
  if (!got) return true;
  pending.heard += *got;
  if (pending.heard < kHelloBytes) return now >= after(pending.since, kHelloWithin);
  if (const auto hello = decode_hello(pending.bytes)) meet(std::move(pending.channel), *hello);
  return true;
}

void PendingConnections::close() {
  listener_.reset();
  all_.clear();
  paused_until_ = 0;
}

}  // namespace fairway::transport::tcp
