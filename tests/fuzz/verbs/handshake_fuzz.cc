#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/verbs/handshake.h"
#include "transport/verbs/memory.h"

using namespace fairway::transport;
using namespace fairway::transport::verbs;

// What decodes says the same again, byte for byte; nothing else is accepted, and nothing is read past the end. A peer's
// ports can be paired with any others.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto same = [&](std::span<const std::byte> again) {
    return std::equal(again.begin(), again.end(), bytes.begin(), bytes.end());
  };
  if (const auto ports = decode_ports(bytes)) {
    if (!same(encode(*ports))) std::abort();
    const PortAddress ours[] = {{Fabric::roce, {}, 0}, {Fabric::infiniband, {}, 1}};
    const auto links = pair_ports(ours, *ports);
    if (links.size() > kMaxPlannedLinks) std::abort();
    for (const PlannedPair& each : links)
      if (each.acceptor >= 2 || each.initiator >= ports->size() || text_of((*ports)[each.initiator]).empty())
        std::abort();
  }
  if (const auto endpoint = decode_endpoint(bytes); endpoint && !same(encode(*endpoint))) std::abort();
  if (const auto key = decode_key(bytes); key && !same(encode(*key))) std::abort();
  std::size_t port = 0;
  if (const auto keys = decode_renewed(bytes, port)) {
    if (!same(encode_renewed(port, *keys))) std::abort();
    RenewedKeys renewed;
    if (!renewed.keep(1, port, *keys)) std::abort();
  }
  return 0;
}
