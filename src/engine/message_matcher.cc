#include "engine/message_matcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/operation.h"

namespace fairway::engine {
namespace {

constexpr std::uint32_t kAnnouncementCost = 64;  // of the room for unexpected messages, beyond an eager payload

std::uint32_t cost_of(std::uint64_t length, bool eager) {
  return kAnnouncementCost + (eager ? static_cast<std::uint32_t>(length) : 0);
}

}  // namespace

void MessageMatcher::hold_place(std::uint32_t slot) {
  (peer_.transfer(slot).request.operation == Operation::send ? sends_ : receives_).push(slot);
}

void MessageMatcher::start(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  t.phase = Phase::matching;
  const bool sends = t.request.operation == Operation::send;
  if (!t.queued) (sends ? sends_ : receives_).push(slot);
  if (sends) return peer_.again();
  match_tag(t.request.tag);
}

// ---- the sender ----

bool MessageMatcher::announce() {
  bool any = false;
  while (!sends_.empty()) {
    const std::uint32_t slot = sends_.head();
    Transfer& t = peer_.transfer(slot);
    if (t.phase == Phase::waiting) break;
    const Slice& from = std::get<Extent>(t.request.layout).local;
    transport::RegionTable::Resolved local;
    if (peer_.regions().resolve(from.region, from.offset, from.length, Access::none, local) != ErrorCode::ok) {
      // The peer is told nothing: it would take this for a message of no bytes.
      peer_.fail(slot, Status(ErrorCode::revoked, "the send's memory is gone").with_peer(peer_.text()));
      any = true;
      continue;
    }
    const bool eager = t.total <= eager_limit_ && !(t.request.options.checksum && t.total > 0) &&
                       (t.total == 0 || reached_by_cpu(local.kind));
    const std::uint32_t cost = cost_of(t.total, eager);
    if (cost_there_ + cost > room_there_) break;
    const TransferId id = peer_.transfers().id(slot);
    sends_.pop();
    t.rendezvous.announced = true;
    cost_there_ += cost;
    if (eager) {
      t.bytes_done = t.bytes_posted = t.total;
      peer_.send(record::SendEager{
          send_sequence_++, t.request.tag, id, {std::span<const std::byte>(local.address, from.length)}});
    } else {
      peer_.send(record::SendAnnounce{send_sequence_++, t.request.tag, id, t.total});
    }
    any = true;
  }
  return any;
}

Transfer* MessageMatcher::send_that_waits(TransferId id) {
  if (!peer_.transfers().is_active(id)) return nullptr;
  Transfer& t = peer_.transfer(id.slot);
  const bool waits = t.request.peer == peer_.id() && t.request.operation == Operation::send &&
                     t.phase == Phase::matching && t.rendezvous.announced && !t.rendezvous.other;
  return waits ? &t : nullptr;
}

void MessageMatcher::on_send_clear(const record::SendClear& clear) {
  const auto& [sender, receiver, described] = clear;
  const auto window = parse_description(described.bytes);
  if (!window) return peer_.violation("a clear-to-send with a malformed window");
  Transfer* t = send_that_waits(sender);
  if (t == nullptr) return abort_receive(receiver);  // the send was cancelled meanwhile
  if (window->size_bytes != t->total) return peer_.violation("a clear-to-send of another length");
  Status error;
  const RemoteRegionId remote = memory_.import_window(*window, error);
  t->rendezvous.other = receiver;
  if (!error) return peer_.fail(sender.slot, error);
  t->rendezvous.remote_window = remote;
  std::get<Extent>(t->request.layout).remote = {remote, 0};
  t->bytes_done = t->bytes_posted = 0;
  t->phase = Phase::queued;
  peer_.take_turns(sender.slot);
}

void MessageMatcher::written(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  t.phase = Phase::matching;  // until the receive says that it is complete
  peer_.send(record::SendWritten{t.rendezvous.other, t.total});
}

void MessageMatcher::on_send_done(const record::SendDone& done) {
  const auto& [sender, code, cost] = done;
  if (cost > cost_there_) return peer_.violation("the end of a send that costs more than was sent");
  cost_there_ -= cost;
  if (!peer_.transfers().is_active(sender)) return;
  Transfer& t = peer_.transfer(sender.slot);
  if (t.request.peer != peer_.id() || t.request.operation != Operation::send || !t.rendezvous.announced) return;
  if (t.phase == Phase::draining || t.phase == Phase::done) return;
  if (code == ErrorCode::ok && t.phase == Phase::matching) return peer_.finish(sender.slot, {});
  if (code == ErrorCode::ok) return peer_.violation("the end of a send that is not complete");
  t.rendezvous.other = {};  // the receive has ended: it needs no abort
  peer_.fail(sender.slot,
             Status(code, code == ErrorCode::truncated ? "the peer's receive is shorter than the message"
                                                       : "the peer's receive ended: " + std::string(to_string(code)))
                 .with_peer(peer_.text()));
}

void MessageMatcher::abort_receive(TransferId receiver) {
  if (!peer_.is_down()) peer_.send(record::SendAbort{receiver, ErrorCode::cancelled});
}

// ---- the receiver ----

void MessageMatcher::on_send_eager(const record::SendEager& send) {
  const auto payload = send.payload.bytes;
  arrived(send.sequence,
          {send.tag, payload.size(), send.sender, true, std::vector<std::byte>(payload.begin(), payload.end())});
}

void MessageMatcher::on_send_announce(const record::SendAnnounce& send) {
  arrived(send.sequence, {send.tag, send.length, send.sender, false, {}});
}

// Sends are taken in the order of their numbers, whatever the order in which their records came.
void MessageMatcher::arrived(std::uint32_t sequence, Unexpected message) {
  cost_here_ += cost_of(message.length, message.eager);
  if (cost_here_ > room_) return peer_.violation("more unexpected messages than it was given room for");
  if (sequence - expected_send_ >= room_ / kAnnouncementCost + 1 || out_of_order_.contains(sequence))
    return peer_.violation("a send with a number out of order");
  out_of_order_.emplace(sequence, std::move(message));
  for (auto next = out_of_order_.find(expected_send_); next != out_of_order_.end();
       next = out_of_order_.find(++expected_send_)) {
    unexpected_.push_back(std::move(next->second));
    out_of_order_.erase(next);
    const std::uint64_t tag = unexpected_.back().tag;
    match_tag(tag);
  }
}

void MessageMatcher::match_tag(std::uint64_t tag) {
  for (;;) {
    const auto message =
        std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& m) { return m.tag == tag; });
    if (message == unexpected_.end()) return;
    std::uint32_t slot = receives_.head();
    while (slot != kNoSlot && peer_.transfer(slot).request.tag != tag) slot = peer_.transfer(slot).next;
    if (slot == kNoSlot || peer_.transfer(slot).phase == Phase::waiting) return;
    const Unexpected found = std::move(*message);
    unexpected_.erase(message);
    receives_.remove(slot);
    match(slot, found);
  }
}

