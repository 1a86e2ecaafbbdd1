#include "engine/tables/request_check.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "engine/layout.h"
#include "engine/tables/route.h"

namespace fairway::engine {
namespace {

using std::chrono::microseconds;

constexpr microseconds kLongestSpin = std::chrono::seconds(1);
constexpr std::uint32_t kMostWorkers = 256;
constexpr std::uint32_t kMostEntries = 1u << 24;
constexpr std::uint64_t kLeastUnexpected = 2048;
constexpr std::chrono::milliseconds kShortestTimeout{10};
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(1);

Status refuse(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

// The enumeration's values are 0 to `last`.
template <class Enum>
Status check_enum(Enum value, Enum last, const char* name) {
  static_assert(std::is_unsigned_v<std::underlying_type_t<Enum>>);
  if (value <= last) return {};
  return refuse(std::string(name) + "(" + std::to_string(static_cast<unsigned>(value)) + ") is no value: the last is " +
                std::to_string(static_cast<unsigned>(last)));
}

}  // namespace

Status check_values(const Request& request) {
  const RequestOptions& options = request.options;
  if (request.operation <= Operation::compare_swap && options.notify.kind <= NotifyKind::signal &&
      options.priority <= Priority::urgent && options.deliver <= Deliver::to_poll && !options.queue &&
      options.notify.message.empty())
    return {};  // as most are
  if (Status s = check_enum(request.operation, Operation::compare_swap, "Operation"); !s) return s;
  if (Status s = check_enum(options.notify.kind, NotifyKind::signal, "NotifyKind"); !s) return s;
  if (Status s = check_enum(options.priority, Priority::urgent, "Priority"); !s) return s;
  if (Status s = check_enum(options.deliver, Deliver::to_callback, "Deliver"); !s) return s;
  if (options.deliver == Deliver::to_callback && options.callback == nullptr)
    return refuse("Deliver::to_callback without a callback");
  if (options.queue && options.deliver != Deliver::to_poll)
    return refuse("RequestOptions::queue is for Deliver::to_poll: other completions come another way");
  if (options.notify.message.size() > kMaxNotifyMessage)
    return refuse("a notification's message has at most 256 bytes, this one " +
                  std::to_string(options.notify.message.size()));
  if (!options.notify.message.empty() && options.notify.kind != NotifyKind::event)
    return refuse("only a notification of kind event carries a message");
  return {};
}

Status check_values(Access access, MemoryKind kind) {
  if (static_cast<unsigned>(access) > static_cast<unsigned>(Access::all))
    return refuse("Access(" + std::to_string(static_cast<unsigned>(access)) +
                  ") is no value: combine read, write and atomic");
  return check_enum(kind, MemoryKind::managed, "MemoryKind");
}

Status check_values(const EngineOptions& options) {
  const std::pair<std::uint64_t, const char*> counts[] = {{options.workers, "workers"},
                                                          {options.max_transfers, "max_transfers"},
                                                          {options.max_regions, "max_regions"},
                                                          {options.max_remote_regions, "max_remote_regions"},
                                                          {options.max_peers, "max_peers"},
                                                          {options.max_counters, "max_counters"},
                                                          {options.notifications_per_peer, "notifications_per_peer"}};
  for (const auto& [count, name] : counts)
    if (count == 0) return refuse(std::string("EngineOptions::") + name + " is 0");
  if (options.workers > kMostWorkers)
    return refuse("EngineOptions::workers is " + std::to_string(options.workers) + ", at most 256");
  if (options.max_transfers >= kMostEntries || options.max_regions >= kMostEntries ||
      options.max_remote_regions >= kMostEntries)
    return refuse("EngineOptions::max_transfers, max_regions and max_remote_regions are at most 2^24");
  if (options.unexpected_bytes_per_peer < kLeastUnexpected)
    return refuse("EngineOptions::unexpected_bytes_per_peer is at least 2048, the space of one small message");
  if (Status s = check_enum(options.progress, Progress::caller, "Progress"); !s) return s;
  if (Status s = check_enum(options.rdma.on_demand, OnDemand::always, "OnDemand"); !s) return s;
  if (options.spin < microseconds(0) || options.spin > kLongestSpin)
    return refuse("EngineOptions::spin is " + std::to_string(options.spin.count()) + " us: it is 0 to 1 s");
  if (options.peer_timeout < kShortestTimeout)
    return refuse("EngineOptions::peer_timeout is at least 10 ms: the scheduler may pause a live peer");
  if (options.peer_timeout > kLongestTimeout) return refuse("EngineOptions::peer_timeout is at most 1 hour");
  return {};
}

namespace {

constexpr std::size_t kMostPieces = 1024;
constexpr std::uint64_t kMostSpread = 64U << 20;  // copied by a worker between two of its turns

Status refused(ErrorCode code, const char* side) {
  switch (code) {
    case ErrorCode::out_of_range:
      return {code, std::string("the request reaches beyond the end of its ") + side + " region"};
    case ErrorCode::access_denied:
      return {code, std::string("the ") + side + " region was not registered with the permission this needs"};
    default: return {code, std::string("the ") + side + " region is not registered any more, or never was"};
  }
}

}  // namespace

Status RequestCheck::check_local(const Slice& slice, bool written) const {
  transport::RegionTable::Resolved out;
  const ErrorCode code = regions_.resolve(slice.region, slice.offset, slice.length, Access::none, out);
  if (code != ErrorCode::ok) return refused(code, "local");
  if (written && !regions_.is_writable(slice.region))
    return {ErrorCode::access_denied, "the local region is read-only memory of this process: nothing can arrive in it"};
  return {};
}

Status RequestCheck::check_remote(const RemoteAddress& place, std::uint64_t length, Access needed) const {
  transport::RegionTable::Resolved out;
  const ErrorCode code =
      remotes_.resolve({place.region.slot, place.region.generation}, place.offset, length, needed, out);
  return code == ErrorCode::ok ? Status() : refused(code, "remote");
}

bool RequestCheck::is_in_device(const RemoteAddress& place) const {
  transport::RegionTable::Resolved out;
  return remotes_.resolve({place.region.slot, place.region.generation}, 0, 0, Access::none, out) == ErrorCode::ok &&
         !reached_by_cpu(out.kind);
}

Status RequestCheck::check_signal(const Notify& notify) const {
  if (notify.signal.offset % sizeof(std::uint64_t) != 0)
    return {ErrorCode::invalid_argument, "a signal's offset is a multiple of 8 bytes"};
  if (Status status = check_remote(notify.signal, sizeof(std::uint64_t), Access::atomic); !status) return status;
  if (is_in_device(notify.signal) && !notify.signal_add &&
      !check_remote(notify.signal, sizeof(std::uint64_t), Access::write))
    return {ErrorCode::unsupported, "to set a signal in a device's memory, its region grants Access::write too"};
  return {};
}

[[gnu::flatten]] bool RequestCheck::is_plain_message(const Request& request) const {
  const bool receives = request.operation == Operation::receive;
  const auto* extent = std::get_if<Extent>(&request.layout);
  const RequestOptions& wanted = request.options;
  if ((!receives && request.operation != Operation::send) || extent == nullptr ||
      wanted.notify.kind != NotifyKind::none || !wanted.notify.message.empty() || wanted.after != TransferId{} ||
      wanted.start_after != nullptr || (receives && wanted.local_completion) || wanted.priority > Priority::urgent ||
      wanted.deliver > Deliver::to_poll || wanted.queue || !peers_.is_usable(request.peer))
    return false;
  const Slice& local = extent->local;
  transport::RegionTable::Resolved out;
  return regions_.resolve(local.region, local.offset, local.length, Access::none, out) == ErrorCode::ok &&
         (!receives || regions_.is_writable(local.region));
}

Status RequestCheck::check(const Request& request) const {
  if (Status status = check_values(request); !status) return status;
  const RequestOptions& wanted = request.options;
  if (is_of_any(request) && wanted.after)
    return {ErrorCode::invalid_argument, "a receive of any peer takes no `after`: name the peer, or submit it later"};
  if (!is_of_any(request) && !peers_.is_usable(request.peer)) return peers_.why_not(request.peer);
  if (wanted.after != TransferId{} && !transfers_.was_given(wanted.after))
    return {ErrorCode::invalid_argument,
            "RequestOptions::after names no transfer of this engine: give an id that it gave, or none"};
  if (wanted.notify.kind == NotifyKind::signal)
    if (Status status = check_signal(wanted.notify); !status) return status;
  if (wanted.start_after != nullptr && request.operation != Operation::write && request.operation != Operation::read)
    return {ErrorCode::invalid_argument, "start_after is for write and read only"};
  if (wanted.local_completion && request.operation != Operation::send)
    return {ErrorCode::invalid_argument, "local_completion is for send only: others complete at their target"};
  if (is_atomic(request.operation)) {
    if (request.target.offset % sizeof(std::uint64_t) != 0)
      return {ErrorCode::invalid_argument, "an atomic's offset is a multiple of 8 bytes"};
    return check_remote(request.target, sizeof(std::uint64_t), Access::atomic);
  }
  return check_blocks(request);
}

// Of a message. They are few, so that they are looked at here.
Status RequestCheck::check_pieces(const Request& request) const {
  const bool receives = request.operation == Operation::receive;
  const auto* list = std::get_if<std::span<const Extent>>(&request.layout);
  if (list == nullptr || list->empty() || list->size() > kMostPieces)
    return {ErrorCode::invalid_argument, "a message's memory is one extent, or a list of 1 to 1,024"};
  if (is_of_any(request)) return {ErrorCode::invalid_argument, "a receive of any peer takes one extent"};
  for (const Extent& each : *list) {
    if (Status status = check_local(each.local, receives); !status) return status;
    if (const auto region = regions_.find(each.local.region); region && !reached_by_cpu(region->kind))
      return {ErrorCode::unsupported, "the pieces of a message are of host memory: a GPU's memory is one extent"};
  }
  if (receives && total_bytes(request.layout) > kMostSpread)
    return {ErrorCode::invalid_argument, "a receive into several pieces takes at most 64 MiB: receive into one"};
  return {};
}

Status RequestCheck::check_blocks(const Request& request) const {
  if (Status status = check_layout(request.layout); !status) return status;
  const auto* extent = std::get_if<Extent>(&request.layout);
  if (request.operation == Operation::send || request.operation == Operation::receive) {
    if (request.options.notify.kind != NotifyKind::none)
      return {ErrorCode::invalid_argument, "a send carries no notification: the peer's receive is one"};
    return extent != nullptr ? check_local(extent->local, request.operation == Operation::receive)
                             : check_pieces(request);
  }
  const bool reads = request.operation == Operation::read;
  const Access needed = reads ? Access::read : Access::write;
  if (extent != nullptr) {
    if (Status status = check_local(extent->local, reads); !status) return status;
    return check_remote(extent->remote, extent->local.length, needed);
  }
  if (const auto* strided = std::get_if<Strided>(&request.layout)) {
    const Block last = block_at(request.layout, strided->count - 1);
    if (Status status = check_local(strided->first.local, reads); !status) return status;
    if (Status status = check_local({last.local, last.local_offset, last.length}, reads); !status) return status;
    if (Status status = check_remote(strided->first.remote, last.length, needed); !status) return status;
    return check_remote({last.remote, last.remote_offset}, last.length, needed);
  }
  return {};
}

bool in_device(const transport::RegionTable& table, RegionId id) {
  transport::RegionTable::Resolved found;
  return table.resolve(id, 0, 0, Access::none, found) == ErrorCode::ok && !reached_by_cpu(found.kind);
}

Status resolve(const transport::RegionTable& regions, const RemoteRegions& remotes, const Transfer& transfer,
               std::uint64_t index, const Block& block, std::uint64_t offset, std::uint64_t length, std::byte*& local) {
  const Access needed = transfer.request.operation == Operation::read ? Access::read : Access::write;
  transport::RegionTable::Resolved found;
  ErrorCode code = regions.resolve(block.local, block.local_offset + offset, length, Access::none, found);
  if (code != ErrorCode::ok) return {code, "block " + std::to_string(index) + " lies outside its local region"};
  if (needed == Access::read && !regions.is_writable(block.local))
    return {ErrorCode::access_denied, "block " + std::to_string(index) + " lies in read-only memory of this process"};
  local = found.address;
  code = remotes.allows({block.remote, block.remote_offset + offset}, length, needed);
  if (code == ErrorCode::access_denied) return {code, "the peer did not register the region for this"};
  if (code != ErrorCode::ok) return {code, "block " + std::to_string(index) + " lies outside the peer's region"};
  return {};
}

}  // namespace fairway::engine
