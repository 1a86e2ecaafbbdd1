#include <algorithm>
#include <cstring>

#include "engine/peer.h"
#include "engine/worker.h"

// A transfer from its queue to the wire and back: start -> (queue) -> move: route, stripe, post -> on_slice -> advance ->
// flush, checksum, notification as asked for -> finish.
namespace fairway::engine {
namespace {

transport::Op op_of(Operation operation) {
  switch (operation) {
    case Operation::read: return transport::Op::read;
    case Operation::fetch_add: return transport::Op::fetch_add;
    case Operation::compare_swap: return transport::Op::compare_swap;
    default: return transport::Op::write;
  }
}

bool is_atomic(Operation operation) {
  return operation == Operation::fetch_add || operation == Operation::compare_swap;
}

constexpr std::uint8_t bit(MemoryKind kind) { return static_cast<std::uint8_t>(1u << static_cast<unsigned>(kind)); }

}  // namespace

// ---- queues ----

void Peer::push(Fifo& fifo, std::uint32_t slot, bool front) {
  Transfer& t = transfer(slot);
  t.queued = true;
  ++fifo.size;
  t.next = front ? fifo.head : kNoSlot;
  if (fifo.head == kNoSlot)
    fifo.head = fifo.tail = slot;
  else if (front)
    fifo.head = slot;
  else
    fifo.tail = transfer(fifo.tail).next = slot;
}

std::uint32_t Peer::pop(Fifo& fifo) {
  const std::uint32_t slot = fifo.head;
  Transfer& t = transfer(slot);
  fifo.head = t.next;
  if (fifo.head == kNoSlot) fifo.tail = kNoSlot;
  t.queued = false;
  --fifo.size;
  return slot;
}

void Peer::remove(Fifo& fifo, std::uint32_t slot) {
  std::uint32_t before = kNoSlot;
  for (std::uint32_t i = fifo.head; i != kNoSlot; before = i, i = transfer(i).next) {
    if (i != slot) continue;
    const std::uint32_t next = transfer(i).next;
    if (before == kNoSlot)
      fifo.head = next;
    else
      transfer(before).next = next;
    if (fifo.tail == slot) fifo.tail = before;
    transfer(slot).queued = false;
    --fifo.size;
    return;
  }
}

void Peer::activate(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  t.previous_active = kNoSlot;
  t.next_active = first_active_;
  if (first_active_ != kNoSlot) transfer(first_active_).previous_active = slot;
  first_active_ = slot;
  ++active_count_;
}

void Peer::retire(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.previous_active != kNoSlot)
    transfer(t.previous_active).next_active = t.next_active;
  else
    first_active_ = t.next_active;
  if (t.next_active != kNoSlot) transfer(t.next_active).previous_active = t.previous_active;
  --active_count_;
}

// ---- the beginning ----

void Peer::start(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  activate(slot);
  t.phase = Phase::queued;
  if (down_) return fail(slot, down_reason_);
  if (settled_ && links_.empty()) {
    const auto info = worker_.services().peers.find(id_);
    return fail(slot, info && !info->reason.is_ok() ? info->reason : Status(ErrorCode::unsupported, "no link to the peer"));
  }
  if (t.deadline < next_deadline_) {
    next_deadline_ = t.deadline;
    worker_.wake_at(t.deadline);
  }
  if (no_link_since_ != kNever) worker_.wake_at(worker_.now());
  const TransferId first = t.request.options.after;
  bool first_failed = false;
  if (first && worker_.wait_for(first, slot, first_failed)) {
    t.phase = Phase::waiting;
    if (t.request.operation == Operation::send) push(sends_, slot);      // keep their places in the order of matching
    if (t.request.operation == Operation::receive) push(receives_, slot);
    return;
  }
  if (first_failed)
    return fail(slot, {ErrorCode::dependency_failed, "the transfer named in `after` failed"});
  enqueue(slot);
}

