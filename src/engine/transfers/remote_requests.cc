#include "engine/transfers/remote_requests.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "core/crc32c.h"
#include "engine/tables/route.h"
#include "transport/optional_calls.h"

namespace fairway::engine {
namespace {

constexpr std::uint64_t kSumPiece = 1024 * 1024;  // checksummed per request

}  // namespace

// ---- pieces ----

bool RemoteRequests::put_get_or_atomic(std::uint32_t slot, const Piece& piece, std::uint32_t token) {
  Transfer& t = peer_.transfer(slot);
  const Request& request = t.request;
  const bool atomic = is_atomic(request.operation), reads = request.operation == Operation::read;
  RemoteAddress target = request.target;
  transport::RegionTable::Resolved local;
  if (!atomic) {
    const Block block = block_at(request.layout, piece.block);
    target = {block.remote, block.remote_offset + piece.offset};
    ErrorCode code =
        peer_.regions().resolve(block.local, block.local_offset + piece.offset, piece.length, Access::none, local);
    if (code == ErrorCode::ok)
      code = peer_.remotes().allows(target, piece.length, reads ? Access::read : Access::write);
    if (code != ErrorCode::ok) {
      peer_.slices().release(token);
      --t.pieces_out;
      peer_.fail(slot, Status(code, "block " + std::to_string(piece.block) +
                                        " lies outside its regions, or the peer's does not permit it")
                           .with_peer(peer_.text()));
      return false;
    }
  }
  t.immediate_sent = false;
  SliceEntry& entry = peer_.slices()[token];
  const transport::Op op = atomic ? transport::Op::fetch_add : reads ? transport::Op::read : transport::Op::write;
  entry = {SliceUse::request, op, false, piece.link, peer_.id().slot, slot, entry.serial, 0, piece, peer_.now()};
  ++out_;
  t.bytes_posted += piece.bytes();
  const RequestHead head{token, entry.serial, peer_.remotes().region_of(target.region)};
  if (atomic) {
    const bool add = request.operation == Operation::fetch_add;
    peer_.send(record::Atomic{head, target.offset, add ? record::Atomic::kAdd : record::Atomic::kCompareSwap,
                              request.operand, request.expected});
  } else if (reads) {
    peer_.send(record::Get{head, target.offset, static_cast<std::uint32_t>(piece.length)});
  } else {
    peer_.send(record::Put{head, target.offset, {std::span<const std::byte>(local.address, piece.length)}});
  }
  return true;
}

// ---- what comes after the bytes ----

void RemoteRequests::request(std::uint32_t slot) {
  if (begin(slot)) return;
  waiting_.push_back(slot);
  peer_.has_more();
}

void RemoteRequests::proceed() {
  for (std::size_t left = waiting_.size(); left > 0 && out_ < kMost && peer_.slices().free_count() > 0; --left) {
    const std::uint32_t slot = waiting_.front();
    waiting_.erase(waiting_.begin());
    request(slot);
  }
}

bool RemoteRequests::begin(std::uint32_t slot) {
  const Phase phase = peer_.transfer(slot).phase;
  return phase == Phase::flushing ? flush(slot) : phase == Phase::verifying ? sum(slot) : signal(slot);
}

// Nothing: no free slot now.
std::optional<RequestHead> RemoteRequests::head_for(std::uint32_t slot, RemoteRegionId region) {
  if (out_ >= kMost || peer_.slices().free_count() == 0) return std::nullopt;
  const std::uint32_t token = peer_.slices().acquire(peer_.id().slot);
  SliceEntry& entry = peer_.slices()[token];
  entry = {SliceUse::request, transport::Op::message, false, 0, peer_.id().slot, slot, entry.serial, 0, {},
           peer_.now()};
  ++out_;
  ++peer_.transfer(slot).pieces_out;
  return RequestHead{token, entry.serial, peer_.remotes().region_of(region)};
}

bool RemoteRequests::flush(std::uint32_t slot) {
  const auto head = head_for(slot, block_at(peer_.transfer(slot).request.layout, 0).remote);
  if (head) peer_.send(record::Flush{*head});
  return head.has_value();
}

bool RemoteRequests::sum(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  t.checked.block = skip_empty(t.request.layout, t.checked.block);
  if (t.checked.block >= t.blocks) {
    peer_.advance(slot);
    return true;
  }
  const Block block = block_at(t.request.layout, t.checked.block);
  if (block.length == 0) {  // and the rest of the layout is still to come
    peer_.again();
    return false;
  }
  const auto head = head_for(slot, block.remote);
  if (!head) return false;
  const std::uint64_t length = std::min(block.length - t.checked.offset, kSumPiece);
  peer_.slices()[head->token].piece = {t.checked.block, t.checked.offset, length, 1, 0};
  peer_.send(record::Sum{*head, block.remote_offset + t.checked.offset, length});
  return true;
}

bool RemoteRequests::signal(std::uint32_t slot) {
  const Notify& notify = peer_.transfer(slot).request.options.notify;
  const auto head = head_for(slot, notify.signal.region);
  if (!head) return false;
  const std::uint8_t operation = notify.signal_add ? record::Atomic::kAdd : record::Atomic::kSet;
  peer_.send(record::Atomic{*head, notify.signal.offset, operation, notify.signal_value, 0});
  return true;
}

// ---- replies ----

void RemoteRequests::on_reply(const record::Reply& reply) {
  const auto& [token, serial, code, value, tail] = reply;
  const auto data = tail.bytes;
  if (token >= peer_.slices().capacity()) return;
  SliceEntry& entry = peer_.slices()[token];
  if (entry.use != SliceUse::request || entry.peer != peer_.id().slot || entry.serial != serial)
    return;  // its transfer has already ended
  const std::uint32_t slot = entry.owner;
  Transfer& t = peer_.transfer(slot);
  const Piece piece = entry.piece;
  --out_;
  peer_.again();
  if (code != ErrorCode::ok)
    return peer_.piece_failed(
        token, Status(code, "the peer refused: " + std::string(to_string(code))).with_peer(peer_.text()));
  if (entry.op == transport::Op::read) {
    if (data.size() != piece.length) return peer_.violation("a reply of another length than was asked for");
    const Block block = block_at(t.request.layout, piece.block);
    transport::RegionTable::Resolved local;
    const ErrorCode found =
        peer_.regions().resolve(block.local, block.local_offset + piece.offset, piece.length, Access::none, local);
    if (found != ErrorCode::ok)
      return peer_.piece_failed(
          token, Status(found, "the local region was deregistered before its bytes came").with_peer(peer_.text()));
    std::memcpy(local.address, data.data(), data.size());
  }
  if (entry.op != transport::Op::message)
    return peer_.piece_done(token, entry.op == transport::Op::fetch_add ? value : 0);

  peer_.slices().release(token);
  --t.pieces_out;
  if (t.phase == Phase::flushing) {
    t.needs_flush = false;
    return peer_.advance(slot);
  }
  if (t.phase == Phase::notifying) return peer_.finish(slot, {});
  if (t.phase != Phase::verifying) return peer_.drained(slot);
  const Block block = block_at(t.request.layout, piece.block);
  transport::RegionTable::Resolved local;
  if (peer_.regions().resolve(block.local, block.local_offset + piece.offset, piece.length, Access::none, local) !=
      ErrorCode::ok)
    return peer_.fail(slot, {ErrorCode::revoked, "the local region was deregistered before its checksum was taken"});
  if (reached_by_cpu(local.kind)) return compare(slot, piece, crc32c(0, std::span(local.address, piece.length)), value);
  DeviceOperation work;
  work.kind = DeviceOperation::Kind::own_checksum;
  work.token = slot;
  work.region = block.local;
  work.offset = block.local_offset + piece.offset;
  work.length = piece.length;
  work.expected = value;
  work.piece = piece;
  ++t.pieces_out;
  device_.run(work);
}

void RemoteRequests::compare(std::uint32_t slot, const Piece& piece, std::uint64_t ours, std::uint64_t theirs) {
  if (ours != theirs)
    return peer_.fail(slot,
                      Status(ErrorCode::checksum_mismatch, "the CRC-32C of block " + std::to_string(piece.block) +
                                                               " at offset " + std::to_string(piece.offset) +
                                                               " differs between the two memories: the path or a "
                                                               "memory is faulty, or one side was changed meanwhile")
                          .with_peer(peer_.text()));
  Transfer& t = peer_.transfer(slot);
  t.checked = piece.offset + piece.length == block_at(t.request.layout, piece.block).length
                  ? Cursor{piece.block + 1, 0}
                  : Cursor{piece.block, piece.offset + piece.length};
  peer_.advance(slot);
}

namespace {

constexpr std::uint64_t kLongestSum = 1024 * 1024;

DeviceOperation device_work(DeviceOperation::Kind kind, const RequestHead& head, std::uint64_t offset,
                            std::uint64_t length) {
  DeviceOperation work;
  work.kind = kind;
  work.token = head.token;
  work.serial = head.serial;
  work.region = head.region;
  work.offset = offset;
  work.length = length;
  return work;
}

}  // namespace

void RemoteService::reply(std::uint32_t token, std::uint32_t serial, ErrorCode code, std::uint64_t value,
                          std::span<const std::byte> data) {
  peer_.send(record::Reply{token, serial, code, value, {data}});
}

void RemoteService::on_put(const record::Put& put) {
  const auto data = put.payload.bytes;
  transport::RegionTable::Resolved target;
  const ErrorCode code =
      peer_.regions().resolve_for_cpu(put.head.region, put.offset, data.size(), Access::write, target);
  if (code == ErrorCode::ok && !data.empty()) std::memcpy(target.address, data.data(), data.size());
  reply(put.head.token, put.head.serial, code, 0);
}

void RemoteService::on_get(const record::Get& get) {
  const auto& [head, offset, length] = get;
  if (length > record_payload_) return peer_.violation("a get of more than a record carries");
  transport::RegionTable::Resolved source;
  const ErrorCode code = peer_.regions().resolve_for_cpu(head.region, offset, length, Access::read, source);
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  reply(head.token, head.serial, code, 0, std::span<const std::byte>(source.address, length));
}

void RemoteService::on_atomic(const record::Atomic& atomic) {
  const auto& [head, offset, operation, operand, expected] = atomic;
  if (operation > record::Atomic::kSet) return peer_.violation("an atomic of no known operation");
  transport::RegionTable::Resolved target;
  ErrorCode code = peer_.regions().resolve(head.region, offset, sizeof(std::uint64_t), Access::atomic, target);
  if (code == ErrorCode::ok && reinterpret_cast<std::uintptr_t>(target.address) % sizeof(std::uint64_t) != 0)
    code = ErrorCode::invalid_argument;
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  if (!reached_by_cpu(target.kind)) {
    DeviceOperation work = device_work(DeviceOperation::Kind::atomic, head, offset, sizeof(std::uint64_t));
    work.operation = operation;
    work.operand = operand;
    work.expected = expected;
    return device_.run(work);
  }
  std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(target.address));
  std::uint64_t old = expected;
  if (operation == record::Atomic::kAdd) old = word.fetch_add(operand);
  if (operation == record::Atomic::kCompareSwap) (void)word.compare_exchange_strong(old, operand);
  if (operation == record::Atomic::kSet) old = word.exchange(operand);
  peer_.notice();
  reply(head.token, head.serial, code, old);
}

