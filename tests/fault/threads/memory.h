#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fairway::threads {

// While it lives, this process's CUDA driver is the stand-in. Made and ended while the process has no other threads
// that read the environment.
class StandInDriver {
 public:
  StandInDriver();
  ~StandInDriver();
  StandInDriver(const StandInDriver&) = delete;
  StandInDriver& operator=(const StandInDriver&) = delete;

 private:
  std::optional<std::string> before_;
};

// Memory to register with an engine: of the host, or of one of the stand-in's GPUs, whose address no CPU may use.
class Memory {
 public:
  Memory() = default;
  Memory(std::size_t size, std::optional<int> gpu);
  ~Memory();
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }

  void* address() const { return device_ != nullptr ? device_ : bytes_.data(); }
  std::span<std::byte> bytes() const { return bytes_; }  // the same bytes, for CPUs

 private:
  void swap(Memory& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
  }

  std::vector<std::byte> host_;
  std::byte* device_ = nullptr;
  std::span<std::byte> bytes_;
};

}  // namespace fairway::threads
