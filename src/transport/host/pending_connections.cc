#include "transport/host/pending_connections.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace fairway::transport::host {
namespace {

std::vector<std::byte> refusal(std::string reason) {
  Note note;
  note.kind = Note::Kind::refused;
  note.reason = std::move(reason);
  return encode(note);
}

}  // namespace

Status PendingConnections::listen(Task& task) {
  if (listener_) return {};
  task_ = &task;
  Token random;
  runtime_.rng.fill(random);
  name_ = "fairway-";
  for (const std::byte each : random) name_ += fmt::format("{:02x}", std::to_integer<unsigned>(each));
  auto listener = sys::LocalListener::listen(name_);
  if (!listener) return listener.status();
  listener_ = std::move(*listener);
  return task_->watch(listener_.fd());
}

void PendingConnections::poll(Time now, const OnRequest& on_request) {
  if (listener_ && now >= paused_until_) accept(now);
  std::erase_if(all_, [&](Pending& pending) { return receive(pending, now, on_request); });
}

Time PendingConnections::next() const {
  Time next = paused_until_ != 0 ? paused_until_ : kNever;
  if (!all_.empty()) next = std::min(next, after(all_.front().since, kHelloTimeout));
  return next;
}

void PendingConnections::accept(Time now) {
  resume();
  for (std::size_t i = 0; i < kPerPoll; ++i) {
    if (all_.size() == kMost && !evict_oldest(now)) return pause(after(all_.front().since, kEvictable));
    auto socket = listener_.accept(refusal("the peer's process is out of file descriptors: raise its ulimit -n"));
    if (!socket) return pause(after(now, kAfterExhaustion));
    if (!*socket) return;
    if (!socket->of_this_user()) continue;
    static_cast<void>(task_->watch(socket->fd()));
    all_.push_back({std::move(*socket), now});
  }
  pause(after(now, kPause));
}

// Drops the oldest connection if it had enough time.
bool PendingConnections::evict_oldest(Time now) {
  if (now < after(all_.front().since, kEvictable)) return false;
  task_->unwatch(all_.front().socket.fd());
  all_.erase(all_.begin());
  return true;
}

void PendingConnections::pause(Time until) {
  task_->unwatch(listener_.fd());
  paused_until_ = until;
}

void PendingConnections::resume() {
  if (std::exchange(paused_until_, 0) != 0) static_cast<void>(task_->watch(listener_.fd()));
}

bool PendingConnections::receive(Pending& pending, Time now, const OnRequest& on_request) {
  auto message = pending.socket.receive();
  if (message && !*message && now < after(pending.since, kHelloTimeout)) return false;
  task_->unwatch(pending.socket.fd());
  if (!message) {
    if (message.status().code() == ErrorCode::resource_exhausted)
      static_cast<void>(pending.socket.send(refusal(message.status().message()), {}));
    return true;
  }
  if (!*message) return true;
  const auto note = decode_note((*message)->bytes);
  if (!note && note.status().code() == ErrorCode::version_mismatch)
    static_cast<void>(pending.socket.send(refusal(note.status().message()), {}));
  if (note && note->kind == Note::Kind::hello && (*message)->fds.size() == Note::kHelloFds)
    on_request({std::move(pending.socket), *note, std::move((*message)->fds)});
  return true;
}

void PendingConnections::close() {
  all_.clear();
  listener_ = {};
  paused_until_ = 0;
}

}  // namespace fairway::transport::host