void MessageMatcher::match(std::uint32_t slot, const Unexpected& message) {
  Transfer& t = peer_.transfer(slot);
  t.rendezvous.other = message.sender;
  t.rendezvous.length = message.length;
  t.rendezvous.cost = cost_of(message.length, message.eager);
  if (message.length > t.total) {
    return receive_done(slot, Status(ErrorCode::truncated, "the message has " + std::to_string(message.length) +
                                                               " bytes, this receive takes " + std::to_string(t.total))
                                  .with_peer(peer_.text()));
  }
  const Slice& into = std::get<Extent>(t.request.layout).local;
  transport::RegionTable::Resolved local;
  const ErrorCode code = peer_.regions().resolve(into.region, into.offset, message.length, Access::none, local);
  if (code != ErrorCode::ok) return receive_done(slot, {code, "the receive's memory is gone"});
  // No CPU copies into a device's memory: the sender writes there, as if the message had only been announced.
  if (message.eager && (message.length == 0 || reached_by_cpu(local.kind))) {
    if (!message.payload.empty()) std::memcpy(local.address, message.payload.data(), message.payload.size());
    t.bytes_done = message.length;
    return receive_done(slot, {});
  }
  std::vector<std::byte> description;
  const auto window = memory_.open_window(into, message.length, eager_limit_, description);
  if (!window) return receive_done(slot, window.status());
  t.rendezvous.window = *window;
  t.rendezvous.announced = true;
  t.bytes_posted = message.length;  // from here on the memory may be written
  peer_.send(record::SendClear{message.sender, peer_.transfers().id(slot), {description}});
}

