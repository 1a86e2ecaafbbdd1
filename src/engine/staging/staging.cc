#include "engine/staging/staging.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/crc32c.h"
#include "engine/tables/record_body.h"

namespace fairway::engine {
namespace {

using transport::Copier;

std::uint64_t apply(const DeviceOperation& operation, std::uint64_t old) {
  if (operation.operation == record::Atomic::kAdd) return old + operation.operand;
  if (operation.operation == record::Atomic::kCompareSwap) return old == operation.expected ? operation.operand : old;
  return operation.operand;
}

// The bytes of the next copy, or of the one in progress.
std::uint64_t part_of(const DeviceOperation& operation) {
  return std::min(operation.length - operation.done, kSlotBytes);
}

}  // namespace

void DeviceOperations::begin(const DeviceOperation& operation) {
  all_.push_back(operation);
  pool_.watch();
  pool_.again();
}

bool DeviceOperations::proceed() {
  bool queued = false;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    proceed(all_[i]);
    queued |= all_[i].queued;
  }
  std::erase_if(all_, [](const DeviceOperation& operation) { return operation.owner == nullptr; });
  return queued;
}

bool DeviceOperations::copies(RegionId region) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const DeviceOperation& operation) { return operation.queued && operation.region == region; });
}

void DeviceOperations::proceed(DeviceOperation& operation) {
  if (!operation.queued && !operation.owner->wants(operation)) return end(operation, ErrorCode::cancelled);
  if (operation.queued) {
    std::string why;
    const Copier::Readiness is = pool_.copier()->poll(operation.ticket, why);
    if (is == Copier::Readiness::opening) return;
    operation.queued = false;
    if (is == Copier::Readiness::refused) return end(operation, ErrorCode::system_error);
    if (!copied(operation)) return;
  }
  if (prepare(operation)) copy(operation);
}

bool DeviceOperations::copied(DeviceOperation& operation) {
  std::byte* const slot = pool_.address(operation.here);
  const std::uint64_t part = part_of(operation);
  if (operation.kind != Kind::atomic) {
    operation.value = crc32c(static_cast<std::uint32_t>(operation.value), std::span<const std::byte>(slot, part));
    operation.done += part;
    if (operation.done < operation.length) return true;
  } else if (!operation.writeback) {
    std::memcpy(&operation.value, slot, sizeof operation.value);
    const std::uint64_t after = apply(operation, operation.value);
    if (after != operation.value) {
      std::memcpy(slot, &after, sizeof after);
      return operation.writeback = true;
    }
  }
  end(operation, ErrorCode::ok);
  return false;
}

bool DeviceOperations::prepare(DeviceOperation& operation) {
  if (operation.kind == Kind::atomic && !operation.holds) {
    operation.holds = !atomics_.test_and_set(std::memory_order_acquire);
    if (!operation.holds) pool_.again();  // another one is in progress: retry in microseconds
    if (!operation.holds) return false;
  }
  if (operation.here != kInPlace) return true;
  Status why;
  operation.here = pool_.take_slot(why);
  if (!why) end(operation, why.code());
  return operation.here != kInPlace;
}

void DeviceOperations::copy(DeviceOperation& operation) {
  transport::RegionTable::Resolved memory;
  if (const ErrorCode code = find(operation, memory); code != ErrorCode::ok) return end(operation, code);
  std::byte* const slot = pool_.address(operation.here);
  std::byte* const there = memory.address + operation.done;
  const Copier::Copy copy = operation.writeback ? Copier::Copy{there, slot, part_of(operation)}
                                                : Copier::Copy{slot, there, part_of(operation)};
  std::string why;
  const Copier::Readiness is = pool_.copier()->copy(
      operation.region, {&copy, 1}, operation.length == sizeof(std::uint64_t), nullptr, operation.ticket, why);
  operation.queued = is == Copier::Readiness::ready;
  if (is == Copier::Readiness::refused) end(operation, ErrorCode::system_error);
}

// Right before each copy: the region may have ended meanwhile.
ErrorCode DeviceOperations::find(const DeviceOperation& operation, transport::RegionTable::Resolved& out) const {
  const auto look = [&](Access needed) {
    return regions_.resolve(operation.region, operation.offset, operation.length, needed, out);
  };
  if (operation.kind == Kind::own_checksum) return look(Access::none);
  if (operation.kind == Kind::atomic) return look(Access::atomic);
  const ErrorCode code = look(Access::read);  // read or write access permits the checksum
  return code == ErrorCode::access_denied ? look(Access::write) : code;
}

void DeviceOperations::end(DeviceOperation& operation, ErrorCode code) {
  DeviceOperationOwner* const owner = std::exchange(operation.owner, nullptr);
  if (operation.here != kInPlace) pool_.give_back(operation.here);
  if (operation.holds) atomics_.clear(std::memory_order_release);
  pool_.unwatch();
  pool_.again();
  owner->ended(operation, code);
}

bool Staging::proceed(Time now) {
  bool queued = false;
  for (StagedChunk& chunk : pool.chunks())
    if (chunk.state == StagedChunk::State::copying) queued |= chunk.owner->proceed(chunk);
  queued |= leases.proceed(now);
  queued |= operations.proceed();
  if (pool.copier() != nullptr) pool.copier()->flush();
  if (queued) pool.again();
  return queued;
}

}  // namespace fairway::engine
