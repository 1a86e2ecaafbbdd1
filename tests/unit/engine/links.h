#pragma once

#include <cstdint>
#include <vector>

#include "engine/tables/route.h"
#include "transport/transport.h"

namespace fairway::engine {

template <class... Bits>
constexpr std::uint8_t mask(Bits... bits) {
  return static_cast<std::uint8_t>((0u | ... | static_cast<unsigned>(bits)));
}

// Links as a test wishes them, and the views that route() and stripe() take. A view borrows from it.
struct Links {
  using Op = transport::Op;
  static constexpr std::uint8_t kAll = mask(Op::write, Op::read, Op::message, Op::fetch_add, Op::compare_swap);

  explicit Links(std::size_t count) : capabilities(count), views(count) {
    for (std::size_t i = 0; i < count; ++i) {
      capabilities[i].operations = kAll;
      capabilities[i].max_message_bytes = 1024;
      capabilities[i].queue_depth = 64;
      views[i] = {&capabilities[i], true, 10'000'000'000, 0, 64};
    }
  }

  std::vector<transport::Capabilities> capabilities;
  std::vector<LinkView> views;
};

}  // namespace fairway::engine
