#include <algorithm>
#include <cstring>

#include "engine/peer.h"
#include "engine/worker.h"

// send and receive, matched per (peer, tag) in submission order. A small message travels with its announcement; a
// larger one is announced, and once its receive is there the sender writes straight into a window on the receive's
// memory, which is revoked as soon as the message is complete: the peer can touch exactly those bytes, and only
// meanwhile.
namespace fairway::engine {
namespace {

constexpr std::uint32_t kAnnouncementCost = 64;  // of room for unexpected messages, beyond an eager payload

std::uint32_t cost_of(std::uint64_t length, bool eager) {
  return kAnnouncementCost + (eager ? static_cast<std::uint32_t>(length) : 0);
}

}  // namespace

// ---- the sender ----

void Peer::start_send(std::uint32_t slot) {
  transfer(slot).phase = Phase::matching;
  sends_.push(slot);
  has_more();
  worker_.again();
}

bool Peer::announce_sends() {
  bool any = false;
  while (!sends_.empty()) {
    const std::uint32_t slot = sends_.head();
    Transfer& t = transfer(slot);
    if (t.phase == Phase::waiting) break;
    const std::size_t eager_limit = record_limit();
    const Slice& from = std::get<Extent>(t.request.layout).local;
    transport::RegionTable::Resolved local;
    const bool found =
        worker_.services().regions.resolve(from.region, from.offset, from.length, Access::none, local) == ErrorCode::ok;
    if (!found) {  // nothing is told of it: the peer would take it for a message of no bytes
      fail(slot, Status(ErrorCode::revoked, "the send's memory is gone").with_peer(text()));
      any = true;
      continue;
    }
    const bool eager = t.total <= eager_limit && !(t.request.options.checksum && t.total > 0) &&
                       (t.total == 0 || reached_by_cpu(local.kind));
    const std::uint32_t cost = cost_of(t.total, eager);
    if (unexpected_cost_there_ + cost > unexpected_room_there_) break;
    const TransferId id = worker_.services().transfers.id(slot);
    sends_.pop();
    t.rendezvous.announced = true;
    unexpected_cost_there_ += cost;
    if (eager) {
      t.bytes_done = t.bytes_posted = t.total;
      send(record::SendEager{
          send_sequence_++, t.request.tag, id, {std::span<const std::byte>(local.address, from.length)}});
    } else {
      send(record::SendAnnounce{send_sequence_++, t.request.tag, id, t.total});
    }
    any = true;
  }
  return any;
}

void Peer::on_send_clear(const record::SendClear& clear) {
  const auto& [sender, receiver, described] = clear;
  const auto window = parse_description(described.bytes);
  if (!window) return violation("a clear-to-send with a malformed window");
  Transfer* t = worker_.services().transfers.is_active(sender) ? &transfer(sender.slot) : nullptr;
  if (t == nullptr || t->request.peer != id_ || t->request.operation != Operation::send ||
      t->phase != Phase::matching || !t->rendezvous.announced || t->rendezvous.other)
    return abort_receive(receiver, ErrorCode::cancelled);  // the send was cancelled meanwhile
  if (window->size_bytes != t->total) return violation("a clear-to-send of another length");
  Status error;
  const RemoteRegionId remote = worker_.import(*this, *window, error);
  t->rendezvous.other = receiver;
  if (!error) return fail(sender.slot, error);
  t->rendezvous.remote_window = remote;
  std::get<Extent>(t->request.layout).remote = {remote, 0};
  t->bytes_done = t->bytes_posted = 0;
  t->phase = Phase::queued;
  take_turns(sender.slot);
}

void Peer::on_send_done(const record::SendDone& done) {
  const auto& [sender, code, cost] = done;
  if (cost > unexpected_cost_there_) return violation("the end of a send that costs more than was sent");
  unexpected_cost_there_ -= cost;
  if (!worker_.services().transfers.is_active(sender)) return;
  Transfer& t = transfer(sender.slot);
  if (t.request.peer != id_ || t.request.operation != Operation::send || !t.rendezvous.announced) return;
  if (t.phase == Phase::draining || t.phase == Phase::done) return;
  if (code == ErrorCode::ok && t.phase == Phase::matching) return finish(sender.slot, {});
  if (code == ErrorCode::ok) return violation("the end of a send that is not complete");
  t.rendezvous.other = {};  // the receive has ended: it needs no abort
  fail(sender.slot,
       Status(code, code == ErrorCode::truncated ? "the peer's receive is shorter than the message"
                                                 : "the peer's receive ended: " + std::string(to_string(code)))
           .with_peer(text()));
}

void Peer::abort_receive(TransferId receiver, ErrorCode code) {
  if (down_) return;
  send(record::SendAbort{receiver, code});
}

// ---- the receiver ----

void Peer::start_receive(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  t.phase = Phase::matching;
  if (!t.queued) receives_.push(slot);
  match_tag(t.request.tag);
}

void Peer::on_send_eager(const record::SendEager& send) {
  const auto payload = send.payload.bytes;
  Unexpected message;
  message.tag = send.tag;
  message.sender = send.sender;
  message.eager = true;
  message.length = payload.size();
  message.payload.assign(payload.begin(), payload.end());
  arrived(send.sequence, std::move(message));
}

void Peer::on_send_announce(const record::SendAnnounce& send) {
  Unexpected message;
  message.tag = send.tag;
  message.sender = send.sender;
  message.length = send.length;
  arrived(send.sequence, std::move(message));
}

// Sends are taken in the order of their numbers, whatever the order in which their records came.
void Peer::arrived(std::uint32_t sequence, Unexpected message) {
  unexpected_cost_here_ += cost_of(message.length, message.eager);
  if (unexpected_cost_here_ > worker_.services().options.unexpected_bytes_per_peer)
    return violation("more unexpected messages than it was given room for");
  if (sequence - expected_send_ >= worker_.services().options.unexpected_bytes_per_peer / kAnnouncementCost + 1 ||
      out_of_order_.contains(sequence))
    return violation("a send with a number out of order");
  out_of_order_.emplace(sequence, std::move(message));
  for (auto next = out_of_order_.find(expected_send_); next != out_of_order_.end();
       next = out_of_order_.find(++expected_send_)) {
    unexpected_.push_back(std::move(next->second));
    out_of_order_.erase(next);
    const std::uint64_t tag = unexpected_.back().tag;
    match_tag(tag);
  }
}

void Peer::match_tag(std::uint64_t tag) {
  for (;;) {
    const auto message =
        std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& m) { return m.tag == tag; });
    if (message == unexpected_.end()) return;
    std::uint32_t slot = receives_.head();
    while (slot != kNoSlot && transfer(slot).request.tag != tag) slot = transfer(slot).next;
    if (slot == kNoSlot || transfer(slot).phase == Phase::waiting) return;
    const Unexpected found = std::move(*message);
    unexpected_.erase(message);
    receives_.remove(slot);
    match(slot, found);
  }
}

