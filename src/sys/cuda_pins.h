#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "sys/cuda.h"

namespace fairway::sys {

// The host memory that Fairway has pinned in this process, for whatever engine. Who needs a part of what is pinned
// already shares it: it stays pinned until the last of them has ended its use, and so while any kernel of theirs may
// access it. Any thread.
class CudaPins {
 public:
  explicit CudaPins(const CudaDriver& driver) : driver_(driver) {}

  // As cuMemHostRegister, which it calls unless the memory lies in what is pinned: needs a current context. May take
  // long. kErrorAlreadyRegistered: some of it is pinned and some is not, or it is being unpinned.
  int pin(void* address, std::size_t size);
  // Ends one use, of as many bytes as were asked for. The last one waits for running kernels.
  void unpin(void* address);
  // Whether some of it is pinned by Fairway. Such memory stays so for its users alone.
  [[nodiscard]] bool touches(const void* address, std::size_t size) const;

 private:
  enum class State : std::uint8_t { pinning, pinned, ending };
  struct Range {
    std::uint64_t end = 0;
    std::uint32_t users = 1;
    State state = State::pinning;
  };
  using Ranges = std::map<std::uint64_t, Range>;  // by their begin
  Ranges::iterator at(std::uint64_t begin, std::uint64_t end) const;

  const CudaDriver& driver_;
  mutable std::mutex mutex_;  // guards ranges_
  std::condition_variable changed_;
  mutable Ranges ranges_;
};

// Whether the program itself has pinned all of it, by one call or several, as far as the driver knows at this moment.
bool pinned_by_program(const CudaDriver& driver, const void* address, std::size_t size);

}  // namespace fairway::sys
