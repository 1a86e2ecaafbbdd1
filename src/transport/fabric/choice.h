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

// Decisions that need no open domain: the hints for fi_getinfo, which results to use, which domains of two sides to
// connect. Pure.
namespace fairway::transport::fabric {

inline constexpr std::size_t kOperations = 256;     // of a lane, in flight
inline constexpr std::uint32_t kReceives = 16;      // credits of the peer: messages and immediates
inline constexpr std::uint32_t kSpareReceives = 4;  // for credit updates, which use no credit: two at most
inline constexpr std::size_t kIn = kReceives + kSpareReceives;
inline constexpr std::size_t kMaxAddressBytes = 256;

// The sizes of an endpoint's queues. A value.
struct Sizes {
  std::size_t operations = 0;  // sends, writes and reads in flight
  std::size_t receives = 0;    // also posted by the provider to its device
  [[nodiscard]] std::size_t completions() const { return operations + 2 * kIn + kReceives; }
  bool operator==(const Sizes&) const = default;
};
Sizes sizes_of(const fi_info& info);          // what the provider offers, at most what an endpoint needs
std::optional<Sizes> smaller(Sizes refused);  // to try next; nothing: an endpoint needs at least `refused`
bool may_be_size(int result);                 // whether the error may mean that a size is too large
std::string text(const Sizes& sizes);

// Features to request from a provider. hint_sets() lists them in order of preference: first one-sided operations with
// delivery completion, then less.
struct HintSet {
  bool rma = true, delivery = true, gpus = false;
  bool sized = true;         // queues as large as an endpoint uses; else the provider's default
  bool remote_only = false;  // FI_REMOTE_COMM: not the provider's own path within a host
  bool in_order = false;     // one endpoint's sends and writes stay in order: what is lost shows (loses_silently())
};
std::vector<HintSet> hint_sets(std::string_view provider);
// Fills an empty fi_info from a HintSet, except the provider's name.
void fill_hints(fi_info& hints, const HintSet& wanted);

// The results of one provider to open: one for each domain with an address that may be used.
std::vector<const fi_info*> usable(const fi_info* answers, const FabricOptions& options);

// Whether writes can carry remote CQ data.
bool writes_carry_data(const fi_info& info);

// Whether the provider can lose or corrupt messages without an error, although it keeps the order of one endpoint's
// sends: it reconnects silently, or was seen to deliver more than was sent (docs/GOTCHAS.md).
bool loses_silently(const fi_info& info);

// What moves the provider's bytes: a NIC without the kernel, sockets, or CPUs within a host. Sockets where it is not
// known, of which nothing is expected.
MovedBy moved_by(const fi_info& info);

// A domain, as the two sides describe it to each other.
struct DomainAddress {
  std::string provider;  // "efa", "tcp;ofi_rxm"
  std::string name;      // of the domain
  std::uint32_t format = 0;
  std::vector<std::byte> address;  // fi_info::src_addr, before there is an endpoint; may be empty
  std::string host;                // of a provider that works within one host: its boot id
  bool operator==(const DomainAddress&) const = default;
};
DomainAddress address_of(const fi_info& info);
std::vector<std::byte> encode(std::span<const DomainAddress> addresses);
Result<std::vector<DomainAddress>> decode_addresses(std::span<const std::byte> bytes);

// Pairs domains of the same provider, each with one domain at most: longest common address prefix first, then equal
// names, so that NICs of one rail are connected.
std::vector<PlannedPair> pair_domains(std::span<const DomainAddress> acceptors,
                                      std::span<const DomainAddress> initiators);
bool can_connect(const DomainAddress& a, const DomainAddress& b);

}  // namespace fairway::transport::fabric
