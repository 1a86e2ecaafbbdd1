#include "engine/tables/record.h"

#include <array>

namespace fairway::engine {

void RecordStream::push(Fifo& fifo, std::uint32_t record) {
  (*pool_)[record].next = kNoSlot;
  if (fifo.tail == kNoSlot)
    fifo.head = record;
  else
    (*pool_)[fifo.tail].next = record;
  fifo.tail = record;
  ++waiting_;
}

std::uint32_t RecordStream::pop(Fifo& fifo) {
  const std::uint32_t record = fifo.head;
  fifo.head = (*pool_)[record].next;
  if (fifo.head == kNoSlot) fifo.tail = kNoSlot;
  --waiting_;
  return record;
}

void RecordStream::enqueue(std::uint32_t record) {
  Record& entry = (*pool_)[record];
  entry.sequence = next_sequence_++;
  ByteWriter(std::span(entry.bytes).first(sizeof(std::uint32_t))).put(entry.sequence);
  push(fresh_, record);
}

std::uint32_t RecordStream::next() const {
  if (again_.head != kNoSlot) return again_.head;
  if (fresh_.head == kNoSlot || (*pool_)[fresh_.head].sequence - oldest_ >= kRecordWindow) return kNoSlot;
  return fresh_.head;
}

void RecordStream::posted(std::uint32_t record) {
  pop(record == again_.head ? again_ : fresh_);
}

void RecordStream::send_again(std::uint32_t record) {
  push(again_, record);
}

void RecordStream::arrived(std::uint32_t record) {
  arrived_as((*pool_)[record].sequence);
  pool_->release(record);
}

void RecordStream::sent_now() {
  arrived_as(next_sequence_++);
}

void RecordStream::arrived_as(std::uint32_t sequence) {
  arrived_ |= std::uint64_t{1} << (sequence - oldest_);
  while (arrived_ & 1) {
    arrived_ >>= 1;
    ++oldest_;
  }
}

void RecordStream::clear() {
  for (Fifo* fifo : {&again_, &fresh_})
    while (fifo->head != kNoSlot) pool_->release(pop(*fifo));
}

RecordStream::Verdict RecordStream::accept(std::uint32_t sequence) {
  const std::uint32_t ahead = sequence - expected_;
  if (ahead >= kReorderWindow)  // up to the window behind is a late duplicate; anything else breaks the protocol
    return expected_ - sequence <= kReorderWindow ? Verdict::duplicate : Verdict::violation;
  if (!received_) {
    if (ahead == 0) return ++expected_, Verdict::take;
    received_ = std::make_unique<std::bitset<8192>>();
  }
  auto& received = *received_;
  if (received[sequence % received.size()]) return Verdict::duplicate;
  received[sequence % received.size()] = true;
  for (; received[expected_ % received.size()]; ++expected_) received[expected_ % received.size()] = false;
  return Verdict::take;
}

RecordStream::Past RecordStream::past(std::uint32_t sequence) const {
  const auto ahead = static_cast<std::int32_t>(sequence - expected_);
  if (ahead < 0) return Past::taken;
  if (static_cast<std::uint32_t>(ahead) >= kReorderWindow) return Past::beyond;
  return received_ && (*received_)[sequence % received_->size()] ? Past::taken : Past::to_come;
}

std::uint32_t RecordStream::nearest(std::uint32_t low) const {
  return expected_ + static_cast<std::uint32_t>(static_cast<std::int32_t>((low - expected_) << 2) / 4);
}

namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(RecordType::send_direct) + 1> kNames = {
    "",
    "event",
    "counter",
    "credit",
    "send_eager",
    "send_announce",
    "send_clear",
    "send_written",
    "send_abort",
    "send_done",
    "put",
    "get",
    "atomic",
    "sum",
    "flush",
    "reply",
    "echo",
    "echo_reply",
    "event_armed",
    "event_set_off",
    "event_given_up",
    "stage_ask",
    "stage_grant",
    "stage_recall",
    "stage_end",
    "stage_put",
    "stage_get",
    "stage_done",
    "send_armed",
    "receive_posted",
    "receive_withdrawn",
    "send_direct"};

bool is_known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(RecordType::event) && type < kNames.size();
}

}  // namespace

std::string_view to_string(RecordType type) {
  const auto number = static_cast<std::uint8_t>(type);
  return is_known(number) ? kNames[number] : "unknown";
}

[[gnu::flatten]] std::optional<RecordHeader> decode_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  RecordHeader header;
  header.sequence = reader.get<std::uint32_t>();
  const auto type = reader.get<std::uint8_t>();
  header.body = reader.rest();
  if (!reader.ok() || !is_known(type)) return std::nullopt;
  header.type = static_cast<RecordType>(type);
  return header;
}

}  // namespace fairway::engine
