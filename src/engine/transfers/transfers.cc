#include "engine/transfers/transfers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/tables/request_check.h"
#include "engine/tables/route.h"

// Transfers, part 1: from the start of a transfer to its slices.
namespace fairway::engine {
namespace {

constexpr Time kBoundsOfAReceive = 30;  // times peer_timeout, without links

}  // namespace

void Transfers::activate(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  t.previous_active = kNoSlot;
  t.next_active = first_active_;
  if (first_active_ != kNoSlot) transfer(first_active_).previous_active = slot;
  first_active_ = slot;
  ++active_count_;
}

void Transfers::retire(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.previous_active != kNoSlot)
    transfer(t.previous_active).next_active = t.next_active;
  else
    first_active_ = t.next_active;
  if (t.next_active != kNoSlot) transfer(t.next_active).previous_active = t.previous_active;
  --active_count_;
}

void Transfers::watch_deadline(const Transfer& t) {
  if (t.deadline >= next_deadline_) return;
  next_deadline_ = t.deadline;
  peer_.wake_at(t.deadline);
}

void Transfers::adopt(std::uint32_t slot) {
  activate(slot);
  watch_deadline(transfer(slot));
}

void Transfers::start(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  activate(slot);
  t.phase = Phase::queued;
  if (peer_.is_down()) return fail(slot, peer_.why_ended());
  if (links_.settled() && links_.empty()) {
    return fail(slot, peer_.why_ended());
  }
  if (t.deadline <= peer_.now())
    return fail(slot,
                Status(ErrorCode::deadline_exceeded, "the deadline passed before it began").with_peer(peer_.text()));
  watch_deadline(t);
  if (links_.no_link_since() != kNever) {
    if (active_count_ == 1) links_.forgive_stalls();  // nobody has waited for them
    peer_.wake_at(peer_.now());
  }
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

// What start() and pump() would do with it, since nothing of the peer waits that they would do first.
void Transfers::start_now(std::uint32_t slot) {
  activate(slot);
  const Transfer& t = transfer(slot);
  if (is_message(t.request.operation))
    matcher_.start_now(slot);
  else
    post_whole(slot);
  if (t.phase != Phase::done) watch_deadline(t);
}

void Transfers::dependency_ended(std::uint32_t slot, bool ok) {
  Transfer& t = transfer(slot);
  if (t.phase != Phase::waiting) return;
  t.phase = Phase::queued;
  if (!ok) return fail(slot, {ErrorCode::dependency_failed, "the transfer named in `after` failed"});
  enqueue(slot);
}

void Transfers::enqueue(std::uint32_t slot) {
  if (is_message(transfer(slot).request.operation)) return matcher_.start(slot);
  take_turns(slot);
}

bool Transfers::pump() {
  if (!has_work() || peer_.is_down() || links_.empty()) return false;
  routes_.refresh();
  bool any = records_.post();
  requests_.proceed();
  any |= matcher_.announce();
  any |= post_retries();
  any |= post_transfers();
  if (records_.has_work()) any |= records_.post();
  return any;
}

// A transfer of zero bytes to or from device memory is posted too: it completes once the memory is reachable.
bool Transfers::opens_a_way(const Transfer& t) const {
  return (t.request.operation == Operation::write || t.request.operation == Operation::read) &&
         t.route.method == Method::native && t.cursor.block < t.blocks && (t.memory_kinds & kDeviceBit) != 0;
}

// Whether one piece moves all of it, over a link that is known and has room: then it has its route and its credit.
bool Transfers::goes_whole(Transfer& t) {
  const auto* extent = std::get_if<Extent>(&t.request.layout);
  const bool event = t.request.options.notify.kind == NotifyKind::event;
  if (extent == nullptr || t.total == 0 || peer_.slices().free_for_pieces() == 0 || (event && !notifier_.has_credit()))
    return false;
  const Routes::KnownRoute* const known = routes_.known(t.request.operation, *extent);
  if (known == nullptr) return false;
  const Link& link = links_[known->link];
  routes_.view(known->link) = link.view();
  if (link.free_slots() == 0 || t.total > link.capabilities->max_slice_bytes ||
      !peer_.outbox().has_room(link.transport) || !routes_.recall(t))
    return false;
  return notifier_.take_credit(t);
}

void Transfers::post_whole(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  t.phase = Phase::moving;
  t.cursor.block = t.blocks;
  ++t.pieces_out;
  const Piece all{0, 0, t.total, 1, t.route.links[0]};
  (void)post_piece(slot, all, peer_.slices().acquire(peer_.id().slot));
}

bool Transfers::post_transfers() {
  bool any = false;
  for (std::size_t priority = Turns::kPriorities; priority-- > 0;) {
    // One round: each transfer gets a turn, so that a large one does not hold up small ones behind it.
    for (std::uint32_t left = turns_.waiting(priority); left > 0 && turns_.waiting(priority) > 0; --left) {
      const std::uint32_t slot = turns_.take(priority);
      const Turn turn = move(slot);
      any |= turn == Turn::posted_all || turn == Turn::more || turn == Turn::failed;
      if (turn == Turn::links_full) {
        turns_.keep(slot);
        break;
      }
      if (turn == Turn::more) peer_.again();
      if (turn == Turn::more || turn == Turn::no_credit) turns_.rest(slot);
    }
  }
  return any;
}

Turn Transfers::move(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (!notifier_.take_credit(t)) return Turn::no_credit;
  const bool known = routes_.recall(t);
  if (!known && t.bytes_posted == 0) rates_.find_places(t);
  const std::span<LinkView> views = routes_.views_for(t);
  if (!known && (t.route_version != routes_.version() || t.route.method == Method::none)) {
    bool opening = false;
    const RouteRequest asked = routes_.wanted(t.request, t.total, &opening);
    t.route = opening ? Route() : route(asked, views);
    t.route_version = routes_.version();
    t.memory_kinds = asked.memory_kinds;
    if (opening) return Turn::no_credit;  // the transport wakes the worker
    if (t.route.method == Method::staged && routes_.waits_for_link(t, t.route.method)) {
      t.route = {};
      return Turn::no_credit;
    }
    if (t.route.method == Method::none) {
      const bool ready = std::any_of(views.begin(), views.end(), [](const LinkView& view) { return view.usable; });
      if (!ready) return Turn::links_full;  // a link may come up; link_timers() limits the wait
      if (routes_.waits_for_link(t, t.route.method)) return Turn::no_credit;
      fail(slot, Status(ErrorCode::unsupported, "no link to the peer can do this operation or carry it by messages")
                     .with_peer(peer_.text()));
      return Turn::failed;
    }
    routes_.remember(t);
  }
  if (t.route.method == Method::staged) return staging_.move(slot);
  t.phase = Phase::moving;
  if (t.total == 0 && opens_a_way(t)) {
    if (peer_.slices().free_for_pieces() == 0 || views[t.route.links[0]].free_slots == 0) return Turn::links_full;
    t.cursor.block = t.blocks;
    ++t.pieces_out;
    const Piece nothing{0, 0, 0, 1, t.route.links[0]};
    return post_piece(slot, nothing, peer_.slices().acquire(peer_.id().slot)) ? Turn::posted_all : Turn::failed;
  }
  const bool by_messages = t.route.method == Method::by_messages;
  std::uint64_t largest = by_messages ? record_payload_ : 0;
  if (!by_messages)
    for (const std::uint8_t link : t.route.chosen())
      largest = std::max(largest, views[link].capabilities->max_slice_bytes);
  std::size_t limit = std::min(turns_.left(slot, largest), peer_.slices().free_for_pieces());
  if (by_messages) limit = std::min<std::size_t>(limit, requests_.left());
  Pieces& pieces = peer_.slices().pieces();
  const std::size_t count =
      stripe(t.request.layout, t.blocks, t.cursor, t.route, views, record_payload_, std::span(pieces).first(limit));
  for (std::size_t i = 0; i < count; ++i) {
    ++t.pieces_out;
    turns_.spend(slot, pieces[i]);
    if (!post_piece(slot, pieces[i], peer_.slices().acquire(peer_.id().slot))) return Turn::failed;
  }
  if (t.cursor.block >= t.blocks) {
    if (t.pieces_out == 0) advance(slot);  // nothing to move
    return Turn::posted_all;
  }
  const bool among_empty = t.cursor.offset == 0 && block_at(t.request.layout, t.cursor.block).length == 0;
  return among_empty || turns_.used_up(slot) ? Turn::more : Turn::links_full;
}

// Hands one piece to its link, under a token that it already holds. False: the transfer failed.
bool Transfers::post_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token) {
  Transfer& t = transfer(slot);
  SliceEntry& entry = peer_.slices()[token];
  if (t.route.method == Method::by_messages && entry.use == SliceUse::free)
    return requests_.put_get_or_atomic(slot, piece, token);
  Link& link = links_[piece.link];
  transport::Slice slice;
  slice.op = op_of(t.request.operation);
  const Status status = fill_slice(t, piece, slice, link.transport);
  const std::uint32_t serial = entry.serial;
  if (!status) {
    peer_.slices().release(token);
    --t.pieces_out;
    fail(slot, status.with_peer(peer_.text()).with_link(link.text));
    return false;
  }
  const auto rides = riding_immediate(slot, piece);
  if (rides) slice.op = transport::Op::write_immediate;
  if (rides) slice.immediate = *rides;
  t.immediate_sent = rides.has_value();
  slice.link = link.id;
  slice.token = token;
  entry = {SliceUse::data,  slice.op,
           false,           piece.link,
           peer_.id().slot, slot,
           serial,          rides ? link.immediates_posted++ : 0,
           piece,           links_.since_now()};
  links_.entered(link, slice.start_after != nullptr);
  link.queued_bytes += piece.bytes();
  t.bytes_posted += piece.bytes();
  t.links_used |= std::uint64_t{1} << piece.link;
  if (t.paced) link.pace.posted(rates_.least_of(link, t), peer_.now());
  t.needs_flush |= slice.op == transport::Op::write && !link.capabilities->visible_when_done;
  peer_.outbox().add(link.transport, slice);
  return true;
}

