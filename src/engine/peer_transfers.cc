#include <algorithm>
#include <cstring>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/region_bounds.h"
#include "engine/worker.h"

// A transfer from its queue to the wire: start -> (queue) -> move: route, stripe, post. peer_completion.cc has the way
// back.
namespace fairway::engine {
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
  if (links_.settled() && links_.empty()) {
    const auto info = worker_.services().peers.find(id());
    return fail(slot,
                info && !info->reason.is_ok() ? info->reason : Status(ErrorCode::unsupported, "no link to the peer"));
  }
  if (t.deadline < next_deadline_) {
    next_deadline_ = t.deadline;
    wake_at(t.deadline);
  }
  if (links_.no_link_since() != kNever) wake_at(worker_.now());
  const TransferId first = t.request.options.after;
  bool first_failed = false;
  if (first && worker_.wait_for(first, slot, first_failed)) {
    t.phase = Phase::waiting;
    if (is_message(t.request.operation)) matcher_.hold_place(slot);
    return;
  }
  if (first_failed) return fail(slot, {ErrorCode::dependency_failed, "the transfer named in `after` failed"});
  enqueue(slot);
}

void Peer::dependency_ended(std::uint32_t slot, bool ok) {
  Transfer& t = transfer(slot);
  if (t.phase != Phase::waiting) return;
  t.phase = Phase::queued;
  if (!ok) return fail(slot, {ErrorCode::dependency_failed, "the transfer named in `after` failed"});
  enqueue(slot);
}

void Peer::enqueue(std::uint32_t slot) {
  if (is_message(transfer(slot).request.operation)) return matcher_.start(slot);
  take_turns(slot);
}

// ---- to the wire ----

bool Peer::pump() {
  if (!has_work() || down_ || links_.empty()) return false;
  refresh_views();
  bool any = post_records();
  requests_.proceed();
  any |= matcher_.announce();
  any |= post_retries();
  any |= post_transfers();
  if (records_.waiting() > 0) any |= post_records();
  return any;
}

void Peer::refresh_views() {
  for (std::size_t i = 0; i < links_.size(); ++i) views_[i] = links_[i].view();
}

// A transfer of no bytes to or from a device's memory is posted all the same: it is done once the way is open.
bool Peer::opens_a_way(const Transfer& t) const {
  return (t.request.operation == Operation::write || t.request.operation == Operation::read) &&
         t.route.method == Method::native && t.cursor.block < t.blocks && (t.memory_kinds & kDeviceBit) != 0;
}

bool Peer::post_transfers() {
  bool any = false;
  for (std::size_t priority = Turns::kPriorities; priority-- > 0;) {
    // One round: each transfer gets a turn, so that a large one does not hold up small ones behind it.
    for (std::uint32_t left = turns_.waiting(priority); left > 0 && turns_.waiting(priority) > 0; --left) {
      const std::uint32_t slot = turns_.take(priority);
      const Turn turn = move(slot);
      any |= turn == Turn::posted_all || turn == Turn::more || turn == Turn::failed;
      if (turn == Turn::no_room) {
        turns_.keep(slot);
        break;
      }
      if (turn == Turn::more) worker_.again();
      if (turn == Turn::more || turn == Turn::no_credit) turns_.rest(slot);
    }
  }
  return any;
}

Turn Peer::move(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (!notifier_.take_credit(t)) return Turn::no_credit;
  const bool known = recall_route(t);
  if (!known && t.bytes_posted == 0) find_places(t);
  const std::span<LinkView> views = views_for(t);
  if (!known && (t.route_version != route_version_ || t.route.method == Method::none)) {
    bool opening = false;
    const RouteRequest asked = wanted(t.request, t.total, &opening);
    t.route = opening ? Route() : route(asked, views);
    t.route_version = route_version_;
    t.memory_kinds = asked.memory_kinds;
    if (opening) return Turn::no_credit;  // the transport wakes the worker
    if (t.route.method == Method::staged && waits_for_link(t, t.route.method)) {
      t.route = {};
      return Turn::no_credit;
    }
    if (t.route.method == Method::none) {
      const bool ready = std::any_of(views.begin(), views.end(), [](const LinkView& view) { return view.usable; });
      if (!ready) return Turn::no_room;  // a link may come; link_timers() ends the wait
      if (waits_for_link(t, t.route.method)) return Turn::no_credit;
      fail(slot, Status(ErrorCode::unsupported, "no link to the peer can do this operation or carry it by messages")
                     .with_peer(text()));
      return Turn::failed;
    }
    remember_route(t);
  }
  if (t.route.method == Method::staged) return staging_client_.move(slot);
  t.phase = Phase::moving;
  if (t.total == 0 && opens_a_way(t)) {
    if (worker_.slices().room_for_pieces() == 0 || views[t.route.links[0]].room == 0) return Turn::no_room;
    t.cursor.block = t.blocks;
    ++t.pieces_out;
    const Piece nothing{0, 0, 0, 1, t.route.links[0]};
    return post_piece(slot, nothing, worker_.slices().acquire(id().slot)) ? Turn::posted_all : Turn::failed;
  }
  const bool by_messages = t.route.method == Method::by_messages;
  std::uint64_t largest = by_messages ? record_limit() : 0;
  if (!by_messages)
    for (const std::uint8_t link : t.route.chosen()) largest = std::max(largest, views[link].capabilities->piece_bytes);
  std::size_t limit = std::min(turns_.left(slot, largest), worker_.slices().room_for_pieces());
  if (by_messages) limit = std::min<std::size_t>(limit, requests_.left());
  const std::size_t count =
      stripe(t.request.layout, t.blocks, t.cursor, t.route, views, record_limit(), std::span(pieces_.data(), limit));
  for (std::size_t i = 0; i < count; ++i) {
    ++t.pieces_out;
    turns_.spend(slot, pieces_[i]);
    if (!post_piece(slot, pieces_[i], worker_.slices().acquire(id().slot))) return Turn::failed;
  }
  if (t.cursor.block >= t.blocks) {
    if (t.pieces_out == 0) advance(slot);  // nothing to move
    return Turn::posted_all;
  }
  const bool among_empty = t.cursor.offset == 0 && block_at(t.request.layout, t.cursor.block).length == 0;
  return among_empty || turns_.used_up(slot) ? Turn::more : Turn::no_room;
}

