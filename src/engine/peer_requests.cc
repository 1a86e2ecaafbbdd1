#include <algorithm>
#include <cstring>

#include "core/crc32c.h"
#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// What links cannot do and the peer's engine does for us: put and get where there is no write or read, atomics by the
// target's CPU, flush, checksum, signal. A request is a record; the reply names its token and serial, and a reply that
// comes after the transfer has ended finds nothing.
namespace fairway::engine {
namespace {

constexpr std::size_t kOverhead = 32;             // of put and reply beyond their payload
constexpr std::uint64_t kSumPiece = 1024 * 1024;  // checksummed per request

}  // namespace

std::size_t Peer::record_limit() const {
  return record_bytes_ - kOverhead;
}

// A request that is not a piece of the layout. Nothing: not now; continue_requests() comes back to it.
std::optional<RequestHead> Peer::begin_request(std::uint32_t slot, RemoteRegionId region) {
  if (requests_out_ >= kMaxRequests || worker_.slices().room() == 0) return std::nullopt;
  const std::uint32_t token = worker_.slices().acquire(id().slot);
  SliceEntry& entry = worker_.slices()[token];
  entry = {SliceUse::request, transport::Op::message, false, 0, id().slot, slot, entry.serial, 0, {}, worker_.now()};
  ++requests_out_;
  ++transfer(slot).pieces_out;
  return RequestHead{token, entry.serial, worker_.remotes().region_of(region)};
}

bool Peer::request_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token) {
  Transfer& t = transfer(slot);
  transport::Slice slice;
  Status status;
  const bool atomic = is_atomic(t.request.operation);
  const RemoteRegionId target = atomic ? t.request.target.region : block_at(t.request.layout, piece.block).remote;
  transport::RegionTable::Resolved local;
  if (!atomic) {
    const Block block = block_at(t.request.layout, piece.block);
    const Access needed = t.request.operation == Operation::read ? Access::read : Access::write;
    ErrorCode code = worker_.services().regions.resolve(block.local, block.local_offset + piece.offset, piece.length,
                                                        Access::none, local);
    transport::RegionTable::Resolved remote;
    if (code == ErrorCode::ok)
      code = worker_.services().remotes.resolve({block.remote.slot, block.remote.generation},
                                                block.remote_offset + piece.offset, piece.length, needed, remote);
    slice.remote_offset = block.remote_offset + piece.offset;
    if (code != ErrorCode::ok)
      status = Status(code, "block " + std::to_string(piece.block) +
                                " lies outside its regions, or the peer's does not "
                                "permit it");
  } else {
    slice.remote_offset = t.request.target.offset;
  }
  SliceEntry& entry = worker_.slices()[token];
  if (!status) {
    worker_.slices().release(token);
    --t.pieces_out;
    fail(slot, status.with_peer(text()));
    return false;
  }
  t.immediate_sent = false;
  const transport::Op op = atomic                                   ? transport::Op::fetch_add
                           : t.request.operation == Operation::read ? transport::Op::read
                                                                    : transport::Op::write;
  entry = {SliceUse::request, op, false, piece.link, id().slot, slot, entry.serial, 0, piece, worker_.now()};
  ++requests_out_;
  t.bytes_posted += piece.bytes();
  const RequestHead head{token, entry.serial, worker_.remotes().region_of(target)};
  if (atomic) {
    const bool add = t.request.operation == Operation::fetch_add;
    send(record::Atomic{head, slice.remote_offset, add ? record::Atomic::kAdd : record::Atomic::kCompareSwap,
                        t.request.operand, t.request.expected});
  } else if (op == transport::Op::read) {
    send(record::Get{head, slice.remote_offset, static_cast<std::uint32_t>(piece.length)});
  } else {
    send(record::Put{head, slice.remote_offset, {std::span<const std::byte>(local.address, piece.length)}});
  }
  return true;
}

bool Peer::request_flush(std::uint32_t slot) {
  const auto head = begin_request(slot, block_at(transfer(slot).request.layout, 0).remote);
  if (head) send(record::Flush{*head});
  return head.has_value();
}