// The immediate of the write itself, which arrives once the bytes are visible. Nothing: none is possible.
std::optional<std::uint32_t> Transfers::riding_immediate(std::uint32_t slot, const Piece& piece) {
  const Transfer& t = transfer(slot);
  const Link& link = links_[piece.link];
  const bool writes = t.request.operation == Operation::write || t.request.operation == Operation::send;
  if (!writes || t.blocks != 1 || piece.bytes() != t.total || t.request.options.checksum ||
      !link.capabilities->ordered || !link.has(transport::Op::write_immediate) || !link.capabilities->visible_when_done)
    return std::nullopt;
  const MemoryKind target = peer_.remotes().kind_of(block_at(t.request.layout, 0).remote);
  if ((link.capabilities->immediate_kinds >> static_cast<unsigned>(target) & 1) == 0) return std::nullopt;
  if (t.request.operation == Operation::send) {
    const auto immediate = matcher_.ending_immediate(slot);
    if (immediate) records_.post_all_ahead(piece.link);
    return immediate;
  }
  const Notify& notify = t.request.options.notify;
  if (notify.kind == NotifyKind::event) {
    const auto immediate = notifier_.event_immediate(slot);
    if (immediate && t.arming != kNoSlot) records_.post_ahead(t.arming, piece.link);
    return immediate;
  }
  if (notify.kind != NotifyKind::counter || (notify.immediate & kEventBit) != 0) return std::nullopt;
  return notify.immediate;
}

