#include "engine/transfers/request_check.h"

#include <string>
#include <variant>

#include "engine/layout.h"
#include "engine/operation.h"
#include "engine/values.h"

namespace fairway::engine {
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

}  // namespace fairway::engine
