#include <algorithm>
#include <cstring>

#include "core/crc32c.h"
#include "engine/peer.h"
#include "engine/worker.h"

// Checksums of a device's memory, and atomics on it. Its bytes come to a slot here, and a CPU does the rest; an
// atomic's new value goes back. The engine of the memory's owner is the one agent of such atomics and does one at a
// time, so they are atomic among all engines, and not against kernels that write the same word.
namespace fairway::engine {
namespace {

using transport::Copier;

std::uint64_t apply(const Errand& errand, std::uint64_t old) {
  if (errand.operation == record::Atomic::kAdd) return old + errand.operand;
  if (errand.operation == record::Atomic::kCompareSwap) return old == errand.expected ? errand.operand : old;
  return errand.operand;
}

}  // namespace

void Peer::begin_errand(Errand errand) {
  errand.peer = id().slot;
  const auto asked = [&](const Errand& each) { return each.peer == id().slot && each.kind != Errand::Kind::own_sum; };
  if (errands_ >= kMaxReplies && asked(errand)) {
    const auto& all = worker_.staging().errands;
    if (std::count_if(all.begin(), all.end(), asked) >= kMaxReplies)
      return violation("more requests than it may have outstanding");
  }
  ++errands_;
  ++worker_.staging().watched;
  worker_.staging().errands.push_back(errand);
  worker_.again();
}

// Right before each copy: the region may have ended meanwhile.
ErrorCode Peer::find_errand(const Errand& errand, transport::RegionTable::Resolved& out) const {
  const transport::RegionTable& regions = worker_.services().regions;
  const auto look = [&](Access needed) {
    return regions.resolve(errand.region, errand.offset, errand.length, needed, out);
  };
  if (errand.kind == Errand::Kind::own_sum) return look(Access::none);
  if (errand.kind == Errand::Kind::atomic) return look(Access::atomic);
  const ErrorCode code = look(Access::read);  // whoever may write or read the region may know its checksum
  return code == ErrorCode::access_denied ? look(Access::write) : code;
}

// In each step of the worker. One that has ended has no peer.
void Peer::turn_errand(Errand& errand) {
  const bool own = errand.kind == Errand::Kind::own_sum;
  const bool ends = own ? transfer(errand.token).phase == Phase::draining : down_;
  if (ends && !errand.queued) return end_errand(errand, ErrorCode::cancelled);
  std::string said;
  if (errand.queued) {
    const Copier::Readiness is = worker_.copier()->look(errand.ticket, said);
    if (is == Copier::Readiness::opening) return;
    errand.queued = false;
    if (is == Copier::Readiness::refused) return end_errand(errand, ErrorCode::system_error);
    std::byte* const slot = worker_.own_place(errand.here);
    const std::uint64_t part = std::min(errand.length - errand.done, kSlotBytes);
    if (errand.kind != Errand::Kind::atomic) {
      errand.value = crc32c(static_cast<std::uint32_t>(errand.value), std::span<const std::byte>(slot, part));
      errand.done += part;
      if (errand.done == errand.length) return end_errand(errand, ErrorCode::ok);
    } else if (errand.back) {
      return end_errand(errand, ErrorCode::ok);
    } else {
      std::memcpy(&errand.value, slot, sizeof errand.value);
      const std::uint64_t after = apply(errand, errand.value);
      if (after == errand.value) return end_errand(errand, ErrorCode::ok);
      std::memcpy(slot, &after, sizeof after);
      errand.back = true;
    }
  }
  if (errand.kind == Errand::Kind::atomic && !errand.holds &&
      !(errand.holds = !worker_.services().device_atomics.test_and_set(std::memory_order_acquire)))
    return worker_.again();  // another worker's is under way: microseconds
  if (errand.here == kInPlace) {
    Status why;
    errand.here = worker_.own_slot(why);
    if (!why) return end_errand(errand, why.code());
    if (errand.here == kInPlace) return;
    worker_.staging().used.add(errand.here);
  }
  transport::RegionTable::Resolved memory;
  if (const ErrorCode code = find_errand(errand, memory); code != ErrorCode::ok) return end_errand(errand, code);
  std::byte* const slot = worker_.own_place(errand.here);
  const std::uint64_t part = std::min(errand.length - errand.done, kSlotBytes);
  const Copier::Copy copy =
      errand.back ? Copier::Copy{memory.address, slot, part} : Copier::Copy{slot, memory.address + errand.done, part};
  const Copier::Readiness is = worker_.copier()->copy(errand.region, {&copy, 1}, errand.length == sizeof(std::uint64_t),
                                                      nullptr, errand.ticket, said);
  errand.queued = is == Copier::Readiness::ready;
  if (is == Copier::Readiness::refused) end_errand(errand, ErrorCode::system_error);
}

void Peer::end_errand(Errand& errand, ErrorCode code) {
  --errands_;
  --worker_.staging().watched;
  errand.peer = kNoSlot;
  if (errand.here != kInPlace) worker_.staging().used.remove(errand.here);
  if (errand.holds) worker_.services().device_atomics.clear(std::memory_order_release);
  worker_.again();
  if (errand.kind != Errand::Kind::own_sum) {
    if (errand.back) worker_.services().notice();
    if (!down_) service_.reply(errand.token, errand.serial, code, errand.value);
    return;
  }
  const std::uint32_t slot = errand.token;
  Transfer& t = transfer(slot);
  --t.pieces_out;
  if (t.phase == Phase::draining) return drained(slot);
  if (code != ErrorCode::ok)
    return fail(slot, Status(code, "the local memory could not be read for its checksum").with_peer(text()));
  requests_.compare(slot, errand.piece, errand.value, errand.expected);
}

}  // namespace fairway::engine
