#include "transport/tcp/pending_connections.h"

#include <algorithm>
#include <utility>

#include "core/runtime.h"

namespace fairway::transport::tcp {
namespace {

// While the worker polls. One that sleeps is told by the listener, also for so many polls afterwards.
constexpr Time kAcceptEvery = kMillisecond;
constexpr std::uint32_t kToldPolls = 64;

}  // namespace

Status PendingConnections::listen(const std::string& address, Task& task) {
  if (listener_) return {};
  task_ = &task;
  auto opened = runtime_.network.listen(address, task);
  if (!opened) return opened.status();
  listener_ = std::move(*opened);
  const auto rejection = encode_welcome(0, Answer::out_of_descriptors);
  if (auto* sender = dynamic_cast<RejectionSender*>(listener_.get()))
    sender->set_rejection({rejection.begin(), rejection.end()});
  return {};
}

void PendingConnections::poll(Time now, const OnHello& on_hello) {
  if (!listener_) return;
  const bool told = polls_ < kToldPolls;
  if (told) ++polls_;
  const bool left = paused_until_ != 0;  // some wait since before the pause
  if (now >= paused_until_ && (left || listener_->announced() || (!told && now >= accept_at_))) {
    accept(now);
    accept_at_ = after(now, kAcceptEvery);
  }
  if (!all_.empty()) std::erase_if(all_, [&](Pending& pending) { return receive(pending, now, on_hello); });
}

Time PendingConnections::next() const {
  Time next = paused_until_ != 0 ? paused_until_ : kNever;
  if (!all_.empty()) next = std::min(next, after(all_.front().since, kHelloTimeout));
  return next;
}

void PendingConnections::accept(Time now) {
  paused_until_ = 0;
  for (std::size_t i = 0; i < kPerPoll; ++i) {
    if (all_.size() == kMost && !evict_oldest(now)) {
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
bool PendingConnections::evict_oldest(Time now) {
  if (now < after(all_.front().since, kEvictable)) return false;
  all_.erase(all_.begin());
  return true;
}

bool PendingConnections::receive(Pending& pending, Time now, const OnHello& on_hello) {
  const auto got = pending.channel->receive(std::span(pending.bytes).subspan(pending.received));
  if (!got) return true;
  pending.received += *got;
  if (pending.received < kHelloBytes) return now >= after(pending.since, kHelloTimeout);
  if (const auto hello = decode_hello(pending.bytes)) on_hello(std::move(pending.channel), *hello);
  return true;
}

void PendingConnections::close() {
  listener_.reset();
  all_.clear();
  paused_until_ = 0;
}

}  // namespace fairway::transport::tcp