Status Transfers::fill_slice(Transfer& t, const Piece& piece, transport::Slice& slice, std::uint16_t transport) {
  if (is_atomic(t.request.operation)) {
    const auto handle = peer_.remotes().handle(peer_.owner(), t.request.target.region, transport);
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
          resolve(peer_.regions(), peer_.remotes(), t, piece.block, first, piece.offset, piece.length, slice.local);
      !status)
    return status;
  if (piece.count > 1) {  // all of one pair of regions, whose access the first block has checked
    const auto local = peer_.regions().find(first.local);
    const auto remote = peer_.remotes().bounds(first.remote);
    if (!local || !remote) return {ErrorCode::revoked, "a region was deregistered or released"};
    const std::uint64_t bad =
        first_outside(t.request.layout, piece.block, piece.count, local->size_bytes, remote->size_bytes);
    if (bad != piece.block + piece.count)
      return {ErrorCode::out_of_range, "block " + std::to_string(bad) + " lies outside its regions"};
  }
  const auto handle = peer_.remotes().handle(peer_.owner(), first.remote, transport);
  if (!handle) return handle.status();
  slice.local_handle = peer_.locals().handle(first.local, transport);
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

// ---- timers ----

// Without any link for the bound, transfers that this side moves fail. A receive that waits for its message does not:
// the sender may have a link a moment earlier, and would send to a receive that is gone. If there is no link for
// kBoundsOfAReceive, the session ends on both sides.
Time Transfers::give_up_without_link() {
  if (links_.no_link_since() == kNever || first_active_ == kNoSlot) return kNever;
  if (!links_.is_over(links_.no_link_since(), links_.bound()))
    return links_.look_at(links_.no_link_since(), links_.bound());
  const Status why =
      Status(ErrorCode::link_failed, "no link to the peer is left: " + links_.why_no_link()).with_peer(peer_.text());
  for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
    const Transfer& t = transfer(slot);
    const std::uint32_t next = t.next_active;
    if (t.request.operation != Operation::receive || t.rendezvous.other) fail(slot, why);
    slot = next;
  }
  links_.forgive_stalls();
  if (first_active_ == kNoSlot || links_.no_link_since() == kNever) return kNever;
  if (!links_.is_over(links_.no_link_since(), kBoundsOfAReceive * links_.bound()))
    return links_.look_at(links_.no_link_since(), kBoundsOfAReceive * links_.bound());
  peer_.end_session(why);
  return kNever;
}