void Peer::dependency_ended(std::uint32_t slot, bool ok) {
  Transfer& t = transfer(slot);
  if (t.phase != Phase::waiting) return;
  t.phase = Phase::queued;
  if (!ok) return fail(slot, {ErrorCode::dependency_failed, "the transfer named in `after` failed"});
  if (t.request.operation == Operation::send || t.request.operation == Operation::receive) {
    t.phase = Phase::matching;
    if (t.request.operation == Operation::receive) return start_receive(slot);
    return worker_.again();
  }
  enqueue(slot);
}

void Peer::enqueue(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.request.operation == Operation::send) return start_send(slot);
  if (t.request.operation == Operation::receive) return start_receive(slot);
  push(queue_of(t), slot);
}

// ---- to the wire ----

bool Peer::pump() {
  const bool work = records_.waiting() > 0 || sends_.head != kNoSlot || !retries_.empty() || !wants_request_.empty() ||
                    queues_[0].size + queues_[1].size + queues_[2].size > 0;
  if (!work || down_ || links_.empty()) return false;
  refresh_views();
  bool any = post_records();
  continue_requests();
  any |= announce_sends();
  any |= post_retries();
  any |= post_transfers();
  if (records_.waiting() > 0) any |= post_records();
  return any;
}

void Peer::refresh_views() {
  for (std::size_t i = 0; i < links_.size(); ++i) views_[i] = links_[i].view();
}

Route Peer::route_for(const Request& request) const {
  std::array<LinkView, kMaxLinks> views;
  for (std::size_t i = 0; i < links_.size(); ++i) views[i] = links_[i].view();
  const std::uint64_t bytes = is_atomic(request.operation) ? 8 : total_bytes(request.layout);
  return route({op_of(request.operation), bytes, bit(MemoryKind::host)}, std::span(views.data(), links_.size()));
}

bool Peer::post_records() {
  bool any = false;
  for (std::uint32_t index = records_.next(); index != kNoSlot; index = records_.next()) {
    const Record& record = worker_.records()[index];
    int best = -1;
    bool carried = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const Link& link = links_[i];
      if (link.state != LinkState::ready || !link.has(transport::Op::message) ||
          link.capabilities->max_message_bytes < record.size)
        continue;
      carried = true;
      if (views_[i].room == 0) continue;
      if (best < 0 || views_[i].queued_bytes < views_[static_cast<std::size_t>(best)].queued_bytes)
        best = static_cast<int>(i);
    }
    if (carried) {
      records_stuck_since_ = kNever;
    } else if (records_stuck_since_ == kNever) {
      records_stuck_since_ = worker_.now();
      worker_.wake_at(worker_.now());
    }
    if (best < 0 || worker_.slices().room() == 0) break;
    const auto chosen = static_cast<std::uint8_t>(best);
    Link& link = links_[chosen];
    records_.posted(index);
    transport::Slice slice;
    slice.op = transport::Op::message;
    slice.link = link.id;
    slice.local = worker_.records()[index].bytes.data();
    slice.length = record.size;
    slice.token = worker_.slices().acquire();
    SliceEntry& entry = worker_.slices()[slice.token];
    entry = {SliceUse::record, slice.op, false, chosen, id_.slot, index, entry.serial, 0, {0, 0, record.size, 1, chosen},
             worker_.now()};
    if (link.in_flight++ == 0) link.last_progress = worker_.now();
    link.queued_bytes += record.size;
    --views_[chosen].room;
    views_[chosen].queued_bytes += record.size;
    ++slices_out_;
    worker_.stage(link.transport, slice);
    any = true;
  }
  return any;
}

