#include "engine/record.h"

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
  arrived_ |= std::uint64_t{1} << ((*pool_)[record].sequence - oldest_);
  while (arrived_ & 1) {
    arrived_ >>= 1;
    ++oldest_;
  }
  pool_->release(record);
}

void RecordStream::clear() {
  for (Fifo* fifo : {&again_, &fresh_})
    while (fifo->head != kNoSlot) pool_->release(pop(*fifo));
}

RecordStream::Verdict RecordStream::accept(std::uint32_t sequence) {
  const std::uint32_t ahead = sequence - expected_;
  if (ahead >= kReorderWindow)  // behind by no more than that is a late copy; anything else was never ours to get
    return expected_ - sequence <= kReorderWindow ? Verdict::duplicate : Verdict::violation;
  if (received_[sequence % received_.size()]) return Verdict::duplicate;
  received_[sequence % received_.size()] = true;
  for (; received_[expected_ % received_.size()]; ++expected_) received_[expected_ % received_.size()] = false;
  return Verdict::take;
}

RecordStream::Past RecordStream::past(std::uint32_t sequence) const {
  const auto ahead = static_cast<std::int32_t>(sequence - expected_);
  if (ahead < 0) return Past::taken;
  if (static_cast<std::uint32_t>(ahead) >= kReorderWindow) return Past::beyond;
  return received_[sequence % received_.size()] ? Past::taken : Past::to_come;
}

std::uint32_t RecordStream::nearest(std::uint32_t low) const {
  return expected_ + static_cast<std::uint32_t>(static_cast<std::int32_t>((low - expected_) << 2) / 4);
}

}  // namespace fairway::engine
