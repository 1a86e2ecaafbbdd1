#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "engine/tables/route.h"
#include "engine/transfers/transfers.h"

// Transfers, part 2: completion, failure and cancellation.
namespace fairway::engine {

void Transfers::take_turns(std::uint32_t slot) {
  turns_.add(slot);
  peer_.has_more();
}

void Transfers::leave_link(const SliceEntry& entry, std::uint64_t moved_bytes) {
  Link& link = links_[entry.link];
  if (entry.use == SliceUse::data) {
    const Transfer& t = transfer(entry.owner);
    if (t.request.options.start_after != nullptr) --link.waits_for_streams;
    if (t.paced) rates_.keep_pace(link, moved_bytes);
  }
  links_.left(link, entry.piece.bytes());
}

void Transfers::on_untaken(std::uint32_t token) {
  SliceEntry& entry = peer_.slices()[token];
  leave_link(entry, 0);
  links_[entry.link].full = true;
  routes_.view(entry.link).free_slots = 0;
  if (entry.use == SliceUse::record) {
    return peer_.is_down() ? records_.drop(token) : records_.send_again(token);
  }
  if (entry.op == transport::Op::write_immediate) {  // later ones that were not accepted yet move up by one
    --links_[entry.link].immediates_posted;
    peer_.slices().for_each(peer_.id().slot, [&](std::uint32_t, SliceEntry& later) {
      if (later.use == SliceUse::data && !later.parked && !later.retry && later.link == entry.link &&
          later.op == transport::Op::write_immediate && later.immediate > entry.immediate)
        --later.immediate;
    });
  }
  Transfer& t = transfer(entry.owner);
  t.immediate_sent = false;
  t.bytes_posted -= entry.piece.bytes();
  if (t.phase == Phase::draining) return drop_piece(token);
  retry_later(token);
}

void Transfers::on_slice(std::uint32_t token, const transport::Event& event) {
  SliceEntry& entry = peer_.slices()[token];
  const SliceUse use = entry.use;
  if (use == SliceUse::free || use == SliceUse::request || entry.parked) return;  // a bug of the transport
  const std::uint8_t index = entry.link;
  leave_link(entry, entry.piece.bytes());
  Link& link = links_[index];
  const bool ok = event.kind == transport::EventKind::done;
  const bool broken = !ok && (!link.is_up() || event.status.code() == ErrorCode::link_failed);
  if (!ok) ++link.errors;
  if (use == SliceUse::proof) {
    const std::uint32_t step = entry.owner;
    peer_.slices().release(token);
    if (step < 2 && !peer_.is_down()) links_.proof_done(index, event.status);
    return;
  }
  if (ok) {
    link.newest_done = std::max(link.newest_done, entry.posted);
    if (link.stalled) links_.works(link);
    ++link.slices;
    link.bytes_out += entry.piece.bytes();
  }
  if (use == SliceUse::record) {
    if (peer_.is_down()) return records_.drop(token);
    if (ok) {
      const std::uint32_t record = entry.owner, owner = records_.arrived(token);
      if (owner != kNoSlot) notifier_.record_arrived(owner, record);
      return;
    }
    entry.parked = true;
    if (link.is_up()) links_.close(index, event.status);
    if (link.closed_here && link.closed_there) links_.release(index);
    return;
  }
  if (ok) return piece_done(token, event.value);
  if (entry.op == transport::Op::write_immediate && !broken) forget_immediate(token);
  if (transfer(entry.owner).phase == Phase::draining || peer_.is_down()) {
    if (event.status.effect() == Effect::unknown || broken) transfer(entry.owner).in_doubt = true;
    if (broken) doubt_event(entry);
    return drop_piece(token);
  }
  if (!broken) return piece_failed(token, event.status.with_peer(peer_.text()).with_link(link.text));
  entry.parked = true;
  if (link.is_up()) links_.close(index, event.status);
  if (link.closed_here) links_.release(index);
}

// Slices in flight on the link may move to another one: reads once this end is closed, all others once both are. The
// peer's count of immediates tells which native notifications arrived. An atomic is never repeated.
void Transfers::epoch_closed(std::uint8_t index, bool both) {
  Link& link = links_[index];
  peer_.slices().for_each(peer_.id().slot, [&](std::uint32_t token, SliceEntry& entry) {
    if (!entry.parked || entry.link != index) return;
    if (!both && entry.op != transport::Op::read) return;
    if (entry.use == SliceUse::record) {
      return records_.send_again(token);
    }
    const bool atomic = entry.op == transport::Op::fetch_add || entry.op == transport::Op::compare_swap;
    if (entry.op == transport::Op::write_immediate && entry.immediate < link.immediates_there) {
      entry.parked = false;
      piece_done(token, 0);
    } else if (atomic) {
      const std::uint32_t slot = entry.owner;
      transfer(slot).in_doubt = true;
      drop_piece(token);
      fail(slot, link.down_reason.with_link(link.text).with_effect(Effect::unknown));
    } else {
      entry.parked = false;
      transfer(entry.owner).immediate_sent = false;
      ++link.retries;
      ++transfer(entry.owner).retried;
      retry_later(token);
    }
  });
  if (both) notifier_.settle(link.doubtful_events, link.immediates_there);
}

// The target refused only this one and does not count it: later ones on the link move up by one.
void Transfers::forget_immediate(std::uint32_t token) {
  const SliceEntry& refused = peer_.slices()[token];
  peer_.slices().for_each(peer_.id().slot, [&](std::uint32_t, SliceEntry& entry) {
    if (entry.use == SliceUse::data && entry.op == transport::Op::write_immediate && entry.link == refused.link &&
        !entry.retry && entry.immediate > refused.immediate)
      --entry.immediate;
  });
  Link& link = links_[refused.link];
  for (std::uint64_t& doubtful : link.doubtful_events) doubtful -= doubtful > refused.immediate ? 1 : 0;
  --link.immediates_posted;
  transfer(refused.owner).immediate_sent = false;
}

void Transfers::piece_done(std::uint32_t token, std::uint64_t value) {
  const SliceEntry entry = peer_.slices()[token];
  peer_.slices().release(token);
  Transfer& t = transfer(entry.owner);
  --t.pieces_out;
  if (!t.signals) t.bytes_done += entry.piece.bytes();
  if (is_atomic(t.request.operation)) t.completion.old_value = value;
  if (t.pieces_out > 0) return;
  if (t.phase == Phase::draining) return drained(entry.owner);
  if (t.cursor.block >= t.blocks) advance(entry.owner);
}

void Transfers::piece_failed(std::uint32_t token, const Status& status) {
  const std::uint32_t slot = peer_.slices()[token].owner;
  peer_.slices().release(token);
  Transfer& t = transfer(slot);
  --t.pieces_out;
  if (status.code() == ErrorCode::revoked && matcher_.window_gone(slot)) {
    if (t.queued) turns_.remove(slot);
    if (t.pieces_out == 0) advance(slot);
    return;
  }
  t.in_doubt |= status.effect() == Effect::unknown;
  fail(slot, status);
}

void Transfers::drop_piece(std::uint32_t token) {
  const std::uint32_t slot = peer_.slices()[token].owner;
  peer_.slices().release(token);
  Transfer& t = transfer(slot);
  --t.pieces_out;
  if (t.pieces_out == 0 && t.phase == Phase::draining) drained(slot);
}

// All pieces are done: now flush, checksum and notification, in order, as the request asks.
void Transfers::advance(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.rendezvous.gone) return matcher_.written(slot);
  if (t.phase == Phase::moving && t.needs_flush) {
    t.phase = Phase::flushing;
    return requests_.request(slot);
  }
  if (t.request.options.checksum && t.checked.block < t.blocks && !is_atomic(t.request.operation)) {
    t.phase = Phase::verifying;
    return requests_.request(slot);
  }
  if (t.request.operation == Operation::send) return matcher_.written(slot);
  if (t.request.options.notify.kind == NotifyKind::none) return finish(slot, {});
  notifier_.notify(slot);
}

