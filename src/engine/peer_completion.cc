#include <algorithm>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// A transfer's way back: on_slice counts its pieces -> advance: flush, checksum, notification as asked for -> finish.
// And its other ends: stop and fail let it drain, so that it completes only when nothing of it is in a transport's
// hands.
namespace fairway::engine {
// ---- and back ----

void Peer::take_turns(std::uint32_t slot) {
  turns_.add(slot);
  has_more();
}

void Peer::retry_later(std::uint32_t token) {
  worker_.slices()[token].retry = true;
  retries_.push_back(token);
  has_more();
}

void Peer::send_again(std::uint32_t record) {
  records_.send_again(record);
  has_more();
}

void Peer::leave_link(const SliceEntry& entry, std::uint64_t moved_bytes) {
  Link& link = links_[entry.link];
  if (entry.use == SliceUse::data) {
    const Transfer& t = transfer(entry.owner);
    if (t.request.options.start_after != nullptr) --link.waits_for_streams;
    if (t.paced) keep_pace(link, moved_bytes);
  }
  links_.left(link, entry.piece.bytes());
}

void Peer::on_untaken(std::uint32_t token) {
  SliceEntry& entry = worker_.slices()[token];
  leave_link(entry, 0);
  links_[entry.link].full = true;
  views_[entry.link].room = 0;
  if (entry.use == SliceUse::record) {
    const std::uint32_t record = entry.owner;
    worker_.slices().release(token);
    if (down_)
      worker_.records().release(record);
    else
      send_again(record);
    return;
  }
  if (entry.op == transport::Op::write_immediate) {  // those staged behind it, which may yet be taken, move up
    --links_[entry.link].immediates_posted;
    worker_.slices().for_each(id().slot, [&](std::uint32_t, SliceEntry& later) {
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

void Peer::on_slice(std::uint32_t token, const transport::Event& event) {
  SliceEntry& entry = worker_.slices()[token];
  const SliceUse use = entry.use;
  if (use == SliceUse::free || use == SliceUse::request || entry.parked)
    return;  // a transport that lies; it is ours, so a bug
  const std::uint8_t index = entry.link;
  leave_link(entry, entry.piece.bytes());
  Link& link = links_[index];
  const bool ok = event.kind == transport::EventKind::done;
  const bool broken = !ok && (!link.is_up() || event.status.code() == ErrorCode::link_failed);
  if (!ok) ++link.errors;
  if (use == SliceUse::proof) {
    const std::uint32_t step = entry.owner;
    worker_.slices().release(token);
    if (step < 2 && !down_) links_.proof_done(index, event.status);
    return;
  }
  if (ok) {
    link.newest_done = std::max(link.newest_done, entry.posted);
    ++link.slices;
    link.bytes_out += entry.piece.bytes();
  }
  if (use == SliceUse::record) {
    const std::uint32_t record = entry.owner;
    if (ok && !down_) {
      const std::uint32_t owner = worker_.records()[record].owner;
      if (is_answer(worker_.records()[record].type())) --replies_out_;
      worker_.slices().release(token);
      records_.arrived(record);
      if (owner != kNoSlot) notifier_.record_arrived(owner, record);
      return;
    }
    if (down_) {
      worker_.slices().release(token);
      worker_.records().release(record);
      return;
    }
    entry.parked = true;
    if (link.is_up()) links_.close(index, event.status);
    if (link.closed_here && link.closed_there) links_.release(index);
    return;
  }
  if (ok) return piece_done(token, event.value);
  if (entry.op == transport::Op::write_immediate && !broken) forget_immediate(token);
  if (transfer(entry.owner).phase == Phase::draining || down_) {
    if (event.status.effect() == Effect::unknown || broken) transfer(entry.owner).in_doubt = true;
    if (broken) doubt_event(entry);
    return drop_piece(token);
  }
  if (!broken) return piece_failed(token, event.status);
  entry.parked = true;
  if (link.is_up()) links_.close(index, event.status);
  if (link.closed_here) links_.release(index);
}

// What was in flight on the link may go elsewhere: reads once this end is closed, all else once both are. The count of
// immediates that the peer received says which native notifications had arrived; an atomic is never repeated.
void Peer::epoch_closed(std::uint8_t index, bool both) {
  Link& link = links_[index];
  worker_.slices().for_each(id().slot, [&](std::uint32_t token, SliceEntry& entry) {
    if (!entry.parked || entry.link != index) return;
    if (!both && entry.op != transport::Op::read) return;
    if (entry.use == SliceUse::record) {
      send_again(entry.owner);
      worker_.slices().release(token);
      return;
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

// The target refused it alone, so it will not count it: those behind it on the link move up by one.
void Peer::forget_immediate(std::uint32_t token) {
  const SliceEntry& refused = worker_.slices()[token];
  worker_.slices().for_each(id().slot, [&](std::uint32_t, SliceEntry& entry) {
    if (entry.use == SliceUse::data && entry.op == transport::Op::write_immediate && entry.link == refused.link &&
        !entry.retry && entry.immediate > refused.immediate)
      --entry.immediate;
  });
  Link& link = links_[refused.link];
  for (std::uint64_t& doubtful : link.doubtful_events) doubtful -= doubtful > refused.immediate ? 1 : 0;
  --link.immediates_posted;
  transfer(refused.owner).immediate_sent = false;
}

void Peer::piece_done(std::uint32_t token, std::uint64_t value) {
  const SliceEntry entry = worker_.slices()[token];
  worker_.slices().release(token);
  Transfer& t = transfer(entry.owner);
  --t.pieces_out;
  if (!t.signals) t.bytes_done += entry.piece.bytes();
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
    return requests_.request(slot);
  }
  if (t.request.options.checksum && t.checked.block < t.blocks && !is_atomic(t.request.operation)) {
    t.phase = Phase::verifying;
    return requests_.request(slot);
  }
  if (t.request.operation == Operation::send) return matcher_.written(slot);
  notifier_.notify(slot);
}

void Peer::signal(std::uint32_t slot) {
  if (signals_a_device(slot)) return;
  requests_.request(slot);
}

// Whether it carried an event is known once both ends have closed the link's epoch.
void Peer::doubt_event(const SliceEntry& entry) {
  if (entry.op == transport::Op::write_immediate)
    notifier_.doubt(transfer(entry.owner), entry.immediate, links_[entry.link].doubtful_events);
}

// No CPU reaches a device's memory: there the word is written like bytes, now that all others are there.
bool Peer::signals_a_device(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  const Notify wanted = t.request.options.notify;
  if (wanted.signal_add) return false;  // by its owner's engine, as other atomics there
  if (!worker_.remotes().in_device(wanted.signal.region)) return false;
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
  worker_.again();
  return true;
}

// ---- the end ----

bool Peer::stop(std::uint32_t slot, const Status& why) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::draining || t.phase == Phase::done) return false;
  if (t.notify_record != kNoSlot || (t.phase == Phase::notifying && t.armed)) return true;
  fail(slot, why.with_peer(text()));
  return false;
}

void Peer::force_stop(std::uint32_t slot) {
  staging_client_.for_each_inner(slot, [this](std::uint32_t inner) { force_stop(inner); });
  worker_.slices().for_each(id().slot, [&](std::uint32_t, const SliceEntry& entry) {
    if (entry.use == SliceUse::data && entry.owner == slot && !entry.parked && !entry.retry)
      links_.close(entry.link, {ErrorCode::link_failed, "closed to end a transfer that did not stop in time"});
  });
}

// deregister() refuses the region's use from its caller's thread on, and stop_users_of() runs here a moment later: what
// meets the end of the local memory in between says what that would have said.
Status Peer::why_ended(const Transfer& t, const Status& status) const {
  if (status.code() != ErrorCode::revoked) return status;
  const transport::RegionTable& regions = worker_.services().regions;
  const auto* list = std::get_if<std::span<const Extent>>(&t.request.layout);
  const auto ended = [&](const Extent& each) { return regions.has_ended(each.local.region); };
  const bool here = list != nullptr ? std::any_of(list->begin(), list->end(), ended)
                                    : t.blocks > 0 && regions.has_ended(block_at(t.request.layout, 0).local);
  return here ? Status(ErrorCode::cancelled, "the local region was deregistered").with_peer(text()) : status;
}

void Peer::fail(std::uint32_t slot, const Status& given) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::draining || t.phase == Phase::done) return;
  if (t.queued && !turns_.remove(slot)) matcher_.remove(slot);
  if (t.phase == Phase::waiting) worker_.no_longer_waits(slot);
  t.in_doubt |= t.phase == Phase::notifying && t.armed;
  t.phase = Phase::draining;
  t.status = why_ended(t, given);
  requests_.forget(slot);
  if (t.notify_record != kNoSlot) {  // it may or may not have arrived
    if (!down_) worker_.records()[t.notify_record].owner = kNoSlot;
    t.in_doubt = true;
    return drained(slot);
  }
  ++t.pieces_out;  // so that the last drop below does not end the transfer while we look at it
  if (t.rendezvous.announced || t.request.operation == Operation::receive) matcher_.stop(slot);
  staging_client_.stop(slot);
  worker_.slices().for_each(id().slot, [&](std::uint32_t token, SliceEntry& entry) {
    if (entry.owner != slot) return;
    if (entry.use == SliceUse::request) {
      // Its reply will find nothing. What it asked the peer to do may still happen there, never here.
      t.in_doubt = true;
      requests_.dropped();
      drop_piece(token);
    } else if (entry.use == SliceUse::data && (entry.parked || entry.retry)) {
      t.in_doubt |= entry.parked && !(links_[entry.link].closed_here && links_[entry.link].closed_there);
      if (entry.parked) doubt_event(entry);
      if (entry.retry) std::erase(retries_, token);
      drop_piece(token);
    } else if (entry.use == SliceUse::data && !down_) {
      worker_.transport_at(links_[entry.link].transport).cancel(token);
    }
  });
  if (--t.pieces_out == 0) drained(slot);
}

// A notification has arrived, or nothing of a failed transfer is in flight any more.
void Peer::drained(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  if (t.phase == Phase::notifying) return finish(slot, {});
  if (t.phase != Phase::draining || t.pieces_out > 0) return;
  // What a link delivered without making it visible may still show; nobody flushes it now.
  t.in_doubt |= t.needs_flush;
  const Effect effect = t.in_doubt ? Effect::unknown : t.bytes_posted == 0 ? Effect::not_applied : Effect::partial;
  finish(slot, t.status.with_effect(effect));
}

void Peer::finish(std::uint32_t slot, const Status& status) {
  Transfer& t = transfer(slot);
  retire(slot);
  t.phase = Phase::done;
  if (t.chunk != kNoSlot) return staging_client_.inner_ended(slot, status);
  notifier_.ended(t);
  matcher_.ended(t);
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
  if (!ok) notifier_.failed(t);
  t.completion.bytes = bytes;
  t.completion.user_data = t.request.options.user_data;
  worker_.ended(t);
  worker_.completed(slot);
}

}  // namespace fairway::engine