bool Peer::post_retries() {
  bool any = false;
  for (std::size_t i = 0; i < retries_.size();) {
    const std::uint32_t token = retries_[i];
    SliceEntry& entry = worker_.slices()[token];
    Transfer& t = transfer(entry.owner);
    const Route choice =
        route({op_of(t.request.operation), entry.piece.bytes(), bit(MemoryKind::host)}, std::span(views_.data(), links_.size()));
    const auto chosen = choice.chosen();
    const auto fits = [&](std::uint8_t link) {
      const transport::Capabilities& c = *links_[link].capabilities;
      const auto shape = std::holds_alternative<Strided>(t.request.layout) ? transport::Shape::strided
                                                                          : transport::Shape::indexed;
      return views_[link].room > 0 && entry.piece.bytes() <= c.max_slice_bytes &&
             (entry.piece.count == 1 || (c.shapes & static_cast<std::uint8_t>(shape)) != 0);
    };
    const auto link = std::find_if(chosen.begin(), chosen.end(), fits);
    if (choice.method == Method::native && link != chosen.end()) {
      retries_.erase(retries_.begin() + static_cast<std::ptrdiff_t>(i));
      entry.retry = false;
      Piece piece = entry.piece;
      piece.link = *link;
      --views_[*link].room;
      views_[*link].queued_bytes += piece.bytes();
      any |= post_piece(entry.owner, piece, token);
      continue;
    }
    // No link takes the piece as it was cut: cut the same bytes anew, as a transfer of their own would be.
    bool usable = false;
    for (const LinkView& view : std::span(views_.data(), links_.size())) usable |= view.usable;
    const bool has_room = std::any_of(chosen.begin(), chosen.end(), [&](std::uint8_t l) { return views_[l].room > 0; });
    if (!usable || (choice.method == Method::native && !has_room)) break;
    if (choice.method == Method::none) {
      const std::uint32_t slot = entry.owner;
      drop_piece(token);
      fail(slot, Status(ErrorCode::link_failed, "the links that are left cannot do this operation").with_peer(text()));
      i = 0;
      continue;
    }
    const std::uint64_t limit = choice.method == Method::native ? links_[chosen.front()].capabilities->max_slice_bytes
                                                                : record_limit();
    const bool whole_blocks = entry.piece.count > 1;
    const bool small_enough = entry.piece.count == 1 && entry.piece.length <= limit;
    if (small_enough && choice.method == Method::by_messages) {
      if (requests_out_ >= kMaxRequests) break;
      retries_.erase(retries_.begin() + static_cast<std::ptrdiff_t>(i));
      entry.retry = false;
      any |= request_piece(entry.owner, entry.piece, token);
      continue;
    }
    if (worker_.slices().room() == 0) break;
    const std::uint32_t rest = worker_.slices().acquire();
    SliceEntry& second = worker_.slices()[rest];
    const std::uint32_t serial = second.serial;
    second = worker_.slices()[token];
    second.serial = serial;
    SliceEntry& head = worker_.slices()[token];
    if (whole_blocks) {
      head.piece.count = 1;
      second.piece.block += 1;
      second.piece.count -= 1;
    } else {
      head.piece.length = limit;
      second.piece.offset += limit;
      second.piece.length -= limit;
    }
    ++t.pieces_out;
    retries_.push_back(rest);
  }
  return any;
}

bool Peer::post_transfers() {
  bool any = false;
  for (int priority = 2; priority >= 0; --priority) {
    Fifo& fifo = queues_[static_cast<std::size_t>(priority)];
    // One round: each transfer gets a turn, so that a large one does not hold up small ones behind it.
    for (std::uint32_t left = fifo.size; left > 0 && fifo.head != kNoSlot; --left) {
      const std::uint32_t slot = pop(fifo);
      const Turn turn = move(slot);
      any |= turn == Turn::posted_all || turn == Turn::more || turn == Turn::failed;
      if (turn == Turn::no_room) {
        push(fifo, slot, true);
        break;
      }
      if (turn == Turn::more) {
        push(fifo, slot);
        worker_.again();
      }
      if (turn == Turn::no_credit) push(fifo, slot);
    }
  }
  return any;
}

bool Peer::take_credit(Transfer& t) {
  if (t.request.options.notify.kind != NotifyKind::event || t.credit_taken) return true;
  if (events_sent_ - events_consumed_there_ >= event_credits_) return false;
  ++events_sent_;
  t.credit_taken = true;
  return true;
}