void Transfers::signal(std::uint32_t slot) {
  if (signals_a_device(slot)) return;
  requests_.request(slot);
}

// Whether it carried an event is known once both ends have closed the link's epoch.
void Transfers::doubt_event(const SliceEntry& entry) {
  if (entry.op == transport::Op::write_immediate)
    notifier_.doubt(transfer(entry.owner), entry.immediate, links_[entry.link].doubtful_events);
}

// No CPU reaches device memory: there the word is written like data, after all other bytes have arrived.
bool Transfers::signals_a_device(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  const Notify wanted = t.request.options.notify;
  if (wanted.signal_add) return false;  // done by its owner's engine, like all atomics on device memory
  if (!peer_.remotes().in_device(wanted.signal.region)) return false;
  t.request.operation = Operation::write;
  t.request.layout = Extent{worker_.signal_word(slot, wanted.signal_value), wanted.signal};
  t.request.options.notify.kind = NotifyKind::none;
  t.request.options.checksum = false;
  t.request.options.start_after = nullptr;
  t.signals = true;
  t.blocks = 1;
  t.cursor = {};
  t.route = {};
  t.phase = Phase::queued;
  take_turns(slot);
  peer_.again();
  return true;
}

bool Transfers::stop(std::uint32_t slot, const Status& why) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::draining || t.phase == Phase::done) return false;
  if (t.notify_record != kNoSlot || (t.phase == Phase::notifying && t.armed)) return true;
  fail(slot, why.with_peer(peer_.text()));
  return false;
}

