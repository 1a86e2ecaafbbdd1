#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "fake_wire.h"
#include "transport/optional_calls.h"

namespace fairway::engine {

// A wire that moves small slices and takes messages within the call, as it is told.
struct QuickWire final : FakeWire, transport::MovesAtOnce {
  QuickWire() {
    port().capabilities.operations = static_cast<std::uint8_t>(
        port().capabilities.operations | static_cast<std::uint8_t>(transport::Op::write_immediate));
    port().capabilities.ordered = true;
  }
  transport::AtOnce move_now(const transport::SmallMove& move) override {
    moves.push_back(move);
    if (answer != transport::AtOnce::done) return answer;
    landed.resize(std::max<std::size_t>(landed.size(), move.remote_offset + move.length));
    std::byte* const there = landed.data() + move.remote_offset;
    if (move.op == transport::Op::read)
      std::memcpy(move.local, there, move.length);
    else
      std::memcpy(there, move.local, move.length);
    return answer;
  }
  transport::AtOnce send_now(transport::LinkId link, std::span<const std::byte> head,
                             std::span<const std::byte> tail) override {
    sent_by = link;
    if (answer != transport::AtOnce::done) return answer;
    std::vector<std::byte>& whole = sent.emplace_back(head.begin(), head.end());
    whole.insert(whole.end(), tail.begin(), tail.end());
    return answer;
  }
  transport::AtOnce answer = transport::AtOnce::done;
  std::vector<transport::SmallMove> moves;
  std::vector<std::vector<std::byte>> sent;
  transport::LinkId sent_by;
};

inline std::vector<std::unique_ptr<transport::Transport>> one_quick() {
  std::vector<std::unique_ptr<transport::Transport>> one;
  one.push_back(std::make_unique<QuickWire>());
  return one;
}

}  // namespace fairway::engine