void Peer::match(std::uint32_t slot, const Unexpected& message) {
  Transfer& t = transfer(slot);
  t.rendezvous.other = message.sender;
  t.rendezvous.length = message.length;
  t.rendezvous.cost = cost_of(message.length, message.eager);
  if (message.length > t.total) {
    return finish_receive(slot,
                          Status(ErrorCode::truncated, "the message has " + std::to_string(message.length) +
                                                           " bytes, this receive takes " + std::to_string(t.total))
                              .with_peer(text()));
  }
  Services& services = worker_.services();
  const Slice& into = std::get<Extent>(t.request.layout).local;
  transport::RegionTable::Resolved local;
  const ErrorCode code = services.regions.resolve(into.region, into.offset, message.length, Access::none, local);
  if (code != ErrorCode::ok) return finish_receive(slot, {code, "the receive's memory is gone"});
  // Into a device's memory the sender writes after all, as if it had only been announced.
  if (message.eager && (message.length == 0 || reached_by_cpu(local.kind))) {
    if (!message.payload.empty()) std::memcpy(local.address, message.payload.data(), message.payload.size());
    t.bytes_done = message.length;
    return finish_receive(slot, {});
  }
  auto window = services.regions.add(local.address, message.length, local.kind, Access::write);
  if (!window) return finish_receive(slot, window.status());
  t.rendezvous.window = *window;
  Description description = worker_.describe(*window);
  transport::MemoryDescription memory;
  memory.id = *window;
  memory.address = local.address;
  memory.size_bytes = message.length;
  memory.kind = local.kind;
  memory.access = Access::write;
  Worker::RegionFile file = worker_.file_of(into.region);
  file.offset += into.offset;
  memory.memory_fd = file.fd;
  memory.memory_offset = file.offset;
  Registration registration = worker_.register_with_all(memory);
  description.keys = registration.keys;
  worker_.add_region(*window, std::move(registration), file, worker_.at_of(into.region));
  t.rendezvous.announced = true;
  t.bytes_posted = message.length;  // from here on the memory may be written
  const auto described = format_description(std::move(description), record_limit());
  send(record::SendClear{message.sender, services.transfers.id(slot), {described}});
}

