#include <algorithm>
#include <string>
#include <utility>

#include "engine/messages/matcher.h"
#include "engine/messages/notifier.h"
#include "engine/messages/unmatched.h"
#include "engine/tables/route.h"

namespace fairway::engine {
namespace {

// A longer message gains little, and its write would hold up the messages behind it, whose order it keeps.
constexpr std::uint64_t kLongestDirect = 256 * 1024;

}  // namespace

bool MessageSender::announce() {
  bool any = false;
  for (; !sends_.empty(); any = true) {
    const std::uint32_t slot = sends_.head();
    if (peer_.transfer(slot).phase == Phase::waiting || !announce(slot)) break;
  }
  return any;
}

void MessageSender::start_now(std::uint32_t slot) {
  if (announce(slot)) return;
  sends_.push(slot);
  peer_.again();
}

bool MessageSender::announce(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  const bool short_enough = t.total <= eager_limit_ && !(t.request.options.checksum && t.total > 0);
  std::span<const std::byte> payload;
  bool by_cpu = true;
  if (look_at(t, short_enough, payload, by_cpu) != ErrorCode::ok) {
    // The peer is told nothing: it would take this for a message of no bytes.
    peer_.fail(slot, Status(ErrorCode::revoked, "the send's memory is gone").with_peer(peer_.text()));
    return true;
  }
  const bool eager = short_enough && (t.total == 0 || by_cpu);
  const std::uint32_t cost = unexpected_cost(t.total, eager);
  if (cost_there_ + cost > unexpected_limit_there_) return false;
  const TransferId id = peer_.table().id(slot);
  if (t.queued) sends_.pop();
  t.rendezvous.announced = true;
  cost_there_ += cost;
  const std::uint64_t tag = t.request.tag;
  const std::uint32_t sequence = told_.number_send(tag);
  ToldReceives::Told* const told = told_.find(tag);
  const bool direct = told != nullptr && !eager && by_cpu && send_direct(slot, sequence, *told);
  told_.forget(tag);
  if (direct) return true;
  if (!eager) {
    peer_.send(record::SendAnnounce{sequence, tag, id, t.total});
    return true;
  }
  t.bytes_done = t.bytes_posted = t.total;
  if (!peer_.send_now(record::SendEager{sequence, tag, id, {}}, payload))
    peer_.send(record::SendEager{sequence, tag, id, {payload}});
  if (t.request.options.local_completion) peer_.finish(slot, {});  // the record has the bytes
  return true;
}

ErrorCode MessageSender::look_at(const Transfer& send, bool copy, std::span<const std::byte>& bytes, bool& by_cpu) {
  const auto* const one = std::get_if<Extent>(&send.request.layout);
  transport::RegionTable::Resolved local;
  if (one != nullptr) {
    const Slice& from = one->local;
    const ErrorCode code = peer_.regions().resolve(from.region, from.offset, from.length, Access::none, local);
    bytes = {local.address, code == ErrorCode::ok ? from.length : 0};
    by_cpu = reached_by_cpu(local.kind);
    return code;
  }
  copy_.clear();
  for (const Extent& each : std::get<std::span<const Extent>>(send.request.layout)) {
    const Slice& from = each.local;
    const ErrorCode code = peer_.regions().resolve(from.region, from.offset, from.length, Access::none, local);
    if (code != ErrorCode::ok) return code;
    if (copy) copy_.insert(copy_.end(), local.address, local.address + from.length);
  }
  bytes = copy_;
  return ErrorCode::ok;
}

[[gnu::noinline]] bool MessageSender::send_direct(std::uint32_t slot, std::uint32_t sequence,
                                                  ToldReceives::Told& told) {
  Transfer& t = peer_.transfer(slot);
  if (!std::holds_alternative<Extent>(t.request.layout) || t.total == 0 ||
      t.total > std::min(told.window.size_bytes, kLongestDirect) || t.request.options.checksum ||
      t.request.options.start_after != nullptr)
    return false;
  Status error;
  const RemoteRegionId window = memory_.import_window(std::move(told.window), error);
  if (!error) return false;
  const std::uint32_t record =
      peer_.send(record::SendDirect{sequence, t.request.tag, peer_.table().id(slot), t.total, told.receiver});
  if (record == kNoSlot) {
    memory_.release_window(window);
    return false;
  }
  t.rendezvous.number = peer_.records()[record].sequence;
  begin_write(slot, told.receiver, window);
  t.rendezvous.direct = true;
  return true;
}

// All bytes, from the first.
void MessageSender::begin_write(std::uint32_t slot, TransferId receiver, RemoteRegionId window) {
  Transfer& t = peer_.transfer(slot);
  Rendezvous& r = t.rendezvous;
  if (r.remote_window) memory_.release_window(r.remote_window);
  r.other = receiver;
  r.remote_window = window;
  r.direct = r.signs = r.ended = r.gone = false;
  r.next = {};
  if (auto* const one = std::get_if<Extent>(&t.request.layout)) {
    one->remote = {window, 0};
  } else {
    const auto list = std::get<std::span<const Extent>>(t.request.layout);
    if (t.pieces.empty()) t.pieces.assign(list.begin(), list.end());
    std::uint64_t at = 0;
    for (Extent& piece : t.pieces) {
      piece.remote = {window, at};
      at += piece.local.length;
    }
    t.request.layout = std::span<const Extent>(t.pieces);
  }
  t.cursor = {};
  t.route = {};
  t.immediate_sent = false;
  t.bytes_done = t.bytes_posted = 0;
  t.phase = Phase::queued;
  if (!t.queued) peer_.take_turns(slot);
}

Transfer* MessageSender::send_that_waits(TransferId id) {
  if (!peer_.table().is_active(id)) return nullptr;
  Transfer& t = peer_.transfer(id.slot);
  const Rendezvous& r = t.rendezvous;
  const bool waits = t.request.peer == peer_.id() && t.request.operation == Operation::send && r.announced &&
                     (r.direct ? t.phase != Phase::draining && t.phase != Phase::done && !r.next
                               : t.phase == Phase::matching && !r.other);
  return waits ? &t : nullptr;
}

void MessageSender::on_send_clear(const record::SendClear& clear) {
  const auto& [sender, receiver, described] = clear;
  auto window = parse_description(described.bytes);
  if (!window) return peer_.violation("a clear-to-send with a malformed window");
  Transfer* t = send_that_waits(sender);
  if (t == nullptr) return abort_receive(receiver);  // the send was cancelled meanwhile
  if (window->size_bytes != t->total) return peer_.violation("a clear-to-send of another length");
  Status error;
  const RemoteRegionId remote = memory_.import_window(std::move(*window), error);
  if (!error) {
    t->rendezvous.other = receiver;
    return peer_.fail(sender.slot, error);
  }
  if (t->phase != Phase::moving && t->pieces_out == 0) return begin_write(sender.slot, receiver, remote);
  t->rendezvous.next = receiver;  // what is on its way to the first window ends first
  t->rendezvous.next_window = remote;
}

void MessageSender::written(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  Rendezvous& r = t.rendezvous;
  t.phase = Phase::matching;  // until the receive says that it is complete, or another one comes
  if (r.next) return begin_write(slot, r.next, std::exchange(r.next_window, {}));
  if (r.gone) {
    t.bytes_done = 0;
    return;
  }
  if (r.ended) return peer_.finish(slot, {});
  if (!t.immediate_sent) peer_.send(record::SendWritten{r.other, t.total});
}

void MessageSender::on_send_done(const record::SendDone& done) {
  const auto& [sender, code, cost] = done;
  if (cost > cost_there_) return peer_.violation("the end of a send that costs more than was sent");
  cost_there_ -= cost;
  if (!peer_.table().is_active(sender)) return;
  Transfer& t = peer_.transfer(sender.slot);
  if (t.request.peer != peer_.id() || t.request.operation != Operation::send || !t.rendezvous.announced) return;
  if (t.phase == Phase::draining || t.phase == Phase::done) return;
  if (code == ErrorCode::ok && t.phase == Phase::matching) return peer_.finish(sender.slot, {});
  if (code == ErrorCode::ok && t.immediate_sent) {  // it overtook the acknowledgement of the bytes
    t.rendezvous.ended = true;
    return;
  }
  if (code == ErrorCode::ok) return peer_.violation("the end of a send that is not complete");
  t.rendezvous.other = {};  // the receive has ended: it needs no abort
  peer_.fail(sender.slot,
             Status(code, code == ErrorCode::truncated ? "the peer's receive is shorter than the message"
                                                       : "the peer's receive ended: " + std::string(to_string(code)))
                 .with_peer(peer_.text()));
}

void MessageSender::abort_receive(TransferId receiver) {
  if (!peer_.is_down()) peer_.send(record::SendAbort{receiver, ErrorCode::cancelled});
}

void MessageSender::on_receive_posted(std::uint32_t number, const record::ReceivePosted& posted) {
  if (const char* const wrong = told_.posted(number, posted)) peer_.violation(wrong);
}

void MessageSender::on_receive_withdrawn(std::uint32_t number, bool to_come) {
  if (const char* const wrong = told_.withdrawn(number, to_come)) peer_.violation(wrong);
}

std::optional<std::uint32_t> MessageSender::ending_immediate(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  Rendezvous& r = t.rendezvous;
  if (r.signs || t.total > kLongestDirect || t.request.options.start_after != nullptr ||
      (t.memory_kinds & kDeviceBit) != 0)
    return std::nullopt;
  if (!r.direct) {
    const std::uint32_t record = peer_.send(record::SendArmed{r.other, t.total});
    if (record == kNoSlot) return std::nullopt;
    r.number = peer_.records()[record].sequence;
  }
  r.signs = true;
  return kEventBit | (r.number & kEventValue);
}

bool MessageSender::window_gone(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.request.operation != Operation::send || !t.rendezvous.other || t.phase != Phase::moving) return false;
  std::span<const std::byte> bytes;
  bool by_cpu = false;
  if (look_at(t, false, bytes, by_cpu) != ErrorCode::ok) return false;  // it is the send's own memory that is gone
  t.rendezvous.gone = true;
  t.in_doubt = true;  // some of the bytes may lie in the memory of a receive that is none of this message
  t.cursor.block = t.blocks;
  return true;
}

