#pragma once

#include <cstdint>
#include <span>

#include "core/atomics.h"
#include "transport/host/segment.h"

namespace fairway::transport::host {

// The writing end of a Direction. Owner: the worker.
class RingWriter {
 public:
  // `cells`, `bytes`: as if so many had been written and freed, so that a test need not write them.
  explicit RingWriter(Direction& to, std::uint32_t cells = 0, std::uint32_t bytes = 0)
      : to_(to), next_(cells), data_(bytes), freed_(cells), freed_bytes_(bytes) {}

  // Contiguous space for a record's payload; push() publishes both. Null: no room now.
  std::byte* payload(std::uint32_t size, bool answer);
  bool has_space() { return fits(1 + kMaxRequests, 0); }  // for one record without a payload; false as of push()
  // False: no room now; the reader rings once there is room.
  bool push(const Record& record, bool answer = false);
  // A message that lies in its record: at most kInlineBytes of `head` and `tail`, written straight into the cell.
  bool push_inlined(std::span<const std::byte> head, std::span<const std::byte> tail);
  bool push_immediate(std::uint32_t immediate);  // likewise; of the record nothing else is written
  // A hint: a record follows soon. The reader looks at its place all the time, so it has to be fetched from there.
  void expect() const { prefetch_to_write(&to_.cells[next_ % kCells]); }

 private:
  bool fits(std::uint32_t cells, std::uint32_t bytes);
  void publish(Cell& cell);
  Direction& to_;
  std::uint32_t next_, data_;          // free-running
  std::uint32_t payload_at_ = 0;       // of the payload that waits for push()
  std::uint32_t freed_, freed_bytes_;  // as last read
};

// The reading end of a Direction. Owner: the worker.
class RingReader {
 public:
  explicit RingReader(Direction& from, std::uint32_t cells = 0, std::uint32_t bytes = 0)  // as the writer's
      : from_(from), next_(cells), data_(bytes), freed_(cells), freed_bytes_(bytes) {}

  [[nodiscard]] bool empty() const {
    return malformed_ || from_.cells[next_ % kCells].stamp.load(std::memory_order_seq_cst) != next_ + 1;
  }
  // Copies the next record out. False: none. `payload` is readable until free(), and as
  // long as `record`; a hostile peer may still change it.
  bool pop(Record& record, std::span<const std::byte>& payload);
  // Call it after some pops. Frees the popped records, messages and immediates some together; an answer at once, since
  // the next request counts on its room. True: the writer waits for that, so ring.
  bool free();
  [[nodiscard]] bool malformed() const { return malformed_; }

 private:
  Direction& from_;
  std::uint32_t next_;
  std::uint32_t data_;  // end of the popped payloads
  std::uint32_t freed_, freed_bytes_;
  bool answers_ = false;    // one was popped and not freed
  bool malformed_ = false;  // a record that no RingWriter writes
};

}  // namespace fairway::transport::host