Transfer* Peer::matched_receive(TransferId id) {
  if (!worker_.services().transfers.is_active(id)) return nullptr;
  Transfer& t = transfer(id.slot);
  const bool fits = t.request.peer == id_ && t.request.operation == Operation::receive && t.phase == Phase::matching &&
                    t.rendezvous.announced;
  return fits ? &t : nullptr;
}

void Peer::on_send_written(const record::SendWritten& written) {
  const auto& [id, bytes] = written;
  Transfer* t = matched_receive(id);
  if (t == nullptr) return;  // cancelled meanwhile; the sender was told
  if (bytes != t->rendezvous.length) return violation("the end of a message of another length");
  t->bytes_done = bytes;
  finish_receive(id.slot, {});
}

void Peer::on_send_abort(const record::SendAbort& abort) {
  const auto& [id, code] = abort;
  if (code == ErrorCode::ok) return violation("an abort of a send without an error");
  if (matched_receive(id) != nullptr)
    fail(id.slot, Status(code, "the peer's send ended: " + std::string(to_string(code))).with_peer(text()));
}

// The message is complete, or could not be taken. A window that the peer may still write to is closed first: by fail().
void Peer::finish_receive(std::uint32_t slot, const Status& status) {
  if (!status) return fail(slot, status);
  Transfer& t = transfer(slot);
  tell_send_done(t, ErrorCode::ok);
  finish(slot, status);
}

void Peer::tell_send_done(Transfer& t, ErrorCode code) {
  if (!t.rendezvous.other) return;
  unexpected_cost_here_ -= t.rendezvous.cost;
  if (!down_) send(record::SendDone{t.rendezvous.other, code, t.rendezvous.cost});
  t.rendezvous.other = {};
}

// ---- the end of either, early or not ----

void Peer::stop_message(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.request.operation == Operation::send) {
    t.in_doubt |= t.bytes_posted > 0;
    if (t.rendezvous.other) abort_receive(t.rendezvous.other, ErrorCode::cancelled);
    return;
  }
  const ErrorCode code = t.status.code();
  tell_send_done(t, code == ErrorCode::truncated || code == ErrorCode::deadline_exceeded ? code : ErrorCode::cancelled);
  if (!t.rendezvous.window) return;
  // Completes once nothing can land in the window any more.
  ++t.pieces_out;
  const RegionId window = t.rendezvous.window;
  t.rendezvous.window = {};
  const TransferId id = worker_.services().transfers.id(slot);
  const PeerId peer = id_;
  (void)worker_.services().regions.revoke(window);
  worker_.remove_region(window, this, [worker = &worker_, window, id, peer](const Status&) {
    worker->services().regions.remove(window);
    if (!worker->services().transfers.is_active(id)) return;
    if (Peer* owner = worker->peer_of(peer)) owner->window_closed(id.slot);
  });
}

void Peer::window_closed(std::uint32_t slot) {
  --transfer(slot).pieces_out;
  drained(slot);
}

void Peer::close_window(Transfer& t) {
  if (t.rendezvous.remote_window) worker_.release(t.rendezvous.remote_window);
  t.rendezvous.remote_window = {};
  if (!t.rendezvous.window) return;
  const RegionId window = t.rendezvous.window;
  t.rendezvous.window = {};
  (void)worker_.services().regions.revoke(window);
  worker_.remove_region(window, this,
                        [worker = &worker_, window](const Status&) { worker->services().regions.remove(window); });
}

}  // namespace fairway::engine
