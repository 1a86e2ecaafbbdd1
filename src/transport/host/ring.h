#pragma once

#include <cstdint>
#include <span>

#include "transport/host/segment.h"

namespace fairway::transport::host {

// The writing end of a Direction. Owner: its side's worker.
class RingWriter {
 public:
  explicit RingWriter(Direction& to) : to_(to) {}

  // Where a record's payload goes, contiguous, before push() publishes both; null: no room now.
  std::byte* payload(std::uint32_t size, bool answer);
  // False: no room now; the reader rings once there is.
  bool push(Record record, bool answer = false);

 private:
  bool room(std::uint32_t cells, std::uint32_t bytes);
  Direction& to_;
  std::uint32_t next_ = 0, data_ = 0;          // free-running
  std::uint32_t payload_at_ = 0;               // of the payload that waits for push()
  std::uint32_t freed_ = 0, freed_bytes_ = 0;  // as last seen
};

// The reading end. Owner: its side's worker.
class RingReader {
 public:
  explicit RingReader(Direction& from) : from_(from) {}

  bool empty() const;
  // Copies the next record out. False: none. `payload` stays readable until free(), and may change meanwhile when the
  // peer is hostile.
  bool pop(Record& record, std::span<const std::byte>& payload);
  // Gives back what was popped; true: the writer waits for it, ring.
  bool free();
  [[nodiscard]] bool malformed() const { return malformed_; }

 private:
  Direction& from_;
  std::uint32_t next_ = 0;
  std::uint32_t data_ = 0;  // of what was popped
  bool popped_ = false;
  bool malformed_ = false;  // a record that no RingWriter writes
};

}  // namespace fairway::transport::host