Transfer* MessageMatcher::matched_receive(TransferId id) {
  if (!peer_.transfers().is_active(id)) return nullptr;
  Transfer& t = peer_.transfer(id.slot);
  const bool matched = t.request.peer == peer_.id() && t.request.operation == Operation::receive &&
                       t.phase == Phase::matching && t.rendezvous.announced;
  return matched ? &t : nullptr;
}

void MessageMatcher::on_send_written(const record::SendWritten& written) {
  const auto& [id, bytes] = written;
  Transfer* t = matched_receive(id);
  if (t == nullptr) return;  // cancelled meanwhile; the sender was told
  if (bytes != t->rendezvous.length) return peer_.violation("the end of a message of another length");
  t->bytes_done = bytes;
  receive_done(id.slot, {});
}

void MessageMatcher::on_send_abort(const record::SendAbort& abort) {
  const auto& [id, code] = abort;
  if (code == ErrorCode::ok) return peer_.violation("an abort of a send without an error");
  if (matched_receive(id) != nullptr)
    peer_.fail(id.slot, Status(code, "the peer's send ended: " + std::string(to_string(code))).with_peer(peer_.text()));
}

// The message is complete, or could not be taken. fail() closes a window that the peer may still write to first.
void MessageMatcher::receive_done(std::uint32_t slot, const Status& status) {
  if (!status) return peer_.fail(slot, status);
  tell_sender(peer_.transfer(slot), ErrorCode::ok);
  peer_.finish(slot, status);
}

void MessageMatcher::tell_sender(Transfer& receive, ErrorCode code) {
  if (!receive.rendezvous.other) return;
  cost_here_ -= receive.rendezvous.cost;
  if (!peer_.is_down()) peer_.send(record::SendDone{receive.rendezvous.other, code, receive.rendezvous.cost});
  receive.rendezvous.other = {};
}

// ---- the end of either, early or not ----

void MessageMatcher::stop(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.request.operation == Operation::send) {
    t.in_doubt |= t.bytes_posted > 0;
    if (t.rendezvous.other) abort_receive(t.rendezvous.other);
    return;
  }
  const ErrorCode code = t.status.code();
  tell_sender(t, code == ErrorCode::truncated || code == ErrorCode::deadline_exceeded ? code : ErrorCode::cancelled);
  if (!t.rendezvous.window) return;
  ++t.pieces_out;  // until nothing can land in the window any more
  memory_.close_window(std::exchange(t.rendezvous.window, {}), slot);
}

void MessageMatcher::window_closed(std::uint32_t slot) {
  --peer_.transfer(slot).pieces_out;
  peer_.drained(slot);
}

void MessageMatcher::ended(Transfer& transfer) {
  Rendezvous& rendezvous = transfer.rendezvous;
  if (rendezvous.remote_window) memory_.release_window(std::exchange(rendezvous.remote_window, {}));
  if (rendezvous.window) memory_.close_window(std::exchange(rendezvous.window, {}), kNoSlot);
}

}  // namespace fairway::engine
