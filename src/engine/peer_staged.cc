#include <algorithm>
#include <utility>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// Staged transfers at their initiator. A write: local memory -> slot here -> slot there -> the peer's memory; a read
// the other way. What links reach at one end needs no slot there, nor does a device's memory here when a link moves
// between it and the peer's slot. peer_landing.cc is the peer's part.
namespace fairway::engine {
namespace {

constexpr std::size_t kStageHead = 64;  // of stage_put and stage_get, beyond their parts
constexpr std::size_t kPartBytes = 12;  // there

bool in_device(const transport::RegionTable& table, RegionId id) {
  transport::RegionTable::Resolved found;
  return table.resolve(id, 0, 0, Access::none, found) == ErrorCode::ok && !reached_by_cpu(found.kind);
}

}  // namespace

// ---- to the wire ----

Peer::Turn Peer::move_staged(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  t.phase = Phase::moving;
  for (std::uint32_t turn = 0; turn < Turns::kPieces; ++turn) {
    if (t.total > 0) {
      t.cursor.block = skip_empty(t.request.layout, t.cursor.block);
      if (t.cursor.block < t.blocks && block_at(t.request.layout, t.cursor.block).length == 0) return Turn::more;
    }
    if (t.cursor.block >= t.blocks) {
      if (t.pieces_out == 0) advance(slot);
      return Turn::posted_all;
    }
    const bool gate = t.request.options.start_after != nullptr && !t.gated;
    if (gate && t.pieces_out > 0) return Turn::no_credit;
    Step* const step = take_step(slot, t.cursor.block, gate);
    if (step == nullptr) return t.phase == Phase::moving ? Turn::no_credit : Turn::failed;
    ++t.pieces_out;
    if (gate) {
      begin_copy(*step);
    } else if (t.total == 0) {  // it opens the way, no more
      t.cursor.block = t.blocks;
      step_over(*step, {});
    } else if (const Status cut = cut_step(*step, t.cursor, kMostParts); !cut) {
      step_over(*step, cut.with_peer(text()));
    } else {
      begin_step(*step);
    }
    if (t.phase != Phase::moving) return Turn::failed;
  }
  return Turn::more;
}

// A piece that a link lost, no more than fits a slot. False: not now.
bool Peer::stage_piece(std::uint32_t token) {
  const SliceEntry& entry = worker_.slices()[token];
  Step* const step = take_step(entry.owner, entry.piece.block, false);
  if (step == nullptr) return false;
  Cursor cursor{entry.piece.block, entry.piece.offset};
  const Piece piece = entry.piece;
  std::erase(retries_, token);
  worker_.slices().release(token);  // its part in pieces_out is the step's now
  if (const Status cut = cut_step(*step, cursor, 1, piece.length); !cut)
    step_over(*step, cut.with_peer(text()));
  else
    begin_step(*step);
  return true;
}

// With the slots that it needs. Null: not now, or never: then the transfer has failed. `gate`: to wait for an event.
Step* Peer::take_step(std::uint32_t slot, std::uint64_t block_index, bool gate) {
  const Transfer& t = transfer(slot);
  Step* const step = worker_.free_step(t.step != kNoSlot);
  if (step == nullptr) return nullptr;
  const Block block = block_at(t.request.layout, block_index);
  bool here = gate || in_device(worker_.services().regions, block.local);
  const bool there = !gate && in_device(worker_.services().remotes, {block.remote.slot, block.remote.generation});
  std::uint8_t theirs = kInPlace, ours = kInPlace;
  Status why;
  if (there) theirs = lent_slot(why);
  if (here && !gate && there && theirs != kInPlace) {
    const transport::Reach is = reach_room(block.local);
    const bool comes = is == transport::Reach::pinning || is == transport::Reach::opening;
    if (comes && t.total == 0) return nullptr;  // it opens the way, all of it
    here = is != transport::Reach::yes;
  }
  if (here && why && (!there || theirs != kInPlace)) ours = worker_.own_slot(why);
  if (!why) fail(slot, why.with_peer(text()));
  if (!why || (here && ours == kInPlace) || (there && theirs == kInPlace)) return nullptr;
  step->state = Step::State::copying;
  step->queued = false;
  step->outwards = op_of(t.request.operation) == transport::Op::write;
  step->peer = id().slot;
  step->transfer = slot;
  step->local = block.local;
  step->remote = block.remote;
  step->bytes = 0;
  step->parts.clear();
  step->here = ours;
  step->there = theirs;
  if (here) worker_.staging().used.add(ours);
  if (there) {
    lent_->busy.add(theirs);
    lent_->steps[theirs] = static_cast<std::uint32_t>(step - worker_.staging().steps.data());
  }
  return step;
}

// Whether a link moves between a device's memory here and the room that the peer lends. One that is lost meanwhile is
// no loss: a step of the step's own transfer goes by a slot here then.
transport::Reach Peer::reach_room(RegionId local) {
  Block block;
  block.local = local;
  block.remote = lent_->region;
  transport::Reach best = transport::Reach::no;
  std::string why;
  for (const Link& link : links_)
    if (link.is_up() && (link.capabilities->memory_kinds & kDeviceBit) != 0)
      best = std::min(best, reach(block, link.transport, why));
  return best;
}

// Blocks of one pair of regions from `cursor` on, until the slot is full or `most` bytes are taken.
Status Peer::cut_step(Step& step, Cursor& cursor, std::size_t most_parts, std::uint64_t most) {
  const Transfer& t = transfer(step.transfer);
  const std::size_t fits = step.there == kInPlace ? kMostParts : (record_bytes_ - kStageHead) / kPartBytes;
  std::uint64_t left = std::min(most, kSlotBytes);
  while (cursor.block < t.blocks && left > 0 && step.parts.size() < std::min(most_parts, fits)) {
    const Block block = block_at(t.request.layout, cursor.block);
    if (block.length == 0) {
      cursor.block = skip_empty(t.request.layout, cursor.block);
      if (cursor.block < t.blocks && block_at(t.request.layout, cursor.block).length == 0) break;
      continue;
    }
    if (block.local != step.local || block.remote != step.remote) break;
    const std::uint64_t length = std::min(block.length - cursor.offset, left);
    std::byte* at = nullptr;
    if (Status status = resolve(t, cursor.block, block, cursor.offset, length, at); !status) return status;
    step.parts.push_back({block.local_offset + cursor.offset, block.remote_offset + cursor.offset, length});
    step.bytes += length;
    left -= length;
    cursor = cursor.offset + length == block.length ? Cursor{cursor.block + 1, 0}
                                                    : Cursor{cursor.block, cursor.offset + length};
  }
  return {};
}

void Peer::begin_step(Step& step) {
  if (!step.outwards || step.there == kInPlace) transfer(step.transfer).bytes_posted += step.bytes;
  if (!step.outwards && step.there != kInPlace) return ask_peer(step);
  if (step.outwards && step.here != kInPlace) return begin_copy(step);
  begin_inner(step);
}

// ---- its parts ----

void Peer::begin_copy(Step& step) {
  step.state = Step::State::copying;
  step.queued = false;
  ++worker_.staging().watched;
  queue_copy(step);
}

void Peer::queue_copy(Step& step) {
  using Readiness = transport::Copier::Readiness;
  std::array<transport::Copier::Copy, kMostParts> copies;
  transport::RegionTable::Resolved local;
  std::byte* const slot = worker_.own_place(step.here);
  std::size_t count = 0;
  std::uint64_t at = 0;
  const Transfer& t = transfer(step.transfer);
  void* const gate = step.parts.empty() ? t.request.options.start_after : nullptr;
  std::string why;
  Readiness ready = Readiness::refused;
  ErrorCode refusal = ErrorCode::revoked;
  if (worker_.services().regions.resolve(step.local, 0, 0, Access::none, local) == ErrorCode::ok) {
    for (const Step::Part& part : step.parts) {
      std::byte* const memory = local.address + part.local;
      copies[count++] = step.outwards ? transport::Copier::Copy{slot + at, memory, part.length}
                                      : transport::Copier::Copy{memory, slot + at, part.length};
      at += part.length;
    }
    if (gate != nullptr) copies[count++] = {slot + sizeof(std::uint64_t), slot, sizeof(std::uint64_t)};
    refusal = ErrorCode::system_error;
    ready = worker_.copier()->copy(step.local, std::span(copies.data(), count), step.bytes <= kUrgentBytes, gate,
                                   step.ticket, why);
  }
  step.queued = ready == Readiness::ready;
  if (ready != Readiness::refused) return;
  --worker_.staging().watched;
  if (refusal == ErrorCode::revoked) why = "the local region was deregistered";
  step_over(step, Status(refusal, why).with_peer(text()));
}

// In each step of the worker, while it is being copied. True: a device has the copies.
bool Peer::turn_copy(Step& step) {
  using Readiness = transport::Copier::Readiness;
  const bool ends = transfer(step.transfer).phase == Phase::draining;
  if (!step.queued && !ends) {
    queue_copy(step);
    return step.state == Step::State::copying && step.queued;
  }
  std::string why;
  const Readiness is = step.queued ? worker_.copier()->look(step.ticket, why) : Readiness::ready;
  if (is == Readiness::opening) return true;
  --worker_.staging().watched;
  worker_.again();
  if (is == Readiness::refused || ends) {
    step_over(step, Status(ErrorCode::system_error, why).with_peer(text()));
  } else if (step.parts.empty()) {  // the gate
    const std::uint32_t slot = step.transfer;
    Transfer& t = transfer(slot);
    t.gated = true;
    step_over(step, {});
  } else if (step.outwards) {
    begin_inner(step);
  } else {
    step_over(step, {});
  }
  return false;
}

// A transfer of the engine's own, like any other from here on: routed, striped, moved to other links when one breaks.
void Peer::begin_inner(Step& step) {
  step.state = Step::State::moving;
  const RegionId room = worker_.staging().region;
  const std::uint64_t here = step.here * kSlotBytes, there = step.there * kSlotBytes;
  step.extents.clear();
  if (step.here != kInPlace && step.there != kInPlace) {
    step.extents.push_back({{room, here, step.bytes}, {lent_->region, there}});
  } else {
    std::uint64_t at = 0;
    for (const Step::Part& part : step.parts) {
      step.extents.push_back(
          {step.here != kInPlace ? Slice{room, here + at, part.length} : Slice{step.local, part.local, part.length},
           step.there != kInPlace ? RemoteAddress{lent_->region, there + at}
                                  : RemoteAddress{step.remote, part.remote}});
      at += part.length;
    }
  }
  Request request;
  request.operation = step.outwards ? Operation::write : Operation::read;
  request.peer = id();
  request.layout = std::span<const Extent>(step.extents);
  request.options.priority = transfer(step.transfer).request.options.priority;
  Transfer& inner = transfer(step.inner);
  inner.begin(request, worker_.now());
  inner.step = static_cast<std::uint32_t>(&step - worker_.staging().steps.data());
  activate(step.inner);
  inner.phase = Phase::queued;
  take_turns(step.inner);
  worker_.again();
}

void Peer::inner_ended(std::uint32_t slot, const Status& status) {
  Transfer& inner = transfer(slot);
  retire(slot);
  inner.phase = Phase::done;
  Step& step = worker_.staging().steps[inner.step];
  Transfer& t = transfer(step.transfer);
  t.links_used |= inner.links_used;
  t.retried += inner.retried;
  worker_.again();
  if (!status) {
    t.in_doubt |= inner.in_doubt && step.there == kInPlace;
    if (inner.in_doubt && step.outwards && step.there != kInPlace) lent_->lost.add(step.there);
    return step_over(step, status);
  }
  if (t.phase == Phase::draining) return step_over(step, {});
  if (!step.outwards) {
    give_back_there(step);
    return step.here != kInPlace ? begin_copy(step) : step_over(step, {});
  }
  give_back_here(step);
  if (step.there == kInPlace) return step_over(step, {});
  t.bytes_posted += step.bytes;
  ask_peer(step);
}

void Peer::ask_peer(Step& step) {
  step.state = Step::State::asked;
  StageCopy copy{lent_->number, step.there, worker_.remotes().region_of(step.remote), {}};
  for (const Step::Part& part : step.parts)
    copy.parts.all[copy.parts.count++] = {part.remote, static_cast<std::uint32_t>(part.length)};
  if (step.outwards)
    send(record::StagePut{copy});
  else
    send(record::StageGet{copy});
}

void Peer::on_stage_done(const record::StageDone& done) {
  const auto& [number, slot, code] = done;
  if (lent_ == nullptr || lent_->state != Lent::State::open || number != lent_->number || slot >= kSlots ||
      !lent_->busy.has(slot))
    return violation("the end of a copy that was not asked for");
  Step& step = worker_.staging().steps[lent_->steps[slot]];
  if (step.state == Step::State::left) return free_step(step);
  if (step.state != Step::State::asked) return violation("the end of a copy that was not asked for");
  worker_.again();
  if (code != ErrorCode::ok)
    return step_over(step,
                     Status(code, "the peer could not copy to or from its device: " + std::string(to_string(code)))
                         .with_peer(text()));
  if (step.outwards) return step_over(step, {});
  begin_inner(step);
}

// ---- the end of a step ----

void Peer::give_back_here(Step& step) {
  if (step.here == kInPlace) return;
  worker_.staging().used.remove(std::exchange(step.here, kInPlace));
  worker_.again();
}

void Peer::give_back_there(Step& step) {
  if (step.there == kInPlace) return;
  lent_->busy.remove(std::exchange(step.there, kInPlace));
  lent_->idle_since = worker_.now();
  wake_at(after(worker_.now(), kIdleRoom));
  worker_.again();
  end_lent();
}

void Peer::free_step(Step& step) {
  step.state = Step::State::free;
  give_back_here(step);
  give_back_there(step);
}

// It did its part, or the transfer cannot go on.
void Peer::step_over(Step& step, const Status& status) {
  const std::uint32_t slot = step.transfer;
  Transfer& t = transfer(slot);
  const std::uint64_t bytes = step.bytes;
  const bool gate = step.parts.empty() && t.total > 0;
  free_step(step);
  --t.pieces_out;
  if (t.phase == Phase::draining) return drained(slot);
  if (!status) return fail(slot, status);
  if (!t.signals) t.bytes_done += bytes;
  if (!gate && t.pieces_out == 0 && t.cursor.block >= t.blocks && !t.queued) advance(slot);
}

// The transfer is draining: what can be stopped is; copies under way end by themselves.
void Peer::stop_steps(std::uint32_t slot) {
  for (Step& step : worker_.staging().steps) {
    if (step.state == Step::State::free || step.state == Step::State::left || step.transfer != slot) continue;
    if (step.state == Step::State::moving) fail(step.inner, transfer(slot).status);
    if (step.state != Step::State::asked) continue;
    give_back_here(step);
    step.state = Step::State::left;
    Transfer& t = transfer(slot);
    t.in_doubt |= step.outwards;
    --t.pieces_out;
  }
}

}  // namespace fairway::engine