Peer::Turn Peer::move(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (!take_credit(t)) return Turn::no_credit;
  const std::span<LinkView> views(views_.data(), links_.size());
  if (t.route_version != route_version_ || t.route.method == Method::none) {
    t.route = route({op_of(t.request.operation), t.total, bit(MemoryKind::host)}, views);
    t.route_version = route_version_;
    if (t.route.method == Method::none) {
      const bool ready = std::any_of(views.begin(), views.end(), [](const LinkView& view) { return view.usable; });
      if (!ready) return Turn::no_room;  // a link may come; link_timers() ends the wait
      fail(slot, Status(ErrorCode::unsupported, "no link to the peer can do this operation or carry it by messages")
                     .with_peer(text()));
      return Turn::failed;
    }
  }
  t.phase = Phase::moving;
  std::array<Piece, kPiecesPerTurn> pieces;
  std::size_t limit = std::min<std::size_t>(kPiecesPerTurn, worker_.slices().room());
  if (t.route.method == Method::by_messages) limit = std::min<std::size_t>(limit, kMaxRequests - requests_out_);
  const std::size_t count =
      stripe(t.request.layout, t.blocks, t.cursor, t.route, views, record_limit(), std::span(pieces.data(), limit));
  for (std::size_t i = 0; i < count; ++i) {
    ++t.pieces_out;
    if (!post_piece(slot, pieces[i], worker_.slices().acquire())) return Turn::failed;
  }
  if (t.cursor.block >= t.blocks) {
    if (t.pieces_out == 0) advance(slot);  // nothing to move
    return Turn::posted_all;
  }
  return count > 0 && count == limit && limit == kPiecesPerTurn ? Turn::more : Turn::no_room;
}

// Hands one piece to its link, under a token that it already holds. False: the transfer failed.
bool Peer::post_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token) {
  Transfer& t = transfer(slot);
  SliceEntry& entry = worker_.slices()[token];
  if (t.route.method == Method::by_messages && entry.use == SliceUse::free) return request_piece(slot, piece, token);
  Link& link = links_[piece.link];
  transport::Slice slice;
  slice.op = op_of(t.request.operation);
  const Status status = fill_slice(t, piece, slice, link.transport);
  const std::uint32_t serial = entry.serial;
  if (!status) {
    worker_.slices().release(token);
    --t.pieces_out;
    fail(slot, status.with_peer(text()).with_link(link.text));
    return false;
  }
  const bool rides = t.request.options.notify.kind == NotifyKind::counter && slice.op == transport::Op::write &&
                     t.blocks == 1 && piece.bytes() == t.total && link.capabilities->ordered &&
                     link.has(transport::Op::write_immediate) && !t.request.options.checksum &&
                     link.capabilities->completion == transport::Meaning::visible;
  if (rides) {
    slice.op = transport::Op::write_immediate;
    slice.immediate = t.request.options.notify.immediate;
    t.immediate_sent = true;
  } else {
    t.immediate_sent = false;
  }
  slice.link = link.id;
  slice.token = token;
  entry = {SliceUse::data, slice.op, false,  piece.link, id_.slot, slot, serial, rides ? link.immediates_posted++ : 0,
           piece,          worker_.now()};
  if (link.in_flight++ == 0) link.last_progress = worker_.now();
  link.queued_bytes += piece.bytes();
  t.bytes_posted += piece.bytes();
  t.links_used |= std::uint64_t{1} << piece.link;
  t.needs_flush |= slice.op == transport::Op::write && link.capabilities->completion != transport::Meaning::visible;
  ++slices_out_;
  worker_.stage(link.transport, slice);
  return true;
}