void RemoteService::on_sum(const record::Sum& sum) {
  const auto& [head, offset, length] = sum;
  if (length > kLongestSum) return peer_.violation("a request for the checksum of more than 1 MiB");
  transport::RegionTable::Resolved memory;
  // Read or write access permits the checksum.
  ErrorCode code = peer_.regions().resolve(head.region, offset, length, Access::read, memory);
  if (code == ErrorCode::access_denied)
    code = peer_.regions().resolve(head.region, offset, length, Access::write, memory);
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  if (!reached_by_cpu(memory.kind) && length > 0)
    return device_.run(device_work(DeviceOperation::Kind::peers_checksum, head, offset, length));
  reply(head.token, head.serial, code, crc32c(0, std::span<const std::byte>(memory.address, length)));
}

Status RemoteService::make_visible(RegionId region) const {
  Status status;
  for (std::uint16_t i = 0; i < peer_.transports().size() && status; ++i)
    if (auto* const flushes = dynamic_cast<transport::FlushesWrites*>(peer_.transports()[i].get()))
      status = flushes->flush(peer_.locals().handle(region, i));
  return status;
}

void RemoteService::on_flush(const record::Flush& flush) {
  const RequestHead& head = flush.head;
  ErrorCode code = make_visible(head.region).code();
  // Last: writes to a region that has ended meanwhile are dropped.
  transport::RegionTable::Resolved memory;
  if (code == ErrorCode::ok) code = peer_.regions().resolve(head.region, 0, 0, Access::none, memory);
  reply(head.token, head.serial, code, 0);
}

}  // namespace fairway::engine
