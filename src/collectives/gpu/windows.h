#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/gpu/device/call.h"

namespace fairway::collectives {

struct Member;

// GPU memory that the ranks have shown to each other, which they read where it is. Every rank adds and ends the same
// windows in the same order. Owner: a communicator. One thread.
class GpuWindows {
 public:
  GpuWindows(Engine& engine, int device, int rank, int size);
  ~GpuWindows();
  GpuWindows(const GpuWindows&) = delete;
  GpuWindows& operator=(const GpuWindows&) = delete;

  // Publishes this rank's part of the next window as `name`; then maps the others', which they have published. The
  // error names the rank. What has begun is ended by drop(), or stays with keep().
  Status begin(void* memory, std::uint64_t size_bytes, const std::string& name);
  Status meet(const std::vector<Member>& members, const std::string& name, Time deadline);
  WindowId keep();
  void drop();

  // Stops using what the others have shown, so that they may take it back; then takes back this rank's part.
  Status forget(WindowId window);
  Status end(WindowId window, Timeout timeout);

  // Where memory lies that every rank has shown: the other ranks' at the same offset, as this GPU reaches it.
  struct Place {
    WindowId window;
    std::uint64_t offset = 0;
    std::array<const unsigned char*, gpu::kMostRanks> others = {};
  };
  [[nodiscard]] std::optional<Place> find(const void* memory, std::uint64_t size_bytes) const;

 private:
  struct Shown;
  [[nodiscard]] Shown* at(WindowId window) const;

  Engine& engine_;
  const int device_, rank_, size_;
  std::vector<std::unique_ptr<Shown>> shown_;   // by number, from 1 on; null: ended
  std::vector<std::unique_ptr<Shown>> ending_;  // ended, but not fenced in time
  std::unique_ptr<Shown> begun_;
};

}  // namespace fairway::collectives
