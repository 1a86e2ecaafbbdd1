#include "engine/staging/server.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace fairway::engine {

namespace {

using transport::Copier;

}  // namespace

// ---- the lease ----

void StagingServer::on_ask(std::uint32_t number) {
  if (number == 0) return peer_.violation("a request for a staging buffer without a number");
  if (state_ == State::none) return begin_wait(number);
  if (next_ != 0) return peer_.violation("requests for more than one staging buffer");
  next_ = number;  // it arrived before the end of the previous one
}

void StagingServer::begin_wait(std::uint32_t number) {
  number_ = number;
  next_ = 0;
  used_ = recalled_ = false;
  if (staging_.pool.copier() == nullptr) return grant(ErrorCode::unsupported);
  state_ = State::waiting;
  staging_.leases.wait(*this);
}

void StagingServer::lend() {
  state_ = State::making;
  staging_.pool.watch();
  buffer_ = staging_.pool.copier()->allocate_staging(kStagingBytes);
  open();
}

void StagingServer::open() {
  const Copier::Readiness is = buffer_->state.load(std::memory_order_acquire);
  if (is == Copier::Readiness::opening) return;
  staging_.pool.unwatch();
  Result<RegionId> region = Status(ErrorCode::resource_exhausted, "no memory");
  if (is == Copier::Readiness::ready) region = staging_.pool.add_region(*buffer_, Access::read | Access::write);
  if (!region) {
    buffer_.reset();
    state_ = State::none;
    staging_.leases.drop(*this);
    return grant(region.status().code());
  }
  region_ = *region;
  state_ = State::open;
  lent_since_ = peer_.now();
  copies_.resize(kSlots);
  grant(ErrorCode::ok);
}

void StagingServer::grant(ErrorCode code) {
  std::vector<std::byte> described;
  if (code == ErrorCode::ok) described = format_description(peer_.locals().describe(region_), record_payload_);
  peer_.send(record::StageGrant{number_, code, {described}});
}

bool StagingServer::had_turn(Time now) const {
  if (state_ != State::open || recalled_ || !used_) return false;
  return now - lent_since_ >= kLeaseTurn || !is_copying();
}

void StagingServer::recall() {
  recalled_ = true;
  if (!peer_.is_down()) peer_.send(record::StageRecall{number_});
}

void StagingServer::on_end(std::uint32_t number) {
  if (state_ != State::open || number != number_ || is_copying())
    return peer_.violation("the end of a lease that it does not have, or still uses");
  close();
  if (const std::uint32_t next = std::exchange(next_, 0); next != 0) begin_wait(next);
}

// Its memory is freed, not leased again, once nothing can write to it any more.
void StagingServer::close() {
  state_ = State::none;
  const RegionId region = std::exchange(region_, {});
  (void)peer_.regions().revoke(region);
  StagingLeases& leases = staging_.leases;
  leases.close(*this);
  peer_.end_lease(region, [&leases, region, recalled = recalled_, buffer = std::move(buffer_)](const Status& fenced) {
    leases.ended(region, recalled, buffer, fenced);
  });
}

void StagingServer::peer_gone() {
  next_ = 0;
  if (state_ == State::waiting) {
    state_ = State::none;
    staging_.leases.wait_no_more(*this);
  } else if (state_ == State::making) {
    staging_.pool.unwatch();
    buffer_.reset();
    state_ = State::none;
    staging_.leases.drop(*this);
  } else if (state_ == State::open) {
    for (Copy& copy : copies_)
      if (copy.busy && !copy.queued) {
        copy.busy = false;
        staging_.pool.unwatch();
      }
    if (!is_copying()) close();
  }
}

// ---- copies ----

void StagingServer::on_copy(const StageCopy& asked, bool put) {
  const auto& [number, slot, region, parts] = asked;
  if (state_ != State::open || number != number_ || slot >= kSlots || copies_[slot].busy)
    return peer_.violation("a copy of a slot without a lease");
  Copy& copy = copies_[slot];
  copy.parts.clear();
  std::uint64_t left = kSlotBytes;
  for (const auto& [offset, length] : std::span(parts.all).first(parts.count)) {
    if (length > left) return peer_.violation("a copy of more than a slot");
    left -= length;
    copy.parts.push_back({0, offset, length});
  }
  used_ = true;
  copy.busy = true;
  copy.queued = false;
  copy.put = put;
  copy.region = region;
  staging_.pool.watch();
  queue(slot);
}

bool StagingServer::proceed() {
  if (state_ == State::making) open();
  bool queued = false;
  for (std::uint8_t slot = 0; slot < copies_.size(); ++slot) {
    Copy& copy = copies_[slot];
    if (copy.busy && !copy.queued) queue(slot);
    if (!copy.busy || !copy.queued) continue;
    std::string why;
    const Copier::Readiness is = staging_.pool.copier()->poll(copy.ticket, why);
    if (is == Copier::Readiness::opening)
      queued = true;
    else
      end(slot, is == Copier::Readiness::ready ? ErrorCode::ok : ErrorCode::system_error);
  }
  return queued;
}

void StagingServer::queue(std::uint8_t slot) {
  Copy& copy = copies_[slot];
  std::array<Copier::Copy, kMostParts> copies;
  std::byte* place = buffer_->memory.address() + slot * kSlotBytes;
  const Access needed = copy.put ? Access::write : Access::read;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const StagedPart& part : copy.parts) {
    transport::RegionTable::Resolved at;
    const ErrorCode code = peer_.regions().resolve(copy.region, part.remote, part.length, needed, at);
    if (code != ErrorCode::ok) return end(slot, code);
    if (reached_by_cpu(at.kind)) return end(slot, ErrorCode::unsupported);
    copies[count++] = copy.put ? Copier::Copy{at.address, place + bytes, part.length}
                               : Copier::Copy{place + bytes, at.address, part.length};
    bytes += part.length;
  }
  std::string why;
  const Copier::Readiness is = staging_.pool.copier()->copy(copy.region, std::span(copies.data(), count),
                                                            bytes <= kUrgentBytes, nullptr, copy.ticket, why);
  copy.queued = is == Copier::Readiness::ready && count > 0;
  if (is == Copier::Readiness::refused) end(slot, ErrorCode::system_error);
  if (is == Copier::Readiness::ready && count == 0) end(slot, ErrorCode::ok);
  peer_.again();
}

void StagingServer::end(std::uint8_t slot, ErrorCode code) {
  copies_[slot].busy = copies_[slot].queued = false;
  staging_.pool.unwatch();
  peer_.again();
  if (!peer_.is_down()) {
    peer_.send(record::StageDone{number_, slot, code});
  } else if (!is_copying()) {
    close();
  }
}

bool StagingServer::is_copying() const {
  return std::any_of(copies_.begin(), copies_.end(), [](const Copy& copy) { return copy.busy; });
}

bool StagingServer::copies(RegionId region) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& copy) { return copy.busy && copy.queued && copy.region == region; });
}

// ---- checksums and atomics ----

void StagingServer::run(DeviceOperation operation) {
  if (operations_ >= kMostOperations) return peer_.violation("more requests than it may have outstanding");
  ++operations_;
  operation.owner = this;
  staging_.operations.begin(operation);
}

bool StagingServer::wants(const DeviceOperation&) const {
  return !peer_.is_down();
}

void StagingServer::ended(const DeviceOperation& operation, ErrorCode code) {
  --operations_;
  if (operation.writeback) peer_.notice();
  if (!peer_.is_down()) peer_.send(record::Reply{operation.token, operation.serial, code, operation.value, {}});
}

}  // namespace fairway::engine