Status Peer::fill_slice(Transfer& t, const Piece& piece, transport::Slice& slice, std::uint16_t transport) {
  Services& services = worker_.services();
  if (is_atomic(t.request.operation)) {
    const auto handle = worker_.remote_handle(*this, t.request.target.region, transport);
    if (!handle) return handle.status();
    slice.remote_handle = *handle;
    slice.remote_offset = t.request.target.offset;
    slice.length = sizeof(std::uint64_t);
    slice.operand = t.request.operand;
    slice.expected = t.request.expected;
    return {};
  }
  const Access needed = t.request.operation == Operation::read ? Access::read : Access::write;
  const auto check = [&](const Block& block) {
    transport::RegionTable::Resolved local;
    transport::RegionTable::Resolved remote;
    ErrorCode code = services.regions.resolve(block.local, block.local_offset + piece.offset, piece.length, Access::none, local);
    if (code != ErrorCode::ok) return Status(code, "block " + std::to_string(piece.block) + " lies outside its local region");
    code = services.remotes.resolve({block.remote.slot, block.remote.generation}, block.remote_offset + piece.offset,
                                    piece.length, needed, remote);
    if (code == ErrorCode::access_denied) return Status(code, "the peer did not register the region for this");
    if (code != ErrorCode::ok) return Status(code, "block " + std::to_string(piece.block) + " lies outside the peer's region");
    slice.local = local.address;
    return Status();
  };
  for (std::uint32_t i = 1; i < piece.count; ++i)
    if (Status status = check(block_at(t.request.layout, piece.block + i)); !status) return status;
  const Block first = block_at(t.request.layout, piece.block);
  if (Status status = check(first); !status) return status;
  const auto handle = worker_.remote_handle(*this, first.remote, transport);
  if (!handle) return handle.status();
  slice.local_handle = worker_.local_handle(first.local, transport);
  slice.remote_handle = *handle;
  slice.remote_offset = first.remote_offset + piece.offset;
  slice.length = piece.length;
  if (piece.count == 1) return {};
  slice.count = piece.count;
  if (const auto* strided = std::get_if<Strided>(&t.request.layout)) {
    slice.shape = transport::Shape::strided;
    slice.local_stride = strided->local_stride;
    slice.remote_stride = strided->remote_stride;
    return {};
  }
  const Paged& paged = std::get<Paged>(t.request.layout);
  slice.shape = transport::Shape::indexed;
  slice.local_stride = paged.local_unit;
  slice.remote_stride = paged.remote_unit;
  slice.local_index = paged.local_index.data() + piece.block;
  slice.remote_index = paged.remote_index.data() + piece.block;
  slice.local -= first.local_offset;  // indexed blocks count from the region's start
  slice.remote_offset = 0;
  return {};
}

// ---- and back ----

void Peer::leave_link(const SliceEntry& entry) {
  Link& link = links_[entry.link];
  --link.in_flight;
  link.queued_bytes -= std::min(link.queued_bytes, entry.piece.bytes());
  link.last_progress = worker_.now();
  link.full = false;
  --slices_out_;
}

void Peer::on_untaken(std::uint32_t token) {
  SliceEntry& entry = worker_.slices()[token];
  leave_link(entry);
  links_[entry.link].full = true;
  views_[entry.link].room = 0;
  if (entry.use == SliceUse::record) {
    const std::uint32_t record = entry.owner;
    worker_.slices().release(token);
    if (down_)
      worker_.records().release(record);
    else
      records_.send_again(record);
    return;
  }
  if (entry.op == transport::Op::write_immediate) {  // those staged behind it, which may yet be taken, move up
    --links_[entry.link].immediates_posted;
    for (std::uint32_t other = 0; other < worker_.slices().capacity(); ++other) {
      SliceEntry& later = worker_.slices()[other];
      if (later.use == SliceUse::data && !later.parked && !later.retry && later.peer == id_.slot &&
          later.link == entry.link && later.op == transport::Op::write_immediate && later.immediate > entry.immediate)
        --later.immediate;
    }
  }
  Transfer& t = transfer(entry.owner);
  t.bytes_posted -= entry.piece.bytes();
  if (t.phase == Phase::draining) return drop_piece(token);
  entry.retry = true;
  retries_.push_back(token);
}