Time Transfers::run_timers(Time now) {
  if (now >= next_deadline_) {
    next_deadline_ = kNever;
    for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
      Transfer& t = transfer(slot);
      const std::uint32_t following = t.next_active;
      if (t.phase != Phase::draining) {
        if (t.deadline <= now)
          stop(slot, {ErrorCode::deadline_exceeded, "the request's deadline passed before it was done"});
        else
          next_deadline_ = std::min(next_deadline_, t.deadline);
      }
      slot = following;
    }
  }
  return next_deadline_;
}

// ---- what it says of itself ----

void Transfers::collect(PeerMetrics& out) const {
  out.transfers_ok = ended_ok_;
  out.transfers_failed = ended_failed_;
  out.bytes = bytes_moved_;
  out.in_flight = active_count_;
  const Histogram* const recorded = shown_latency_.load(std::memory_order_acquire);
  Histogram::Snapshot times = recorded != nullptr ? recorded->snapshot() : Histogram::Snapshot();
  times.add(at_once_.took, at_once_.count);
  for (const Untold& each : untold_) times.add(each.took, each.count);
  out.latency = {times.count(), times.percentile_ns(0.5), times.percentile_ns(0.9), times.percentile_ns(0.99),
                 times.max_ns()};
}

}  // namespace fairway::engine
