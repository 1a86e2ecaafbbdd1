#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "transport/fabric/calls.h"
#include "transport/fabric/fabric.h"
#include "transport/planned_handshake.h"

// What is decided before anything is opened: what libfabric is asked for, which of its answers are used, which domains
// of two sides belong together. Pure.
namespace fairway::transport::fabric {

inline constexpr std::size_t kOperations = 256;     // of a lane, on their way
inline constexpr std::uint32_t kReceives = 16;      // messages and immediates that may wait
inline constexpr std::uint32_t kSpareReceives = 4;  // for words about room, which take none: two at most
inline constexpr std::size_t kIn = kReceives + kSpareReceives;
inline constexpr std::size_t kMaxAddressBytes = 256;

// What an end's queues are opened for. A value.
struct Sizes {
  std::size_t operations = 0;  // sends, writes and reads on their way
  std::size_t receives = 0;    // that the provider may ask of its device, too
  [[nodiscard]] std::size_t completions() const { return operations + 2 * kIn + kReceives; }
  bool operator==(const Sizes&) const = default;
};
Sizes sizes_of(const fi_info& info);          // of a provider's answer, no more than an end needs
std::optional<Sizes> smaller(Sizes refused);  // to be tried next; nothing: an end needs as much
bool may_be_size(int result);                 // what providers say of a size that they have not
std::string text(const Sizes& sizes);

// Asked for in turn, until the provider has some: with one-sided operations and completions that tell of delivery, then
// with less.
struct Wish {
  bool rma = true, delivery = true, gpus = false;
  bool sized = true;    // as much of queues as an end uses; else as much as the provider likes
  bool abroad = false;  // with no ways of the provider's own inside of a host
};
std::vector<Wish> wishes(std::string_view provider);
// Fills what a Wish means into an empty fi_info, but for the provider's name.
void fill_hints(fi_info& hints, const Wish& wish);

// Of one provider's answers, those to open: one for each domain, whose address may be used.
std::vector<const fi_info*> usable(const fi_info* answers, const FabricOptions& options);

// Whether its writes carry data for the completion at the target.
bool writes_carry_data(const fi_info& info);

// Whether messages get lost or come otherwise than they were sent, without a word, and it keeps the order of what one
// end sends: it makes another connection where one broke, or was seen to deliver more than was sent (docs/GOTCHAS.md).
bool loses_silently(const fi_info& info);

// What the two sides tell each other of a domain.
struct DomainAddress {
  std::string provider;  // "efa", "tcp;ofi_rxm"
  std::string name;      // of the domain
  std::uint32_t format = 0;
  std::vector<std::byte> address;  // of an end there, before there is one; may be empty
  std::string host;                // of a provider that serves one host: which
  bool operator==(const DomainAddress&) const = default;
};
DomainAddress address_of(const fi_info& info);
std::vector<std::byte> encode(std::span<const DomainAddress> addresses);
Result<std::vector<DomainAddress>> decode_addresses(std::span<const std::byte> bytes);

// Each domain in one pair at most: those of one provider and, of those, the nearest first, by subnet and then by name,
// so that NICs of one rail meet.
std::vector<PlannedPair> pair_domains(std::span<const DomainAddress> acceptors,
                                      std::span<const DomainAddress> initiators);
bool can_meet(const DomainAddress& a, const DomainAddress& b);

}  // namespace fairway::transport::fabric