void Peer::on_slice(std::uint32_t token, const transport::Event& event) {
  SliceEntry& entry = worker_.slices()[token];
  const SliceUse use = entry.use;
  if (use == SliceUse::free || use == SliceUse::request || entry.parked) return;  // a transport that lies; it is ours, so a bug
  const std::uint8_t index = entry.link;
  leave_link(entry);
  Link& link = links_[index];
  const bool ok = event.kind == transport::EventKind::done;
  const bool broken = !ok && (!link.is_up() || event.status.code() == ErrorCode::link_failed);
  if (!ok) ++link.errors;
  if (use == SliceUse::proof) {
    const std::uint32_t step = entry.owner;
    worker_.slices().release(token);
    if (step < 2 && !down_) proof_done(index, event.status);
    return;
  }
  if (ok) {
    ++link.slices;
    link.bytes_out += entry.piece.bytes();
  }
  if (use == SliceUse::record) {
    const std::uint32_t record = entry.owner;
    if (ok && !down_) {
      const std::uint32_t owner = worker_.records()[record].owner;
      if (worker_.records()[record].type() == RecordType::reply) --replies_out_;
      worker_.slices().release(token);
      records_.arrived(record);
      if (owner != kNoSlot) drained(owner);
      return;
    }
    if (down_) {
      worker_.slices().release(token);
      worker_.records().release(record);
      return;
    }
    entry.parked = true;
    if (link.is_up()) close_link(index, event.status);
    if (link.closed_here && link.closed_there) release_parked(index);
    return;
  }
  if (ok) return piece_done(token, event.value);
  if (transfer(entry.owner).phase == Phase::draining || down_) {
    if (event.status.effect() == Effect::unknown || broken) transfer(entry.owner).in_doubt = true;
    return drop_piece(token);
  }
  if (!broken) return piece_failed(token, event.status);
  entry.parked = true;
  if (link.is_up()) close_link(index, event.status);
  if (link.closed_here) release_parked(index);
}

void Peer::piece_done(std::uint32_t token, std::uint64_t value) {
  const SliceEntry entry = worker_.slices()[token];
  worker_.slices().release(token);
  Transfer& t = transfer(entry.owner);
  --t.pieces_out;
  t.bytes_done += entry.piece.bytes();
  if (is_atomic(t.request.operation)) t.completion.old_value = value;
  if (t.pieces_out > 0) return;
  if (t.phase == Phase::draining) return drained(entry.owner);
  if (t.cursor.block >= t.blocks) advance(entry.owner);
}

void Peer::piece_failed(std::uint32_t token, const Status& status) {
  const SliceEntry entry = worker_.slices()[token];
  const std::string link = links_[entry.link].text;
  worker_.slices().release(token);
  Transfer& t = transfer(entry.owner);
  --t.pieces_out;
  t.in_doubt |= status.effect() == Effect::unknown;
  fail(entry.owner, status.with_peer(text()).with_link(link));
}

void Peer::drop_piece(std::uint32_t token) {
  const std::uint32_t slot = worker_.slices()[token].owner;
  worker_.slices().release(token);
  Transfer& t = transfer(slot);
  --t.pieces_out;
  if (t.pieces_out == 0 && t.phase == Phase::draining) drained(slot);
}

// All pieces are done: what the request asks for beyond the bytes, step by step.
void Peer::advance(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::moving && t.needs_flush) {
    t.phase = Phase::flushing;
    if (!request_flush(slot)) wants_request_.push_back(slot);
    return;
  }
  if (t.request.options.checksum && t.checked.block < t.blocks && !is_atomic(t.request.operation)) {
    t.phase = Phase::verifying;
    if (!request_sum(slot)) wants_request_.push_back(slot);
    return;
  }
  notify(slot);
}

void Peer::notify(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  const Notify& notify = t.request.options.notify;
  if (t.request.operation == Operation::send) {  // the bytes are there: tell the receive
    t.phase = Phase::matching;
    const std::uint32_t record = worker_.records().acquire();
    ByteWriter writer = compose(worker_.records()[record], RecordType::send_written);
    writer.put(t.rendezvous.other.slot).put(t.rendezvous.other.generation).put(t.total);
    return send_record(record, writer);
  }
  t.phase = Phase::notifying;
  switch (notify.kind) {
    case NotifyKind::none:
      return finish(slot, {});
    case NotifyKind::signal:
      if (!request_signal(slot)) wants_request_.push_back(slot);
      return;
    case NotifyKind::counter:
      if (t.immediate_sent) return finish(slot, {});
      [[fallthrough]];
    case NotifyKind::event: {
      const std::uint32_t record = worker_.records().acquire();
      const bool event = notify.kind == NotifyKind::event;
      ByteWriter writer = compose(worker_.records()[record], event ? RecordType::event : RecordType::counter);
      writer.put(notify.immediate);
      if (event) writer.put_bytes(std::span(t.message.data(), t.message_bytes));
      t.notify_record = record;
      return send_record(record, writer, slot);
    }
  }
}

