#include "collectives/host/messages.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "collectives/counter_range.h"
#include "collectives/state.h"

namespace fairway::collectives {
namespace {

constexpr std::size_t kMostStarted = 4096;
constexpr Timeout kMessageSlice{10'000};  // after which a waiting rank looks whether another thread has ended the group

}  // namespace

Messages::~Messages() {
  if (!lanes_.engine().is_open()) return;  // which has ended them
  for (auto& [number, one] : started_)
    if (!one.ended) take_back(one);
}

std::string Messages::text(Way way, int other) const {
  return fmt::format("{} {}", way == Way::send ? "send to" : "receive from",
                     lanes_.members()[static_cast<std::size_t>(other)].name);
}

Status Messages::check(const Message& message) const {
  const auto invalid = [](std::string text) { return Status(ErrorCode::invalid_argument, std::move(text)); };
  if (message.other < 0 || message.other >= lanes_.size() || message.other == lanes_.rank())
    return invalid(fmt::format("rank {} is not another rank of 0 to {}", message.other, lanes_.size() - 1));
  if (message.data == nullptr && message.size_bytes != 0) return invalid("data is null");
  if (started_.size() >= kMostStarted)
    return {ErrorCode::resource_exhausted, fmt::format("{} messages were started and not waited for", kMostStarted)};
  return {};
}

Result<MessageId> Messages::start(const Message& message) {
  const char* const what = message.way == Way::send ? "send" : "receive";
  if (Status status = check(message); !status) return status.with_context(what);
  Engine& engine = lanes_.engine();
  Started one{.way = message.way, .other = message.other, .transfer = {}, .region = {}, .deadline = {}};
  if (message.timeout.count() <= 0) {
    end(one, {ErrorCode::deadline_exceeded, "its timeout had passed when it was started"});
    started_.emplace(++last_, std::move(one));
    return MessageId{last_};
  }
  if (message.size_bytes != 0) {
    auto made = engine.register_memory(message.data, message.size_bytes, Access::none);
    if (!made) return made.status().with_context(what);
    one.region = *made;
  }
  const Slice slice = message.size_bytes == 0 ? lanes_.nothing() : Slice{one.region.id, 0, message.size_bytes};
  const PeerId peer = lanes_.members()[static_cast<std::size_t>(message.other)].peer;
  const std::uint64_t tag = tag_of(TagKind::message, name_, message.tag);
  const auto id = message.way == Way::send ? engine.send(peer, tag, slice) : engine.receive(peer, tag, slice);
  if (!id) {
    if (one.region.id) (void)engine.deregister(one.region);
    return id.status().with_context(text(message.way, message.other));
  }
  one.transfer = *id;
  one.deadline = after(Clock::now(), message.timeout);
  started_.emplace(++last_, std::move(one));
  return MessageId{last_};
}

void Messages::end(Started& one, Status status) {
  one.ended = true;
  if (one.region.id)
    if (Status ended = lanes_.engine().deregister(std::exchange(one.region, {})); !ended) status = std::move(ended);
  one.status = status.with_context(text(one.way, one.other));
}

void Messages::take_back(Started& one) {
  Engine& engine = lanes_.engine();
  const auto cancelled = engine.cancel(one.transfer, std::chrono::seconds(1));
  const auto done = engine.wait(one.transfer, Timeout{0});
  if (done && done->status.code() != ErrorCode::cancelled) {  // it had ended
    one.bytes = done->bytes;
    return end(one, done->status);
  }
  if (aborted_ && cancelled && cancelled->fenced)
    return end(one, {ErrorCode::cancelled, "this rank has aborted the communicator"});
  end(one, {cancelled && cancelled->fenced ? ErrorCode::deadline_exceeded : ErrorCode::not_fenced,
            one.way == Way::send ? "it has not received the message in time" : "it has sent no such message in time"});
  if (!done) (void)engine.wait(one.transfer, Timeout{0});  // it has ended with its memory: its room is free again
}

void Messages::look(Started& one, Timeout most) {
  if (one.ended) return;
  Engine& engine = lanes_.engine();
  const auto done = engine.wait(one.transfer, std::min({most, until(one.deadline), kMessageSlice}));
  if (done) {
    one.bytes = done->bytes;
    return end(one, done->status);
  }
  if (done.status().code() != ErrorCode::timed_out) return end(one, done.status());
  if (until(one.deadline).count() <= 0 || aborted_) take_back(one);
}

bool Messages::test(MessageId id) {
  const auto found = started_.find(id.number);
  if (found == started_.end()) return true;
  (void)lanes_.engine().poll({});
  look(found->second, Timeout{0});
  return found->second.ended;
}

Status Messages::wait(MessageId id, std::size_t* received) {
  const auto found = started_.find(id.number);
  if (found == started_.end())
    return {ErrorCode::not_found,
            fmt::format("message {} was never started, or its outcome was collected before", id.number)};
  while (!found->second.ended) look(found->second, Timeout::max());
  if (received != nullptr) *received = found->second.bytes;
  Status status = std::move(found->second.status);
  started_.erase(found);
  return status;
}

}  // namespace fairway::collectives
