#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace fairway::transport {

// fetch_add or compare_swap by the CPU on the eight aligned bytes at `at`. Returns the old value.
inline std::uint64_t apply_atomic(Op op, std::byte* at, std::uint64_t operand, std::uint64_t expected) {
  std::atomic_ref<std::uint64_t> target(*reinterpret_cast<std::uint64_t*>(at));
  if (op == Op::fetch_add) return target.fetch_add(operand);
  target.compare_exchange_strong(expected, operand);  // leaves the old value in `expected`, swapped or not
  return expected;
}

}  // namespace fairway::transport
