#include "transport/host/segment.h"

#include <cstring>

#include "transport/transport.h"

namespace fairway::transport::host {
namespace {

// Space that only answers may use.
constexpr std::uint32_t kKeptCells = kMaxRequests;
constexpr std::uint32_t kKeptBytes = (kMaxRequests + 1) * kMaxPiece;  // one more: a payload never wraps

// What a reader frees together: with fewer, a record's payload and what it skips still fit.
constexpr std::uint32_t kCellsTogether = 16;
constexpr std::uint32_t kBytesTogether = 16 * 1024;
static_assert(kCellsTogether + kKeptCells < kCells);
static_assert(kBytesTogether + kKeptBytes + 3 * kMessageBytes <= kDataBytes);

// Bytes to skip from `at` so that `size` bytes are contiguous.
constexpr std::uint32_t skip(std::uint32_t at, std::uint32_t size) {
  const std::uint32_t place = at % kDataBytes;
  return place + size > kDataBytes ? kDataBytes - place : 0;
}

}  // namespace

bool RingWriter::fits(std::uint32_t cells, std::uint32_t bytes) {
  const auto enough = [&] { return next_ - freed_ <= kCells - cells && data_ - freed_bytes_ <= kDataBytes - bytes; };
  for (const bool asked : {false, true}) {
    if (enough()) return true;
    if (asked) to_.wants_space.store(1, std::memory_order_seq_cst);  // then read again: free() reads it after freeing
    freed_ = to_.freed.load(std::memory_order_seq_cst);
    freed_bytes_ = to_.freed_bytes.load(std::memory_order_seq_cst);
  }
  return enough();
}

std::byte* RingWriter::payload(std::uint32_t size, bool answer) {
  const std::uint32_t kept_cells = answer ? 0 : kKeptCells, kept_bytes = answer ? 0 : kKeptBytes;
  const std::uint32_t skipped = skip(data_, size);
  if (!fits(1 + kept_cells, skipped + size + kept_bytes)) return nullptr;
  payload_at_ = data_ + skipped;
  return to_.data.data() + payload_at_ % kDataBytes;
}

// Sequentially consistent: the caller checks next whether the reader sleeps; the reader sets that before it checks for
// records for the last time.
void RingWriter::publish(Cell& cell) {
  cell.stamp.store(++next_, std::memory_order_seq_cst);
}

bool RingWriter::push(const Record& record, bool answer) {
  if (!fits(1 + (answer ? 0 : kKeptCells), 0)) return false;
  Cell& cell = to_.cells[next_ % kCells];
  cell.record = record;
  if (record.has_payload()) {
    cell.record.payload = payload_at_;
    data_ = payload_at_ + record.length;
  }
  publish(cell);
  return true;
}

bool RingWriter::push_inlined(std::span<const std::byte> head, std::span<const std::byte> tail) {
  if (!fits(1 + kKeptCells, 0)) return false;
  Cell& cell = to_.cells[next_ % kCells];
  cell.record.type = RecordType::message;
  cell.record.code = Record::kInline;
  cell.record.length = static_cast<std::uint32_t>(head.size() + tail.size());
  std::byte* const to = cell.record.inlined();
  if (!head.empty()) std::memcpy(to, head.data(), head.size());
  if (!tail.empty()) std::memcpy(to + head.size(), tail.data(), tail.size());
  publish(cell);
  return true;
}

bool RingWriter::push_immediate(std::uint32_t immediate) {
  if (!fits(1 + kKeptCells, 0)) return false;
  Cell& cell = to_.cells[next_ % kCells];
  cell.record.type = RecordType::immediate;
  cell.record.immediate = immediate;
  publish(cell);
  return true;
}

bool RingReader::pop(Record& record, std::span<const std::byte>& payload) {
  const Cell& cell = from_.cells[next_ % kCells];
  if (malformed_ || cell.stamp.load(std::memory_order_acquire) != next_ + 1) return false;
  record = cell.record;
  payload = {};
  ++next_;
  answers_ |= record.type == RecordType::answer;
  if (!record.has_payload()) {
    const bool inlined = record.type == RecordType::message;
    malformed_ = inlined && record.length > kInlineBytes;
    if (inlined && !malformed_) payload = {record.inlined(), record.length};
    return !malformed_;
  }
  const std::uint32_t place = record.payload % kDataBytes;
  if (record.length > kMessageBytes || place + record.length > kDataBytes) {
    malformed_ = true;
    return false;
  }
  payload = std::span<const std::byte>(from_.data).subspan(place, record.length);
  data_ = record.payload + record.length;
  return true;
}

// Few that are not answers may stay: however the writer counts them, it has room for its next record.
bool RingReader::free() {
  if (!answers_ && next_ - freed_ < kCellsTogether && data_ - freed_bytes_ < kBytesTogether) return false;
  answers_ = false;
  freed_ = next_;
  freed_bytes_ = data_;
  from_.freed_bytes.store(data_, std::memory_order_release);
  from_.freed.store(next_, std::memory_order_seq_cst);
  return from_.wants_space.load(std::memory_order_seq_cst) != 0 &&
         from_.wants_space.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace fairway::transport::host
