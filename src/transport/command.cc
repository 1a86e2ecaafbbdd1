#include "transport/command.h"

namespace fairway::transport {

ErrorCode prepare(const Capabilities& can, const RegionTable& regions, const Slice& slice, const RegionId* remote,
                  Command& out) {
  out = {slice, {}, nullptr, 0, MemoryKind::host};
  if ((can.operations & static_cast<std::uint8_t>(slice.op)) == 0) return ErrorCode::unsupported;
  const bool moves = slice.op == Op::write || slice.op == Op::read || slice.op == Op::write_immediate;
  if (!moves || slice.shape == Shape::contiguous) {
    out.slice.count = 1;
    out.slice.shape = Shape::contiguous;
  }
  if (slice.op == Op::message)
    return slice.length <= can.max_message_bytes ? ErrorCode::ok : ErrorCode::invalid_argument;
  if (remote == nullptr) return ErrorCode::not_found;
  out.region = *remote;
  if (!moves) return ErrorCode::ok;
  if ((can.shapes & static_cast<std::uint8_t>(slice.shape)) == 0) return ErrorCode::unsupported;
  if (slice.shape == Shape::indexed && (slice.local_index == nullptr || slice.remote_index == nullptr))
    return ErrorCode::invalid_argument;
  std::uint64_t total = 0;
  if (out.slice.count == 0 || __builtin_mul_overflow(slice.length, std::uint64_t{out.slice.count}, &total) ||
      total > can.max_slice_bytes)
    return ErrorCode::invalid_argument;
  if (total == 0 && slice.local_handle == 0) return ErrorCode::ok;  // a bare immediate, a probe
  Region local;
  if (!regions.read(region_of(slice.local_handle), local)) return ErrorCode::revoked;
  out.local_begin = local.address;
  out.local_size = local.size_bytes;
  out.local_kind = local.kind;
  return slice.local >= local.address && slice.local <= local.address + local.size_bytes ? ErrorCode::ok
                                                                                         : ErrorCode::out_of_range;
}

const char* describe_failure(ErrorCode code) {
  switch (code) {
    case ErrorCode::access_denied: return "the region does not grant that access";
    case ErrorCode::out_of_range: return "a block leaves its region";
    case ErrorCode::revoked: return "the region was deregistered";
    case ErrorCode::cancelled: return "cancelled before it was complete";
    case ErrorCode::link_failed: return "the link broke first";
    case ErrorCode::not_found: return "the remote handle is not an imported region of this peer";
    case ErrorCode::unsupported: return "the device does not support this operation on this memory";
    case ErrorCode::resource_exhausted: return "no resources left to start it";
    default: return "the slice is malformed";
  }
}

}  // namespace fairway::transport
