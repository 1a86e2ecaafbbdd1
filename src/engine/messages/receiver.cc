#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/messages/matcher.h"
#include "engine/tables/route.h"

namespace fairway::engine {

void MessageReceiver::start(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  t.phase = Phase::matching;
  if (!t.queued) push(slot);
  match_tag(t.request.tag);
  tell_ahead(t.request.tag);
}

void MessageReceiver::go_on() {
  for (const std::uint64_t tag : std::exchange(ended_tags_, {})) {
    match_tag(tag);
    tell_ahead(tag);
  }
}

// ---- messages come ----

[[gnu::flatten]] void MessageReceiver::on_send_eager(const record::SendEager& send) {
  const auto payload = send.payload.bytes;
  const UnexpectedMessage message{send.tag, payload.size(), send.sender, true, {}};
  if (!charge(message)) return;
  // In its turn, and its receive waits: then no other of that tag does, and nothing needs to be kept.
  const std::uint32_t slot = messages_.is_first(send.sequence, send.tag) ? take_receive(send.tag) : kNoSlot;
  if (slot == kNoSlot) return keep(send);
  messages_.pass();
  match(slot, message, payload);
  tell_ahead(send.tag);
}

[[gnu::noinline]] void MessageReceiver::keep(const record::SendEager& send) {
  const auto payload = send.payload.bytes;
  arrived(send.sequence, {send.tag, payload.size(), send.sender, true, {payload.begin(), payload.end()}});
}

void MessageReceiver::on_send_announce(const record::SendAnnounce& send) {
  const UnexpectedMessage message{send.tag, send.length, send.sender, false, {}};
  if (charge(message)) arrived(send.sequence, message);
}

void MessageReceiver::on_send_direct(std::uint32_t number, const record::SendDirect& send, bool came) {
  const UnexpectedMessage message{send.tag, send.length, send.sender, false, {}, send.receiver, number, came};
  if (charge(message)) arrived(send.sequence, message);
}

bool MessageReceiver::charge(const UnexpectedMessage& message) {
  if (messages_.charge(message.length, message.eager)) return true;
  peer_.violation("more unexpected messages than the limit allows");
  return false;
}

// One that was charged.
[[gnu::noinline]] void MessageReceiver::arrived(std::uint32_t sequence, UnexpectedMessage message) {
  const std::uint64_t own_tag = message.tag;
  if (messages_.add_in_turn(sequence, message)) {
    match_tag(own_tag);
    return tell_ahead(own_tag);
  }
  if (!messages_.add(sequence, std::move(message))) return peer_.violation("a send with a number out of order");
  taken_tags_.clear();
  while (const auto tag = messages_.advance()) {
    taken_tags_.push_back(*tag);
    match_tag(*tag);
  }
  for (const std::uint64_t tag : taken_tags_) tell_ahead(tag);
}

void MessageReceiver::match_tag(std::uint64_t tag) {
  while (const UnexpectedMessage* const message = messages_.find(tag)) {
    const std::uint32_t slot = take_receive(tag);
    if (slot == kNoSlot) return;
    const UnexpectedMessage found = messages_.take(message);
    match(slot, found, found.payload);
  }
}

std::uint32_t MessageReceiver::take_receive(std::uint64_t tag) {
  if (!any_.empty()) {
    const std::uint32_t own = receives_.first(tag);
    const std::uint64_t before = own == kNoSlot ? any_.got() : peer_.transfer(own).rendezvous.place;
    const std::uint32_t slot = any_.take(tag, before);
    if (slot != kNoSlot) {
      peer_.adopt(slot);
      peer_.transfer(slot).phase = Phase::matching;
      return slot;
    }
  }
  const std::uint32_t slot = receives_.ready(tag);
  if (slot != kNoSlot) receives_.remove(slot);
  return slot;
}

void MessageReceiver::match(std::uint32_t slot, const UnexpectedMessage& message, std::span<const std::byte> payload) {
  Transfer& t = peer_.transfer(slot);
  t.rendezvous.other = message.sender;
  t.rendezvous.length = message.length;
  t.rendezvous.cost = unexpected_cost(message.length, message.eager);
  receives_.matched(message.eager);
  if (match_direct(slot, message)) return;
  if (message.length > t.total) {
    return receive_done(slot, Status(ErrorCode::truncated, "the message has " + std::to_string(message.length) +
                                                               " bytes, this receive takes " + std::to_string(t.total))
                                  .with_peer(peer_.text()));
  }
  if (!std::holds_alternative<Extent>(t.request.layout)) return match_pieces(slot, message, payload);
  const Slice& into = std::get<Extent>(t.request.layout).local;
  transport::RegionTable::Resolved local;
  const ErrorCode code = peer_.regions().resolve(into.region, into.offset, message.length, Access::none, local);
  if (code != ErrorCode::ok) return receive_done(slot, {code, "the receive's memory is gone"});
  // No CPU copies into a device's memory: the sender writes there, as if the message had only been announced.
  if (message.eager && (message.length == 0 || reached_by_cpu(local.kind))) {
    if (!payload.empty()) std::memcpy(local.address, payload.data(), payload.size());
    t.bytes_done = message.length;
    return receive_done(slot, {});
  }
  std::vector<std::byte> description;
  const auto window = memory_.open_window(into, message.length, eager_limit_, description);
  if (!window) return receive_done(slot, window.status());
  t.rendezvous.window = *window;
  t.rendezvous.announced = true;
  t.bytes_posted = message.length;  // from here on the memory may be written
  peer_.send(record::SendClear{message.sender, peer_.table().id(slot), {description}});
}

void MessageReceiver::match_pieces(std::uint32_t slot, const UnexpectedMessage& message,
                                   std::span<const std::byte> payload) {
  Transfer& t = peer_.transfer(slot);
  if (message.eager) {
    const ErrorCode code = spread(t, payload);
    if (code != ErrorCode::ok) return receive_done(slot, {code, "the receive's memory is gone"});
    t.bytes_done = message.length;
    return receive_done(slot, {});
  }
  std::vector<std::byte> description;
  const auto window = memory_.open_gathering(message.length, eager_limit_, description, t.rendezvous.gathered);
  if (!window) return receive_done(slot, window.status());
  t.rendezvous.window = *window;
  t.rendezvous.announced = true;
  peer_.send(record::SendClear{message.sender, peer_.table().id(slot), {description}});
}

ErrorCode MessageReceiver::spread(const Transfer& receive, std::span<const std::byte> from) const {
  for (const Extent& each : std::get<std::span<const Extent>>(receive.request.layout)) {
    const auto part = from.first(std::min<std::uint64_t>(each.local.length, from.size()));
    transport::RegionTable::Resolved local;
    const ErrorCode code =
        peer_.regions().resolve(each.local.region, each.local.offset, part.size(), Access::none, local);
    if (code != ErrorCode::ok) return code;
    if (!part.empty()) std::memcpy(local.address, part.data(), part.size());
    from = from.subspan(part.size());
  }
  return ErrorCode::ok;
}

// ---- receives that are told ahead ----

// Of that tag's receives the first, if it waits and its message may be too long to be eager.
void MessageReceiver::tell_ahead(std::uint64_t tag) {
  if (!receives_.may_tell() || peer_.is_down()) return;
  const std::uint32_t slot = receives_.first(tag);
  if (slot == kNoSlot) return;
  Transfer& t = peer_.transfer(slot);
  if (t.phase != Phase::matching || t.rendezvous.told || t.total <= eager_limit_) return;
  if (!std::holds_alternative<Extent>(t.request.layout)) return;
  if (any_.precedes(tag, t.rendezvous.place)) return;  // the next message is for that one, perhaps
  const Slice& into = std::get<Extent>(t.request.layout).local;
  transport::RegionTable::Resolved local;
  if (!memory_.worth_telling() ||
      peer_.regions().resolve(into.region, into.offset, t.total, Access::none, local) != ErrorCode::ok ||
      !reached_by_cpu(local.kind))
    return;
  std::vector<std::byte> description;
  const auto window = memory_.open_window(into, t.total, eager_limit_, description);
  if (!window) return;  // the region table is full: the message is announced then
  t.rendezvous.window = *window;
  receives_.tell(t);
  t.bytes_posted = t.total;  // from here on the memory may be written
  const std::uint32_t record =
      peer_.send(record::ReceivePosted{tag, peer_.table().id(slot), messages_.taken(), {description}});
  if (record != kNoSlot) t.rendezvous.number = peer_.records()[record].sequence;
}

// It ends without its message.
void MessageReceiver::withdraw(Transfer& receive) {
  if (receives_.untell(receive) && !peer_.is_down()) peer_.send(record::ReceiveWithdrawn{receive.rendezvous.number});
}

Transfer* MessageReceiver::told_receive(TransferId id) {
  if (!peer_.table().is_active(id)) return nullptr;
  Transfer& t = peer_.transfer(id.slot);
  const bool waits = t.request.peer == peer_.id() && t.request.operation == Operation::receive &&
                     t.phase == Phase::matching && t.rendezvous.told;
  return waits ? &t : nullptr;
}

// True: it is for this receive, whose window the sender has. Else that window closes.
[[gnu::noinline]] bool MessageReceiver::match_direct(std::uint32_t slot, const UnexpectedMessage& message) {
  Transfer& t = peer_.transfer(slot);
  if (!receives_.untell(t)) return false;
  if (message.receiver == peer_.table().id(slot) && message.length <= t.total) {
    t.rendezvous.announced = true;
    if (t.rendezvous.aborted != ErrorCode::ok) {
      send_ended(slot, t.rendezvous.aborted);
    } else {
      expect_bytes(slot, message.number, message.came || t.rendezvous.ended);
    }
    return true;
  }
  memory_.close_window(std::exchange(t.rendezvous.window, {}), kNoSlot);
  t.bytes_posted = 0;
  return false;
}

// ---- the end of a message ----

void MessageReceiver::on_send_armed(std::uint32_t number, const record::SendArmed& send, bool came) {
  Transfer* const t = matched_receive(send.receiver);
  if (t == nullptr) return;  // cancelled meanwhile; the sender was told
  if (send.length != t->rendezvous.length) return peer_.violation("the end of a message of another length");
  expect_bytes(send.receiver.slot, number, came);
}

void MessageReceiver::expect_bytes(std::uint32_t slot, std::uint32_t number, bool came) {
  const TransferId id = peer_.table().id(slot);
  if (std::ranges::find(endings_, id, &Ending::receiver) != endings_.end())
    return peer_.violation("the end of a message twice");
  if (!came) return endings_.push_back({number, id});
  Transfer& t = peer_.transfer(slot);
  t.bytes_done = t.rendezvous.length;
  receive_done(slot, {});
}

bool MessageReceiver::on_bytes(std::uint32_t number) {
  const auto ending = std::ranges::find(endings_, number, &Ending::number);
  if (ending != endings_.end()) {
    const TransferId receiver = ending->receiver;
    endings_.erase(ending);
    if (Transfer* const t = matched_receive(receiver)) {
      t->bytes_done = t->rendezvous.length;
      receive_done(receiver.slot, {});
    }
    return true;
  }
  return messages_.bytes_came(number);
}

Transfer* MessageReceiver::matched_receive(TransferId id) {
  if (!peer_.table().is_active(id)) return nullptr;
  Transfer& t = peer_.transfer(id.slot);
  const bool matched = t.request.peer == peer_.id() && t.request.operation == Operation::receive &&
                       t.phase == Phase::matching && t.rendezvous.announced;
  return matched ? &t : nullptr;
}

void MessageReceiver::on_send_written(const record::SendWritten& written) {
  const auto& [id, bytes] = written;
  Transfer* t = matched_receive(id);
  if (t == nullptr && (t = told_receive(id)) != nullptr) {  // it overtook the record that says what it is
    t->rendezvous.ended = true;
    return;
  }
  if (t == nullptr) return;  // cancelled meanwhile; the sender was told
  if (bytes != t->rendezvous.length) return peer_.violation("the end of a message of another length");
  t->bytes_done = bytes;
  receive_done(id.slot, {});
}

void MessageReceiver::on_send_abort(const record::SendAbort& abort) {
  const auto& [id, code] = abort;
  if (code == ErrorCode::ok) return peer_.violation("an abort of a send without an error");
  if (Transfer* const told = told_receive(id)) told->rendezvous.aborted = code;  // as above
  if (matched_receive(id) != nullptr) send_ended(id.slot, code);
}

void MessageReceiver::send_ended(std::uint32_t slot, ErrorCode code) {
  peer_.fail(slot, Status(code, "the peer's send ended: " + std::string(to_string(code))).with_peer(peer_.text()));
}

// The message is complete, or could not be taken. fail() closes a window that the peer may still write to first.
void MessageReceiver::receive_done(std::uint32_t slot, const Status& status) {
  if (!status) return peer_.fail(slot, status);
  const Transfer& t = peer_.transfer(slot);
  if (t.rendezvous.gathered != nullptr)
    if (const ErrorCode code = spread(t, {t.rendezvous.gathered, t.rendezvous.length}); code != ErrorCode::ok)
      return peer_.fail(slot, {code, "the receive's memory is gone"});
  tell_sender(peer_.transfer(slot), ErrorCode::ok);
  peer_.finish(slot, status);
}

void MessageReceiver::tell_sender(Transfer& receive, ErrorCode code) {
  if (!receive.rendezvous.other) return;
  if (!endings_.empty())
    std::erase_if(endings_, [&](const Ending& ending) { return &peer_.transfer(ending.receiver.slot) == &receive; });
  messages_.give_back(receive.rendezvous.cost);
  const record::SendDone done{receive.rendezvous.other, code, receive.rendezvous.cost};
  if (!peer_.is_down() && !peer_.send_now(done)) peer_.send(done);
  receive.rendezvous.other = {};
}

// ---- the end of a receive, early or not ----

void MessageReceiver::stop(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  withdraw(t);
  if (!peer_.is_down()) {  // it may have stood before one whose message is here
    ended_tags_.push_back(t.request.tag);
    peer_.again();
  }
  const ErrorCode code = t.status.code();
  tell_sender(t, code == ErrorCode::truncated || code == ErrorCode::deadline_exceeded ? code : ErrorCode::cancelled);
  if (!t.rendezvous.window) return;
  ++t.pieces_out;  // until nothing can land in the window any more
  memory_.close_window(std::exchange(t.rendezvous.window, {}), slot);
}

void MessageReceiver::window_closed(std::uint32_t slot) {
  --peer_.transfer(slot).pieces_out;
  peer_.drained(slot);
}

void MessageReceiver::ended(Rendezvous& rendezvous) {
  if (rendezvous.window) memory_.close_window(std::exchange(rendezvous.window, {}), kNoSlot);
}

}  // namespace fairway::engine
