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

// A request that is not a piece of the layout. kNoSlot: not now; continue_requests() comes back to it.
std::uint32_t Peer::begin_request(std::uint32_t slot, RecordType type, RemoteRegionId region, std::uint32_t& record) {
  if (requests_out_ >= kMaxRequests || worker_.slices().room() == 0) return kNoSlot;
  const std::uint32_t token = worker_.slices().acquire();
  SliceEntry& entry = worker_.slices()[token];
  entry = {SliceUse::request, transport::Op::message, false, 0, id_.slot, slot, entry.serial, 0, {}, worker_.now()};
  ++requests_out_;
  ++transfer(slot).pieces_out;
  record = worker_.records().acquire();
  const RegionId theirs = worker_.remote_region(region);
  compose(worker_.records()[record], type);
  ByteWriter writer(std::span(worker_.records()[record].bytes).subspan(kRecordHeader));
  writer.put(token).put(entry.serial).put(theirs.slot).put(theirs.generation);
  worker_.records()[record].size = static_cast<std::uint32_t>(kRecordHeader + writer.size());
  return token;
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
  entry = {SliceUse::request, op, false, piece.link, id_.slot, slot, entry.serial, 0, piece, worker_.now()};
  ++requests_out_;
  t.bytes_posted += piece.bytes();
  const std::uint32_t index = worker_.records().acquire();
  ByteWriter writer = compose(worker_.records()[index], atomic                      ? RecordType::atomic
                                                        : op == transport::Op::read ? RecordType::get
                                                                                    : RecordType::put);
  const RegionId theirs = worker_.remote_region(target);
  writer.put(token).put(entry.serial).put(theirs.slot).put(theirs.generation).put(slice.remote_offset);
  if (atomic) {
    const bool add = t.request.operation == Operation::fetch_add;
    writer.put(add ? std::uint8_t{kAdd} : std::uint8_t{kCompareSwap}).put(t.request.operand).put(t.request.expected);
  } else if (op == transport::Op::read) {
    writer.put(static_cast<std::uint32_t>(piece.length));
  } else {
    writer.put_bytes(std::span(local.address, piece.length));
  }
  send_record(index, writer);
  return true;
}

bool Peer::request_flush(std::uint32_t slot) {
  std::uint32_t record = kNoSlot;
  const Transfer& t = transfer(slot);
  if (begin_request(slot, RecordType::flush, block_at(t.request.layout, 0).remote, record) == kNoSlot) return false;
  records_.enqueue(record);
  return true;
}

bool Peer::request_sum(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  while (t.checked.block < t.blocks && block_at(t.request.layout, t.checked.block).length == 0) ++t.checked.block;
  if (t.checked.block >= t.blocks) {
    notify(slot);
    return true;
  }
  const Block block = block_at(t.request.layout, t.checked.block);
  std::uint32_t index = kNoSlot;
  const std::uint32_t token = begin_request(slot, RecordType::sum, block.remote, index);
  if (token == kNoSlot) return false;
  SliceEntry& entry = worker_.slices()[token];
  entry.piece = {t.checked.block, t.checked.offset, std::min(block.length - t.checked.offset, kSumPiece), 1, 0};
  Record& record = worker_.records()[index];
  ByteWriter writer(std::span(record.bytes).subspan(record.size));
  writer.put(block.remote_offset + t.checked.offset).put(entry.piece.length);
  record.size += static_cast<std::uint32_t>(writer.size());
  records_.enqueue(index);
  return true;
}

bool Peer::request_signal(std::uint32_t slot) {
  const Notify& notify = transfer(slot).request.options.notify;
  std::uint32_t index = kNoSlot;
  if (begin_request(slot, RecordType::atomic, notify.signal.region, index) == kNoSlot) return false;
  Record& record = worker_.records()[index];
  ByteWriter writer(std::span(record.bytes).subspan(record.size));
  writer.put(notify.signal.offset).put(notify.signal_add ? std::uint8_t{kAdd} : std::uint8_t{kSet});
  writer.put(notify.signal_value).put(std::uint64_t{0});
  record.size += static_cast<std::uint32_t>(writer.size());
  records_.enqueue(index);
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

void Peer::on_reply(std::span<const std::byte> body) {
  ByteReader reader(body);
  const auto token = reader.get<std::uint32_t>();
  const auto serial = reader.get<std::uint32_t>();
  const auto code = static_cast<ErrorCode>(reader.get<std::uint8_t>());
  const auto value = reader.get<std::uint64_t>();
  const auto data = reader.rest();
  if (!reader.ok()) return violation("a malformed reply");
  if (token >= worker_.slices().capacity()) return;
  SliceEntry& entry = worker_.slices()[token];
  if (entry.use != SliceUse::request || entry.peer != id_.slot || entry.serial != serial)
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
    if (worker_.services().regions.resolve(block.local, block.local_offset + entry.piece.offset, entry.piece.length,
                                           Access::none, local) == ErrorCode::ok)
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