// ---- the end ----

void Peer::stop(std::uint32_t slot, const Status& why) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::draining || t.phase == Phase::done) return;
  if (t.notify_record != kNoSlot) return;  // it is as good as done
  fail(slot, why.with_peer(text()));
}

void Peer::force_stop(std::uint32_t slot) {
  for (std::uint32_t token = 0; token < worker_.slices().capacity(); ++token) {
    const SliceEntry& entry = worker_.slices()[token];
    if (entry.use == SliceUse::data && entry.owner == slot && entry.peer == id_.slot && !entry.parked && !entry.retry)
      close_link(entry.link, {ErrorCode::link_failed, "closed to end a transfer that did not stop in time"});
  }
}

void Peer::fail(std::uint32_t slot, const Status& status) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::draining || t.phase == Phase::done) return;
  if (t.queued) {
    remove(queue_of(t), slot);
    if (t.queued) remove(sends_, slot);
    if (t.queued) remove(receives_, slot);
  }
  if (t.phase == Phase::waiting) worker_.no_longer_waits(slot);
  t.phase = Phase::draining;
  t.status = status;
  std::erase(wants_request_, slot);
  if (t.notify_record != kNoSlot) {  // it may or may not have arrived
    if (!down_) worker_.records()[t.notify_record].owner = kNoSlot;
    t.in_doubt = true;
    return drained(slot);
  }
  ++t.pieces_out;  // so that the last drop below does not end the transfer while we look at it
  if (t.rendezvous.announced || t.request.operation == Operation::receive) stop_message(slot);
  for (std::uint32_t token = 0; token < worker_.slices().capacity(); ++token) {
    SliceEntry& entry = worker_.slices()[token];
    if (entry.owner != slot || entry.peer != id_.slot) continue;
    if (entry.use == SliceUse::request) {
      // Its reply will find nothing. What it asked the peer to do may still happen there, never here.
      t.in_doubt = true;
      --requests_out_;
      drop_piece(token);
    } else if (entry.use == SliceUse::data && (entry.parked || entry.retry)) {
      t.in_doubt |= entry.parked && !(links_[entry.link].closed_here && links_[entry.link].closed_there);
      if (entry.retry) std::erase(retries_, token);
      drop_piece(token);
    } else if (entry.use == SliceUse::data && !down_) {
      worker_.transport_at(links_[entry.link].transport).cancel(token);
    }
  }
  if (--t.pieces_out == 0) drained(slot);
}

// A notification has arrived, or nothing of a failed transfer is in flight any more.
void Peer::drained(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::notifying) return finish(slot, {});
  if (t.phase != Phase::draining || t.pieces_out > 0) return;
  const Effect effect = t.in_doubt ? Effect::unknown : t.bytes_posted == 0 ? Effect::not_applied : Effect::partial;
  finish(slot, t.status.with_effect(effect));
}

void Peer::finish(std::uint32_t slot, const Status& status) {
  Transfer& t = transfer(slot);
  retire(slot);
  t.phase = Phase::done;
  if (t.credit_taken && t.notify_record == kNoSlot) --events_sent_;  // it was never sent
  close_window(t);
  const bool ok = status.is_ok();
  const std::uint64_t bytes = t.request.operation == Operation::receive ? t.rendezvous.length : t.bytes_done;
  if (ok) {
    ++transfers_ok_;
    bytes_moved_ += bytes;
    latency_.record(worker_.now() - t.submitted);
  } else {
    ++transfers_failed_;
  }
  t.completion.id = worker_.services().transfers.id(slot);
  t.completion.status = status;
  t.completion.bytes = bytes;
  t.completion.user_data = t.request.options.user_data;
  worker_.ended(t);
  worker_.completed(slot);
}

}  // namespace fairway::engine
