#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "engine/tables/regions.h"

// Whatever the bytes: refused, or a description that is written again as exactly these bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto parsed = fairway::engine::parse_description(bytes);
  if (!parsed) return 0;
  const auto again = fairway::engine::format_description(*parsed);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  return 0;
}