void MessageSender::stop(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  t.in_doubt |= t.bytes_posted > 0;
  for (const TransferId receiver : {t.rendezvous.other, t.rendezvous.next})
    if (receiver) abort_receive(receiver);
}

void MessageSender::ended(Rendezvous& rendezvous) {
  if (rendezvous.remote_window) memory_.release_window(std::exchange(rendezvous.remote_window, {}));
  if (rendezvous.next_window) memory_.release_window(std::exchange(rendezvous.next_window, {}));
}

void MessageMatcher::hold_place(std::uint32_t slot) {
  if (peer_.transfer(slot).request.operation == Operation::send)
    sender_.push(slot);
  else
    receiver_.push(slot);
}

void MessageMatcher::start(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.request.operation != Operation::send) return receiver_.start(slot);
  t.phase = Phase::matching;
  if (!t.queued) sender_.push(slot);
  peer_.again();
}

void MessageMatcher::start_now(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.request.operation != Operation::send) return receiver_.start(slot);
  t.phase = Phase::matching;
  sender_.start_now(slot);
}

void MessageMatcher::stop(std::uint32_t slot) {
  if (peer_.transfer(slot).request.operation == Operation::send)
    sender_.stop(slot);
  else
    receiver_.stop(slot);
}

void MessageMatcher::ended(Transfer& transfer) {
  sender_.ended(transfer.rendezvous);
  receiver_.ended(transfer.rendezvous);
}

}  // namespace fairway::engine
