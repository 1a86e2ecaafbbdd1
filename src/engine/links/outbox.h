#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace fairway::engine {

// Collects slices for a worker's transports, so that many are posted at once and each doorbell is rung once. Owner: the
// worker.
class Outbox {
 public:
  using Transports = std::span<const std::unique_ptr<transport::Transport>>;
  // `untaken`: a transport did not take that slice; nothing happened.
  Outbox(Transports transports, std::function<void(std::uint32_t token)> untaken)
      : transports_(transports), untaken_(std::move(untaken)), rows_(transports.size()) {}

  void add(std::uint16_t transport, const transport::Slice& slice) {  // posted by flush(), or when there are many
    Row& row = rows_[transport];
    row.slices[row.count++] = slice;
    ++waiting_;
    if (row.count == kCapacity) flush(transport);
  }
  void flush(std::uint16_t transport);
  [[nodiscard]] bool empty() const { return waiting_ == 0; }
  // Whether a little more may wait there without being posted.
  [[nodiscard]] bool has_room(std::uint16_t transport) const { return rows_[transport].count < kCapacity / 2; }

 private:
  static constexpr std::size_t kCapacity = 64;
  struct Row {
    std::array<transport::Slice, kCapacity> slices;
    std::size_t count = 0;
  };

  const Transports transports_;
  const std::function<void(std::uint32_t token)> untaken_;
  std::vector<Row> rows_;    // by transport
  std::size_t waiting_ = 0;  // in all of them
};

}  // namespace fairway::engine