// Hands one piece to its link, under a token that it already holds. False: the transfer failed.
bool Peer::post_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token) {
  Transfer& t = transfer(slot);
  SliceEntry& entry = worker_.slices()[token];
  if (t.route.method == Method::by_messages && entry.use == SliceUse::free)
    return requests_.put_get_or_atomic(slot, piece, token);
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
  const auto rides = riding_immediate(slot, piece);
  if (rides) slice.op = transport::Op::write_immediate;
  if (rides) slice.immediate = *rides;
  t.immediate_sent = rides.has_value();
  slice.link = link.id;
  slice.token = token;
  entry = {SliceUse::data, slice.op,
           false,          piece.link,
           id().slot,      slot,
           serial,         rides ? link.immediates_posted++ : 0,
           piece,          links_.since_now()};
  links_.entered(link, slice.start_after != nullptr);
  link.queued_bytes += piece.bytes();
  t.bytes_posted += piece.bytes();
  t.links_used |= std::uint64_t{1} << piece.link;
  if (t.paced) link.pace.posted(least_of(link, t), worker_.now());
  t.needs_flush |=
      slice.op == transport::Op::write && link.capabilities->completion != transport::CompletionLevel::visible;
  worker_.stage(link.transport, slice);
  return true;
}

// What the write's own immediate tells, which comes once the bytes are visible; nothing where none may.
std::optional<std::uint32_t> Peer::riding_immediate(std::uint32_t slot, const Piece& piece) {
  const Transfer& t = transfer(slot);
  const Link& link = links_[piece.link];
  if (t.request.operation != Operation::write || t.blocks != 1 || piece.bytes() != t.total ||
      t.request.options.checksum || !link.capabilities->ordered || !link.has(transport::Op::write_immediate) ||
      link.capabilities->completion != transport::CompletionLevel::visible)
    return std::nullopt;
  const MemoryKind target = worker_.remotes().kind_of(block_at(t.request.layout, 0).remote);
  if ((link.capabilities->immediate_kinds >> static_cast<unsigned>(target) & 1) == 0) return std::nullopt;
  const Notify& notify = t.request.options.notify;
  if (notify.kind == NotifyKind::event) {
    const auto immediate = notifier_.event_immediate(slot);
    if (immediate && t.arming != kNoSlot) post_ahead(t.arming, piece.link);
    return immediate;
  }
  if (notify.kind != NotifyKind::counter || (notify.immediate & kEventBit) != 0) return std::nullopt;
  return notify.immediate;
}

Status Peer::fill_slice(Transfer& t, const Piece& piece, transport::Slice& slice, std::uint16_t transport) {
  Services& services = worker_.services();
  if (is_atomic(t.request.operation)) {
    const auto handle = worker_.remotes().handle(owner_, t.request.target.region, transport);
    if (!handle) return handle.status();
    slice.remote_handle = *handle;
    slice.remote_offset = t.request.target.offset;
    slice.length = sizeof(std::uint64_t);
    slice.operand = t.request.operand;
    slice.expected = t.request.expected;
    return {};
  }
  const Block first = block_at(t.request.layout, piece.block);
  if (Status status =
          resolve(services.regions, worker_.remotes(), t, piece.block, first, piece.offset, piece.length, slice.local);
      !status)
    return status;
  if (piece.count > 1) {  // of one pair of regions, whose access the first has shown
    const auto local = services.regions.find(first.local);
    const auto remote = services.remotes.find({first.remote.slot, first.remote.generation});
    if (!local || !remote) return {ErrorCode::revoked, "a region was deregistered or released"};
    const std::uint64_t bad =
        first_outside(t.request.layout, piece.block, piece.count, local->size_bytes, remote->size_bytes);
    if (bad != piece.block + piece.count)
      return {ErrorCode::out_of_range, "block " + std::to_string(bad) + " lies outside its regions"};
  }
  const auto handle = worker_.remotes().handle(owner_, first.remote, transport);
  if (!handle) return handle.status();
  slice.local_handle = worker_.locals().handle(first.local, transport);
  slice.start_after = t.request.options.start_after;
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

}  // namespace fairway::engine
