#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/fabric/choice.h"
#include "transport/fabric/frame.h"
#include "transport/fabric/memory.h"

using namespace fairway::transport;

// What decodes says the same again, byte for byte; nothing else is accepted, and nothing is read past the end. The
// domains of a peer can be paired with any others.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto same = [&](std::span<const std::byte> again) {
    return std::equal(again.begin(), again.end(), bytes.begin(), bytes.end());
  };
  if (const auto note = fabric::decode_note(bytes); note && !same(fabric::encode(*note))) std::abort();
  if (const auto key = fabric::decode_key(bytes); key && !same(fabric::encode(*key))) std::abort();
  if (const auto addresses = fabric::decode_addresses(bytes)) {
    const fabric::DomainAddress ours[] = {{"efa", "a", FI_ADDR_EFA, {}, {}}, {"tcp", "lo", FI_SOCKADDR_IN, {}, {}}};
    for (const PlannedPair& each : fabric::pair_domains(ours, *addresses))
      if (each.acceptor >= 2 || each.initiator >= addresses->size()) std::abort();
  }
  return 0;
}