bool Peer::request_sum(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  t.checked.block = skip_empty(t.request.layout, t.checked.block);
  if (t.checked.block >= t.blocks) {
    advance(slot);
    return true;
  }
  const Block block = block_at(t.request.layout, t.checked.block);
  if (block.length == 0) {  // and there are more such
    worker_.again();
    return false;
  }
  const auto head = begin_request(slot, block.remote);
  if (!head) return false;
  const std::uint64_t length = std::min(block.length - t.checked.offset, kSumPiece);
  worker_.slices()[head->token].piece = {t.checked.block, t.checked.offset, length, 1, 0};
  send(record::Sum{*head, block.remote_offset + t.checked.offset, length});
  return true;
}

bool Peer::request_signal(std::uint32_t slot) {
  const Notify& notify = transfer(slot).request.options.notify;
  const auto head = begin_request(slot, notify.signal.region);
  if (!head) return false;
  const std::uint8_t operation = notify.signal_add ? record::Atomic::kAdd : record::Atomic::kSet;
  send(record::Atomic{*head, notify.signal.offset, operation, notify.signal_value, 0});
  return true;
}

void Peer::continue_requests() {
  for (std::size_t left = wants_request_.size();
       left > 0 && requests_out_ < kMaxRequests && worker_.slices().room() > 0; --left) {
    const std::uint32_t slot = wants_request_.front();
    wants_request_.erase(wants_request_.begin());
    const Phase phase = transfer(slot).phase;
    const bool begun = phase == Phase::flushing    ? request_flush(slot)
                       : phase == Phase::verifying ? request_sum(slot)
                                                   : request_signal(slot);
    if (!begun) wants_request_.push_back(slot);
  }
}

void Peer::on_reply(const record::Reply& reply) {
  const auto& [token, serial, code, value, tail] = reply;
  const auto data = tail.bytes;
  if (token >= worker_.slices().capacity()) return;
  SliceEntry& entry = worker_.slices()[token];
  if (entry.use != SliceUse::request || entry.peer != id().slot || entry.serial != serial)
    return;  // its transfer has ended
  const std::uint32_t slot = entry.owner;
  Transfer& t = transfer(slot);
  --requests_out_;
  worker_.again();
  if (code != ErrorCode::ok) {
    worker_.slices().release(token);
    --t.pieces_out;
    return fail(slot, Status(code, "the peer refused: " + std::string(to_string(code))).with_peer(text()));
  }
  const bool atomic = entry.op == transport::Op::fetch_add;
  if (entry.op == transport::Op::read) {
    const Block block = block_at(t.request.layout, entry.piece.block);
    transport::RegionTable::Resolved local;
    if (data.size() != entry.piece.length) return violation("a reply of another length than was asked for");
    const ErrorCode found = worker_.services().regions.resolve(block.local, block.local_offset + entry.piece.offset,
                                                               entry.piece.length, Access::none, local);
    if (found != ErrorCode::ok) {
      worker_.slices().release(token);
      --t.pieces_out;
      return fail(slot, Status(found, "the local region was deregistered before its bytes came").with_peer(text()));
    }
    std::memcpy(local.address, data.data(), data.size());
  }
  if (entry.op != transport::Op::message) return piece_done(token, atomic ? value : 0);

  const Piece piece = entry.piece;
  worker_.slices().release(token);
  --t.pieces_out;
  if (t.phase == Phase::flushing) {
    t.needs_flush = false;
    return advance(slot);
  }
  if (t.phase == Phase::notifying) return finish(slot, {});
  if (t.phase != Phase::verifying) return drained(slot);
  const Block block = block_at(t.request.layout, piece.block);
  transport::RegionTable::Resolved local;
  if (worker_.services().regions.resolve(block.local, block.local_offset + piece.offset, piece.length, Access::none,
                                         local) != ErrorCode::ok)
    return fail(slot, {ErrorCode::revoked, "the local region was deregistered before its checksum was taken"});
  if (reached_by_cpu(local.kind))
    return compare_sums(slot, piece, crc32c(0, std::span(local.address, piece.length)), value);
  Errand errand;
  errand.kind = Errand::Kind::own_sum;
  errand.token = slot;
  errand.region = block.local;
  errand.offset = block.local_offset + piece.offset;
  errand.length = piece.length;
  errand.expected = value;
  errand.piece = piece;
  ++t.pieces_out;
  begin_errand(errand);
}

}  // namespace fairway::engine
