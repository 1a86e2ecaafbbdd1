#include "transport/host/strangers.h"

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

Status Strangers::listen(Task& task) {
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

void Strangers::look(Time now, const std::function<void(Knock)>& meet) {
  if (listener_ && now >= paused_until_) accept(now);
  std::erase_if(strangers_, [&](Stranger& stranger) { return hear(stranger, now, meet); });
}

Time Strangers::next() const {
  Time next = paused_until_ != 0 ? paused_until_ : kNever;
  if (!strangers_.empty()) next = std::min(next, after(strangers_.front().since, kPatience));
  return next;
}

void Strangers::accept(Time now) {
  resume();
  for (std::size_t i = 0; i < kPerLook; ++i) {
    if (strangers_.size() == kMost && !make_room(now)) return pause(after(strangers_.front().since, kEvictable));
    auto socket = listener_.accept(refusal("the peer's process is out of descriptors (its ulimit -n)"));
    if (!socket) return pause(after(now, kAfterExhaustion));
    if (!*socket) return;
    if (!socket->of_this_user()) continue;
    static_cast<void>(task_->watch(socket->fd()));
    strangers_.push_back({std::move(*socket), now});
  }
  pause(after(now, kPause));
}

// The oldest goes if it had time enough.
bool Strangers::make_room(Time now) {
  if (now < after(strangers_.front().since, kEvictable)) return false;
  task_->unwatch(strangers_.front().socket.fd());
  strangers_.erase(strangers_.begin());
  return true;
}

void Strangers::pause(Time until) {
  task_->unwatch(listener_.fd());
  paused_until_ = until;
}

void Strangers::resume() {
  if (std::exchange(paused_until_, 0) != 0) static_cast<void>(task_->watch(listener_.fd()));
}

bool Strangers::hear(Stranger& stranger, Time now, const std::function<void(Knock)>& meet) {
  auto message = stranger.socket.receive();
  if (message && !*message && now < after(stranger.since, kPatience)) return false;
  task_->unwatch(stranger.socket.fd());
  if (!message) {
    if (message.status().code() == ErrorCode::resource_exhausted)
      static_cast<void>(stranger.socket.send(refusal(message.status().message()), {}));
    return true;
  }
  if (!*message) return true;
  const auto note = decode_note((*message)->bytes);
  if (!note && note.status().code() == ErrorCode::version_mismatch)
    static_cast<void>(stranger.socket.send(refusal(note.status().message()), {}));
  if (note && note->kind == Note::Kind::hello && (*message)->fds.size() == Note::kHelloFds)
    meet({std::move(stranger.socket), *note, std::move((*message)->fds)});
  return true;
}

void Strangers::close() {
  strangers_.clear();
  listener_ = {};
  paused_until_ = 0;
}

}  // namespace fairway::transport::host
