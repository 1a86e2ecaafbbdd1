#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/verbs/handshake.h"
#include "transport/verbs/memory.h"

using namespace fairway::transport::verbs;

// What decodes says the same again, byte for byte; nothing else is accepted, and nothing is read past the end. The
// ports of a hello can be paired with any others.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto same = [&](std::span<const std::byte> again) {
    return std::equal(again.begin(), again.end(), bytes.begin(), bytes.end());
  };
  if (const auto message = decode_handshake(bytes)) {
    if (!same(encode(*message))) std::abort();
    const PortAddress ours[] = {{Fabric::roce, {}, 0}, {Fabric::infiniband, {}, 1}};
    for (const auto& [our, their] : pair_ports(ours, message->ports))
      if (our >= 2 || their >= message->ports.size() || text_of(message->ports[their]).empty()) std::abort();
  }
  if (const auto key = decode_key(bytes))
    if (!same(encode(*key))) std::abort();
  return 0;
}