void Transfers::force_stop(std::uint32_t slot) {
  staging_.for_each_inner(slot, [this](std::uint32_t inner) { force_stop(inner); });
  peer_.slices().for_each(peer_.id().slot, [&](std::uint32_t, const SliceEntry& entry) {
    if (entry.use == SliceUse::data && entry.owner == slot && !entry.parked && !entry.retry)
      links_.close(entry.link, {ErrorCode::link_failed, "closed to end a transfer that did not stop in time"});
  });
}

// deregister() revokes the region on its caller's thread, and stop_users_of() runs here a moment later. A transfer that
// finds the local memory revoked in between fails with the same error.
Status Transfers::why_ended(const Transfer& t, const Status& status) const {
  if (status.code() != ErrorCode::revoked) return status;
  const transport::RegionTable& regions = peer_.regions();
  const auto* list = std::get_if<std::span<const Extent>>(&t.request.layout);
  const auto ended = [&](const Extent& each) { return regions.has_ended(each.local.region); };
  const bool here = list != nullptr ? std::any_of(list->begin(), list->end(), ended)
                                    : t.blocks > 0 && regions.has_ended(block_at(t.request.layout, 0).local);
  return here ? Status(ErrorCode::cancelled, "the local region was deregistered").with_peer(peer_.text()) : status;
}

