#include "engine/links/proof.h"

#include <algorithm>

#include "engine/links/link_set.h"
#include "engine/tables/record.h"
#include "transport/optional_calls.h"

namespace fairway::engine {

void OwnMemory::make(LocalRegions& regions, std::size_t size_bytes, Access access) {
  bytes.reset(static_cast<std::byte*>(std::calloc(size_bytes, 1)));
  missing = {ErrorCode::resource_exhausted, "no memory is left for the engine's own use"};
  if (bytes == nullptr) return;
  const auto id = regions.add_own(bytes.get(), size_bytes, access);
  missing = id.status();
  if (id) region = *id;
}

std::uint32_t ScratchMemory::take() {
  if (free_.empty()) return taken_++;
  const std::uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

OwnMemory& ScratchMemory::of(std::uint32_t place) {
  OwnMemory& share = shares_[place / kPeersPerShare];
  if (share.bytes == nullptr) share.make(regions_, kPeersPerShare * size_bytes_, Access::read | Access::write);
  return share;
}

// Proofs of links: random bytes are written to the peer's scratch region and read back. A link without write or read
// sends an echo request by message instead.

namespace {

constexpr Time kEchoAgain = 5 * kMillisecond;

}  // namespace

std::size_t LinkSet::scratch_place(std::uint8_t index) const {
  return scratch_.offset(place_) + index * kScratchBytes;
}

void LinkSet::begin_proof(std::uint8_t index) {
  Link& link = links_[index];
  OwnMemory& scratch = scratch_.of(place_);
  if (!scratch.missing) return close(index, scratch.missing.with_context("the proof could not start"));
  link.proof_step = 0;
  link.proof_since = since_now();
  peer_.wake_at(after(peer_.now(), bound_));
  rng_.fill(link.proof_sent);
  std::copy(link.proof_sent.begin(), link.proof_sent.end(), scratch.bytes.get() + scratch_place(index) + kProofBytes);
  continue_proof(index);
}

void LinkSet::continue_proof(std::uint8_t index) {
  Link& link = links_[index];
  const bool writes = link.has(transport::Op::write);
  const bool reads = link.has(transport::Op::read);
  if (link.state != LinkState::proving || link.proof_step > 1) return;
  if (link.proof_step == 0 && !writes) link.proof_step = 1;
  if (peer_.slices().free_count() == 0) return peer_.wake_at(peer_.now() + kMillisecond);
  transport::Slice slice;
  slice.link = link.id;
  slice.token = peer_.slices().acquire(peer_.id().slot);
  SliceEntry& entry = peer_.slices()[slice.token];
  entry = {SliceUse::proof, {}, false, index, peer_.id().slot, link.proof_step, entry.serial, 0, {}, since_now()};
  const bool over_memory = link.proof_step == 0 || (writes && reads);
  std::array<std::byte, kRecordHeader + 1 + kProofBytes> echo;
  if (over_memory) {
    const auto handle = peer_.remotes().handle(peer_.owner(), scratch_there_, link.transport);
    if (!handle) {
      peer_.slices().release(slice.token);
      return close(index, handle.status().with_context("the proof could not start"));
    }
    slice.op = link.proof_step == 0 ? transport::Op::write : transport::Op::read;
    OwnMemory& scratch = scratch_.of(place_);
    Status refused = peer_.locals().why_without(scratch.region, link.transport);
    const std::uint64_t local = peer_.locals().handle(scratch.region, link.transport);
    if (std::string why; refused && !can_reach(link, local, *handle, &why)) refused = {ErrorCode::unsupported, why};
    if (!refused) {
      peer_.slices().release(slice.token);
      return close(index, refused.with_context("the proof could not start"));
    }
    slice.local = scratch.bytes.get() + scratch_place(index) + (link.proof_step + 1) * kProofBytes;
    slice.local_handle = local;
    slice.remote_handle = *handle;
    slice.remote_offset = offset_there_ + index * kScratchBytes;
    slice.length = kProofBytes;
  } else {
    // By a message: the peer answers with what lies in its scratch region, or with our own bytes if we cannot write
    // there.
    slice.op = transport::Op::message;
    slice.local = echo.data();
    slice.length = encode(echo, record::Echo{writes ? index : static_cast<std::uint8_t>(kMaxLinks), {link.proof_sent}});
  }
  entry.op = slice.op;
  if (post(link, slice)) return;
  peer_.wake_at(peer_.now() + kMillisecond);
}

void LinkSet::proof_done(std::uint8_t index, const Status& status) {
  Link& link = links_[index];
  if (link.state != LinkState::proving) return;
  if (!status) return close(index, status.with_context("the proof failed"));
  const bool by_echo = !(link.has(transport::Op::write) && link.has(transport::Op::read));
  if (link.proof_step == 0) {
    link.proof_step = 1;
    return continue_proof(index);
  }
  if (by_echo) {
    link.proof_step = 2;  // the answer completes it; ask again if none comes, since the peer's queue may have been full
    link.proof_again = after(peer_.now(), kEchoAgain);
    return peer_.wake_at(link.proof_again);
  }
  const std::byte* read = scratch_.of(place_).bytes.get() + scratch_place(index) + 2 * kProofBytes;
  if (!std::equal(link.proof_sent.begin(), link.proof_sent.end(), read))
    return close(index, {ErrorCode::link_failed, "the proof read back other bytes than it wrote"});
  set_ready(links_[index]);
}

void LinkSet::on_echo(std::uint8_t index, const record::Echo& echo) {
  const std::uint8_t place = echo.place;
  const auto sent = echo.sent.bytes;
  if (sent.size() != kProofBytes || place > kMaxLinks) return peer_.violation("an echo of no such place or size");
  Link& link = links_[index];
  // The peer's write may have been delivered without being visible yet.
  OwnMemory& scratch = scratch_.of(place_);
  if (auto* const flushes = dynamic_cast<transport::FlushesWrites*>(peer_.transports()[link.transport].get()))
    (void)flushes->flush(peer_.locals().handle(scratch.region, link.transport));
  const bool ours = place != kMaxLinks && scratch.missing;
  const std::byte* answer = ours ? scratch.bytes.get() + scratch_place(place) : sent.data();
  std::copy_n(answer, kProofBytes, link.echo_answer.begin());
  link.echo_owed = true;
  answer_echo(index);
}

// Now, or when the link has a free slot: two ends that ask each other at the same time may each fill their only slot.
void LinkSet::answer_echo(std::uint8_t index) {
  Link& link = links_[index];
  if (!link.is_up()) link.echo_owed = false;
  if (!link.echo_owed) return;
  peer_.wake_at(after(peer_.now(), kMillisecond));
  if (link.free_slots() == 0 || peer_.slices().free_count() == 0) return;
  std::array<std::byte, kRecordHeader + kProofBytes> answer;
  transport::Slice slice;
  slice.op = transport::Op::message;
  slice.link = link.id;
  slice.local = answer.data();
  slice.length = encode(answer, record::EchoReply{{link.echo_answer}});
  slice.token = peer_.slices().acquire(peer_.id().slot);
  SliceEntry& entry = peer_.slices()[slice.token];
  entry = {SliceUse::proof, slice.op, false, index, peer_.id().slot, 2, entry.serial, 0, {}, since_now()};
  if (post(link, slice)) link.echo_owed = false;
}

// Posts one slice of a proof. False: the link took none now.
bool LinkSet::post(Link& link, const transport::Slice& slice) {
  entered(link, false);
  if (peer_.transports()[link.transport]->post(std::span(&slice, 1)) == 1) return true;
  --link.in_flight;
  --out_;
  peer_.slices().release(slice.token);
  return false;
}

void LinkSet::on_echo_reply(std::uint8_t index, std::span<const std::byte> bytes) {
  Link& link = links_[index];
  if (link.state != LinkState::proving) return;
  if (bytes.size() != kProofBytes || !std::equal(bytes.begin(), bytes.end(), link.proof_sent.begin()))
    return close(index, {ErrorCode::link_failed, "the proof read back other bytes than it wrote"});
  set_ready(links_[index]);
}

}  // namespace fairway::engine
