#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "engine/control_message.h"

using namespace fairway::engine;

// Whatever the bytes: no message, or one that is written again as exactly these bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4000) return 0;  // longer than control carries: format() refuses
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto type = message_type(bytes);
  if (!type) return 0;
  const auto check = [&](const auto& message) {
    if (!message) return;
    const auto again = format(*message);
    if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  };
  switch (*type) {
    case MessageType::hello: check(parse_hello(bytes)); break;
    case MessageType::exchange: check(parse_exchange(bytes)); break;
    case MessageType::link_closed: check(parse_link_closed(bytes)); break;
    case MessageType::lookup: check(parse_lookup(bytes)); break;
    case MessageType::lookup_reply: check(parse_lookup_reply(bytes)); break;
  }
  return 0;
}
