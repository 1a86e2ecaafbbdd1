#include "engine/staging/client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/tables/request_check.h"
#include "engine/tables/route.h"

namespace fairway::engine {
namespace {

constexpr std::size_t kCopyHead = 64;   // of stage_put and stage_get, beyond their parts
constexpr std::size_t kPartBytes = 12;  // there

}  // namespace

// ---- to the wire ----

Turn StagingClient::move(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  t.phase = Phase::moving;
  for (std::uint32_t turn = 0; turn < Turns::kPieces; ++turn) {
    if (t.total > 0) {
      t.cursor.block = skip_empty(t.request.layout, t.cursor.block);
      if (t.cursor.block < t.blocks && block_at(t.request.layout, t.cursor.block).length == 0) return Turn::more;
    }
    if (t.cursor.block >= t.blocks) {
      if (t.pieces_out == 0) peer_.advance(slot);
      return Turn::posted_all;
    }
    const bool gate = t.request.options.start_after != nullptr && !t.gated;
    if (gate && t.pieces_out > 0) return Turn::no_credit;
    StagedChunk* const chunk = take_chunk(slot, t.cursor.block, gate);
    if (chunk == nullptr) return t.phase == Phase::moving ? Turn::no_credit : Turn::failed;
    ++t.pieces_out;
    if (gate) {
      begin_copy(*chunk);
    } else if (t.total == 0) {  // it only opens the path
      t.cursor.block = t.blocks;
      end(*chunk, {});
    } else if (const Status bounds = cut(*chunk, t.cursor, kMostParts); !bounds) {
      end(*chunk, bounds.with_peer(peer_.text()));
    } else {
      begin(*chunk);
    }
    if (t.phase != Phase::moving) return Turn::failed;
  }
  return Turn::more;
}

void StagingClient::stage(StagedChunk& chunk, const Piece& piece) {
  Cursor cursor{piece.block, piece.offset};
  if (const Status bounds = cut(chunk, cursor, 1, piece.length); !bounds)
    end(chunk, bounds.with_peer(peer_.text()));
  else
    begin(chunk);
}

// A chunk with the slots that it needs. Null: none is free now, or the transfer has failed. `gate`: waits for an event.
StagedChunk* StagingClient::take_chunk(std::uint32_t slot, std::uint64_t block_index, bool gate) {
  const Transfer& t = peer_.transfer(slot);
  StagedChunk* const chunk = pool_.free_chunk(t.chunk != kNoSlot);
  if (chunk == nullptr) return nullptr;
  const Block block = block_at(t.request.layout, block_index);
  bool here = gate || in_device(peer_.regions(), block.local);
  const bool there = !gate && peer_.remotes().in_device(block.remote);
  std::uint8_t theirs = kInPlace, ours = kInPlace;
  Status why;
  if (there) theirs = lease_.free_slot(why);
  if (here && !gate && there && theirs != kInPlace) {
    const transport::Reach is = peer_.reach_by_any(block.local, lease_.region());
    const bool comes = is == transport::Reach::pinning || is == transport::Reach::opening;
    if (comes && t.total == 0) return nullptr;  // it only opens the path
    here = is != transport::Reach::yes;
  }
  if (here && why && (!there || theirs != kInPlace)) ours = pool_.take_slot(why);
  if (!why) peer_.fail(slot, why.with_peer(peer_.text()));
  if (!why || (here && ours == kInPlace) || (there && theirs == kInPlace)) return nullptr;
  chunk->state = State::copying;
  chunk->queued = false;
  chunk->outwards = op_of(t.request.operation) == transport::Op::write;
  chunk->owner = this;
  chunk->transfer = slot;
  chunk->local = block.local;
  chunk->remote = block.remote;
  chunk->bytes = 0;
  chunk->parts.clear();
  chunk->here = ours;
  chunk->there = theirs;
  if (there) {
    lease_.use(theirs);
    chunks_[theirs] = pool_.index_of(*chunk);
  }
  return chunk;
}

// Blocks of one pair of regions from `cursor` on, until the slot is full or `most` bytes are taken.
Status StagingClient::cut(StagedChunk& chunk, Cursor& cursor, std::size_t most_parts, std::uint64_t most) {
  const Transfer& t = peer_.transfer(chunk.transfer);
  const std::size_t fits = chunk.there == kInPlace ? kMostParts : (record_bytes_ - kCopyHead) / kPartBytes;
  std::uint64_t left = std::min(most, kSlotBytes);
  while (cursor.block < t.blocks && left > 0 && chunk.parts.size() < std::min(most_parts, fits)) {
    const Block block = block_at(t.request.layout, cursor.block);
    if (block.length == 0) {
      cursor.block = skip_empty(t.request.layout, cursor.block);
      if (cursor.block < t.blocks && block_at(t.request.layout, cursor.block).length == 0) break;
      continue;
    }
    if (block.local != chunk.local || block.remote != chunk.remote) break;
    const std::uint64_t length = std::min(block.length - cursor.offset, left);
    std::byte* at = nullptr;
    if (Status status = resolve(peer_.regions(), peer_.remotes(), t, cursor.block, block, cursor.offset, length, at);
        !status)
      return status;
    chunk.parts.push_back({block.local_offset + cursor.offset, block.remote_offset + cursor.offset, length});
    chunk.bytes += length;
    left -= length;
    cursor = cursor.offset + length == block.length ? Cursor{cursor.block + 1, 0}
                                                    : Cursor{cursor.block, cursor.offset + length};
  }
  return {};
}

void StagingClient::begin(StagedChunk& chunk) {
  if (!chunk.outwards || chunk.there == kInPlace) peer_.transfer(chunk.transfer).bytes_posted += chunk.bytes;
  if (!chunk.outwards && chunk.there != kInPlace) return ask_peer(chunk);
  if (chunk.outwards && chunk.here != kInPlace) return begin_copy(chunk);
  begin_inner(chunk);
}

// ---- the three ways that a chunk goes ----

void StagingClient::begin_copy(StagedChunk& chunk) {
  chunk.state = State::copying;
  chunk.queued = false;
  pool_.watch();
  queue_copy(chunk);
}

void StagingClient::queue_copy(StagedChunk& chunk) {
  std::array<transport::Copier::Copy, kMostParts> copies;
  transport::RegionTable::Resolved local;
  std::byte* const slot = pool_.address(chunk.here);
  std::size_t count = 0;
  std::uint64_t at = 0;
  const Transfer& t = peer_.transfer(chunk.transfer);
  void* const gate = chunk.parts.empty() ? t.request.options.start_after : nullptr;
  std::string why;
  Readiness ready = Readiness::refused;
  ErrorCode refusal = ErrorCode::revoked;
  if (peer_.regions().resolve(chunk.local, 0, 0, Access::none, local) == ErrorCode::ok) {
    for (const StagedPart& part : chunk.parts) {
      std::byte* const memory = local.address + part.local;
      copies[count++] = chunk.outwards ? transport::Copier::Copy{slot + at, memory, part.length}
                                       : transport::Copier::Copy{memory, slot + at, part.length};
      at += part.length;
    }
    if (gate != nullptr) copies[count++] = {slot + sizeof(std::uint64_t), slot, sizeof(std::uint64_t)};
    refusal = ErrorCode::system_error;
    ready = pool_.copier()->copy(chunk.local, std::span(copies.data(), count), chunk.bytes <= kUrgentBytes, gate,
                                 chunk.ticket, why);
  }
  chunk.queued = ready == Readiness::ready;
  if (ready != Readiness::refused) return;
  pool_.unwatch();
  if (refusal == ErrorCode::revoked) why = "the local region was deregistered";
  end(chunk, Status(refusal, why).with_peer(peer_.text()));
}

bool StagingClient::proceed(StagedChunk& chunk) {
  const bool ends = peer_.transfer(chunk.transfer).phase == Phase::draining;
  if (!chunk.queued && !ends) {
    queue_copy(chunk);
    return chunk.state == State::copying && chunk.queued;
  }
  std::string why;
  const Readiness is = chunk.queued ? pool_.copier()->poll(chunk.ticket, why) : Readiness::ready;
  if (is == Readiness::opening) return true;
  pool_.unwatch();
  peer_.again();
  if (is == Readiness::refused || ends) {
    end(chunk, Status(ErrorCode::system_error, why).with_peer(peer_.text()));
  } else if (chunk.parts.empty()) {  // the gate
    peer_.transfer(chunk.transfer).gated = true;
    end(chunk, {});
  } else if (chunk.outwards) {
    begin_inner(chunk);
  } else {
    end(chunk, {});
  }
  return false;
}

// From here on a transfer like any other, owned by the engine: routed, striped, and retried when a link breaks.
void StagingClient::begin_inner(StagedChunk& chunk) {
  chunk.state = State::moving;
  const RegionId slots = pool_.region();
  const std::uint64_t here = chunk.here * kSlotBytes, there = chunk.there * kSlotBytes;
  chunk.extents.clear();
  if (chunk.here != kInPlace && chunk.there != kInPlace) {
    chunk.extents.push_back({{slots, here, chunk.bytes}, {lease_.region(), there}});
  } else {
    std::uint64_t at = 0;
    for (const StagedPart& part : chunk.parts) {
      chunk.extents.push_back(
          {chunk.here != kInPlace ? Slice{slots, here + at, part.length} : Slice{chunk.local, part.local, part.length},
           chunk.there != kInPlace ? RemoteAddress{lease_.region(), there + at}
                                   : RemoteAddress{chunk.remote, part.remote}});
      at += part.length;
    }
  }
  Request request;
  request.operation = chunk.outwards ? Operation::write : Operation::read;
  request.peer = peer_.id();
  request.layout = std::span<const Extent>(chunk.extents);
  request.options.priority = peer_.transfer(chunk.transfer).request.options.priority;
  Transfer& inner = peer_.transfer(chunk.inner);
  inner.begin(request, peer_.now());
  inner.chunk = pool_.index_of(chunk);
  peer_.begin_inner(chunk.inner);
  inner.phase = Phase::queued;
  peer_.take_turns(chunk.inner);
  peer_.again();
}

void StagingClient::inner_ended(std::uint32_t slot, const Status& status) {
  const Transfer& inner = peer_.transfer(slot);
  StagedChunk& chunk = pool_[inner.chunk];
  Transfer& t = peer_.transfer(chunk.transfer);
  t.links_used |= inner.links_used;
  t.retried += inner.retried;
  peer_.again();
  if (!status) {
    t.in_doubt |= inner.in_doubt && chunk.there == kInPlace;
    if (inner.in_doubt && chunk.outwards && chunk.there != kInPlace) lease_.lose(chunk.there);
    return end(chunk, status);
  }
  if (t.phase == Phase::draining) return end(chunk, {});
  if (!chunk.outwards) {
    give_back_there(chunk);
    return chunk.here != kInPlace ? begin_copy(chunk) : end(chunk, {});
  }
  give_back_here(chunk);
  if (chunk.there == kInPlace) return end(chunk, {});
  t.bytes_posted += chunk.bytes;
  ask_peer(chunk);
}

void StagingClient::ask_peer(StagedChunk& chunk) {
  chunk.state = State::asked;
  StageCopy copy{lease_.number(), chunk.there, peer_.remotes().region_of(chunk.remote), {}};
  for (const StagedPart& part : chunk.parts)
    copy.parts.all[copy.parts.count++] = {part.remote, static_cast<std::uint32_t>(part.length)};
  if (chunk.outwards)
    peer_.send(record::StagePut{copy});
  else
    peer_.send(record::StageGet{copy});
}

void StagingClient::on_done(const record::StageDone& done) {
  const auto& [number, slot, code] = done;
  StagedChunk* const chunk = lease_.uses(number, slot) ? &pool_[chunks_[slot]] : nullptr;
  if (chunk != nullptr && chunk->state == State::abandoned) return free(*chunk);
  if (chunk == nullptr || chunk->state != State::asked)
    return peer_.violation("the end of a copy that was not asked for");
  peer_.again();
  if (code != ErrorCode::ok)
    return end(*chunk, Status(code, "the peer could not copy to or from its device: " + std::string(to_string(code)))
                           .with_peer(peer_.text()));
  if (chunk->outwards) return end(*chunk, {});
  begin_inner(*chunk);
}

std::optional<RemoteRegionId> StagingClient::reached_from(RegionId local) const {
  const bool reached = lease_.is_open() && in_device(peer_.regions(), local) &&
                       peer_.reach_by_any(local, lease_.region()) == transport::Reach::yes;
  return reached ? std::optional(lease_.region()) : std::nullopt;
}

// ---- the end of a chunk ----

void StagingClient::give_back_here(StagedChunk& chunk) {
  if (chunk.here != kInPlace) pool_.give_back(std::exchange(chunk.here, kInPlace));
}

void StagingClient::give_back_there(StagedChunk& chunk) {
  if (chunk.there != kInPlace) lease_.give_back(std::exchange(chunk.there, kInPlace));
}

void StagingClient::free(StagedChunk& chunk) {
  chunk.state = State::free;
  give_back_here(chunk);
  give_back_there(chunk);
}

void StagingClient::end(StagedChunk& chunk, const Status& status) {
  const std::uint32_t slot = chunk.transfer;
  Transfer& t = peer_.transfer(slot);
  const std::uint64_t bytes = chunk.bytes;
  const bool gate = chunk.parts.empty() && t.total > 0;
  free(chunk);
  --t.pieces_out;
  if (t.phase == Phase::draining) return peer_.drained(slot);
  if (!status) return peer_.fail(slot, status);
  if (!t.signals) t.bytes_done += bytes;
  if (!gate && t.pieces_out == 0 && t.cursor.block >= t.blocks && !t.queued) peer_.advance(slot);
}

void StagingClient::stop(std::uint32_t slot) {
  for (StagedChunk& chunk : pool_.chunks()) {
    if (chunk.state == State::free || chunk.state == State::abandoned || chunk.transfer != slot) continue;
    if (chunk.state == State::moving) peer_.fail(chunk.inner, peer_.transfer(slot).status);
    if (chunk.state != State::asked) continue;
    give_back_here(chunk);
    chunk.state = State::abandoned;
    Transfer& t = peer_.transfer(slot);
    t.in_doubt |= chunk.outwards;
    --t.pieces_out;
  }
}

void StagingClient::peer_gone() {
  for (StagedChunk& chunk : pool_.chunks())
    if (chunk.state == State::abandoned && chunk.owner == this) chunk.state = State::free;
  lease_.peer_gone();
}

// ---- checksums ----

void StagingClient::run(DeviceOperation operation) {
  operation.owner = this;
  staging_.operations.begin(operation);
}

bool StagingClient::wants(const DeviceOperation& operation) const {
  return peer_.transfer(operation.token).phase != Phase::draining;
}

void StagingClient::ended(const DeviceOperation& operation, ErrorCode code) {
  const std::uint32_t slot = operation.token;
  Transfer& t = peer_.transfer(slot);
  --t.pieces_out;
  if (t.phase == Phase::draining) return peer_.drained(slot);
  if (code != ErrorCode::ok)
    return peer_.fail(slot,
                      Status(code, "the local memory could not be read for its checksum").with_peer(peer_.text()));
  peer_.compare(slot, operation.piece, operation.value, operation.expected);
}

}  // namespace fairway::engine