void Transfers::fail(std::uint32_t slot, const Status& given) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::draining || t.phase == Phase::done) return;
  if (t.queued && !turns_.remove(slot)) matcher_.remove(slot);
  if (t.phase == Phase::waiting) worker_.no_longer_waits(slot);
  t.in_doubt |= t.phase == Phase::notifying && t.armed;
  t.phase = Phase::draining;
  t.status = why_ended(t, given);
  requests_.forget(slot);
  if (t.notify_record != kNoSlot) {  // it may or may not have arrived
    if (!peer_.is_down()) peer_.records()[t.notify_record].owner = kNoSlot;
    t.in_doubt = true;
    return drained(slot);
  }
  ++t.pieces_out;  // so that the last drop below does not finish the transfer within this loop
  if (t.rendezvous.announced || t.request.operation == Operation::receive) matcher_.stop(slot);
  staging_.stop(slot);
  peer_.slices().for_each(peer_.id().slot, [&](std::uint32_t token, SliceEntry& entry) {
    if (entry.owner != slot) return;
    if (entry.use == SliceUse::request) {
      // Its reply will be ignored. The peer may still carry out the request; nothing more happens on this side.
      t.in_doubt = true;
      requests_.dropped();
      drop_piece(token);
    } else if (entry.use == SliceUse::data && (entry.parked || entry.retry)) {
      t.in_doubt |= entry.parked && !(links_[entry.link].closed_here && links_[entry.link].closed_there);
      if (entry.parked) doubt_event(entry);
      if (entry.retry) std::erase(retries_, token);
      drop_piece(token);
    } else if (entry.use == SliceUse::data && !peer_.is_down()) {
      peer_.transports()[links_[entry.link].transport]->cancel(token);
    }
  });
  if (--t.pieces_out == 0) drained(slot);
}

// A notification has arrived, or nothing of a failed transfer is in flight any more.
void Transfers::drained(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::notifying) return finish(slot, {});
  if (t.phase != Phase::draining || t.pieces_out > 0) return;
  // Delivered bytes that were not flushed may still become visible.
  t.in_doubt |= t.needs_flush;
  const Effect effect = t.in_doubt ? Effect::unknown : t.bytes_posted == 0 ? Effect::not_applied : Effect::partial;
  finish(slot, t.status.with_effect(effect));
}

void Transfers::finish(std::uint32_t slot, const Status& status) {
  Transfer& t = transfer(slot);
  retire(slot);
  t.phase = Phase::done;
  if (t.chunk != kNoSlot) return staging_.inner_ended(slot, status);
  notifier_.ended(t);
  matcher_.ended(t);
  const bool ok = status.is_ok();
  const std::uint64_t bytes = t.request.operation == Operation::receive ? t.rendezvous.length : t.bytes_done;
  if (ok) {
    ++ended_ok_;
    bytes_moved_ += bytes;
    record_latency(t);
  } else {
    ++ended_failed_;
  }
  t.completion.id = peer_.table().id(slot);
  t.completion.status = status;
  if (!ok) notifier_.failed(t);
  t.completion.bytes = bytes;
  t.completion.user_data = t.request.options.user_data;
  if (t.request.operation == Operation::receive) t.completion.peer = t.request.peer;
  worker_.ended(slot);
}

void Transfers::record_latency(const Transfer& t) {
  const Operation operation = t.request.operation;
  const std::size_t size =
      std::min<std::size_t>(2 + static_cast<std::size_t>(std::bit_width(t.total)), untold_.size() - 1);
  Untold& alike = untold_[operation == Operation::send ? 0 : operation == Operation::receive ? 1 : size];
  if (!t.timed && alike.took != 0) {
    ++alike.count;
    return;
  }
  const Time now = peer_.now();
  const Time took = now - std::min(t.submitted, now);  // at most: it may end before the next step
  latency().record(alike.took, std::exchange(alike.count, 1));
  alike.took = took;
}

void Transfers::fail_all(const Status& reason) {
  for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
    const std::uint32_t next = transfer(slot).next_active;
    fail(slot, reason);
    slot = next;
  }
}

// Pieces that no transport holds end now, the others with their slices' events.
void Transfers::peer_gone() {
  peer_.slices().for_each(peer_.id().slot, [&](std::uint32_t token, SliceEntry& entry) {
    if (!(entry.parked || entry.retry)) return;
    if (entry.use == SliceUse::record) return records_.drop(token);
    if (entry.use == SliceUse::data) {
      transfer(entry.owner).in_doubt = true;
      --transfer(entry.owner).pieces_out;
    }
    peer_.slices().release(token);
  });
  retries_.clear();
}

}  // namespace fairway::engine
