#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/planned_handshake.h"

using namespace fairway::transport;

// What decodes says the same again, byte for byte; nothing else is accepted, and nothing is read past the end.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto message = decode_planned(bytes, 1, "planned")) {
    const auto again = encode(*message, 1);
    if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  }
  return 0;
}
