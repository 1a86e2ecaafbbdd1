#pragma once

#include "conformance/buffer.h"
#include "conformance/other_process.h"

namespace fairway::conformance {

// While it lives, buffers lie in memory that this process and the other one have. `files`: peers can map it.
class SharedRoom final : public Room {
 public:
  explicit SharedRoom(bool files) : arena_(OtherProcess::get().arena()), files_(files) { Buffer::room = this; }
  ~SharedRoom() override { Buffer::room = before_; }
  SharedRoom(const SharedRoom&) = delete;
  SharedRoom& operator=(const SharedRoom&) = delete;

  std::byte* take(std::size_t size) override { return arena_.allocate(size); }
  void give_back(std::byte* place, std::size_t size) override { arena_.free(place, size); }
  std::uint64_t offset(const std::byte* place) const override {
    return static_cast<std::uint64_t>(place - arena_.base());
  }
  int file() const override { return files_ ? arena_.file() : -1; }

 private:
  Room* const before_ = Buffer::room;
  Arena& arena_;
  const bool files_;
};

}  // namespace fairway::conformance
