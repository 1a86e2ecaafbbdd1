#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/runtime.h"

namespace fairway::control {

// Two channels with nothing between them but what the test does to the bytes.
struct Wires {
  std::vector<std::byte> way[2];  // [0]: from end 0 to end 1
  bool closed[2] = {false, false};
  std::size_t carried[2] = {0, 0};
};

class PipeEnd final : public Channel {
 public:
  PipeEnd(std::shared_ptr<Wires> wires, int end) : wires_(std::move(wires)), end_(end) {}
  ~PipeEnd() override { wires_->closed[end_] = true; }
  Result<std::size_t> send(std::span<const std::byte> bytes) override {
    auto& out = wires_->way[end_];
    out.insert(out.end(), bytes.begin(), bytes.end());
    wires_->carried[end_] += bytes.size();
    return bytes.size();
  }
  Result<std::size_t> receive(std::span<std::byte> into) override {
    auto& in = wires_->way[1 - end_];
    const std::size_t size = std::min(into.size(), in.size());
    if (size == 0 && wires_->closed[1 - end_]) return Status(ErrorCode::closed, "closed");
    if (size != 0) std::memcpy(into.data(), in.data(), size);
    in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(size));
    return size;
  }
  std::string peer_address() const override { return "pipe:1"; }

 private:
  std::shared_ptr<Wires> wires_;
  int end_;
};

}  // namespace fairway::control
