#include "transport/fabric/choice.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "core/bytes.h"
#include "sys/address.h"

namespace fairway::transport::fabric {
namespace {

constexpr std::size_t kMaxNameBytes = 128;
// An endpoint's receives. ofi_rxd uses one per packet and sends 128 packets before it waits for an acknowledgement; a
// packet without a receive is dropped and retransmitted after a timeout.
constexpr std::size_t kPackets = 256;
constexpr std::size_t kLeastOperations = 16;

std::string text(const char* words) {
  return words == nullptr ? std::string() : std::string(words);
}

// The bytes of the IP address in a socket address of that format; empty: it has none.
std::span<const std::byte> ip_of(std::uint32_t format, std::span<const std::byte> address) {
  if (format == FI_SOCKADDR_IN && address.size() >= 8) return address.subspan(4, 4);
  if (format == FI_SOCKADDR_IN6 && address.size() >= 24) return address.subspan(8, 16);
  return {};
}

unsigned at(std::span<const std::byte> bytes, std::size_t i) {
  return std::to_integer<unsigned>(bytes[i]);
}

bool is_loopback(std::span<const std::byte> ip) {
  if (ip.size() == 4) return at(ip, 0) == 127;
  return std::all_of(ip.begin(), ip.end() - 1, [](std::byte each) { return each == std::byte{0}; }) && at(ip, 15) == 1;
}

bool is_link_local(std::span<const std::byte> ip) {
  if (ip.size() == 4) return at(ip, 0) == 169 && at(ip, 1) == 254;
  return at(ip, 0) == 0xfe && (at(ip, 1) & 0xc0) == 0x80;
}

bool is_address(std::span<const std::byte> ip, const std::string& host) {
  const auto numeric = sys::numeric_address({host, 0});
  if (!numeric) return false;
  const auto bytes = std::as_bytes(std::span(&numeric->storage, 1));
  return std::ranges::equal(ip, ip_of(numeric->family() == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6, bytes));
}

// Whether an endpoint may listen at that address: no wider than EngineOptions::listen.
bool may_listen(std::span<const std::byte> ip, const std::string& host) {
  if (ip.empty()) return true;
  if (is_link_local(ip)) return false;
  const bool only_here = host.starts_with("127.") || host == "::1" || host == "localhost";
  if (is_loopback(ip) || only_here) return is_loopback(ip) && only_here;
  return host == "0.0.0.0" || host == "::" || is_address(ip, host);
}

int common_bits(std::span<const std::byte> a, std::span<const std::byte> b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto differs = static_cast<std::uint8_t>(at(a, i) ^ at(b, i));
    bits += std::countl_zero(differs);
    if (differs != 0) break;
  }
  return bits;
}

// How close two domains are; -1: they cannot connect.
int nearness(const DomainAddress& a, const DomainAddress& b) {
  if (!can_connect(a, b)) return -1;
  const auto one = ip_of(a.format, a.address), other = ip_of(b.format, b.address);
  return 2 * (one.empty() ? 0 : common_bits(one, other)) + (a.name == b.name ? 1 : 0);
}

constexpr std::uint64_t kInOrder = FI_ORDER_SAS | FI_ORDER_SAW;

bool may_lose_silently(std::string_view provider) {
  const bool connected =
      provider.starts_with("tcp") || provider.ends_with("ofi_rxm") || provider == "net" || provider == "sockets";
  return connected || provider.ends_with("ofi_rxd");  // which repeats
}

}  // namespace

std::vector<HintSet> hint_sets(std::string_view provider) {
  const bool nics =
      std::find(sys::kNicProviders.begin(), sys::kNicProviders.end(), provider) != sys::kNicProviders.end();
  // Within a host EFA would use the provider shm, which has problems (docs/GOTCHAS.md).
  const bool remote_only = provider == "efa";
  std::vector<HintSet> all;
  const auto add = [&](bool rma, bool delivery, bool gpus) {
    // An answer may have no order but what was asked for.
    for (const bool in_order : {true, false})
      for (const bool sized : {true, false})
        if (!in_order || may_lose_silently(provider))
          all.push_back({rma, delivery, gpus, sized, remote_only, in_order});
  };
  if (nics) add(true, true, true);  // GPU support makes software providers slower, and cuda or staging serves there
  for (const bool rma : {true, false})
    for (const bool delivery : {true, false}) add(rma, delivery, false);
  return all;
}

void fill_hints(fi_info& hints, const HintSet& wanted) {
  hints.caps =
      FI_MSG | (wanted.rma ? FI_RMA : 0) | (wanted.gpus ? FI_HMEM : 0) | (wanted.remote_only ? FI_REMOTE_COMM : 0);
  hints.mode = FI_CONTEXT | FI_CONTEXT2;
  hints.ep_attr->type = FI_EP_RDM;
  hints.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT |
                               (wanted.gpus ? FI_MR_HMEM : 0);
  hints.domain_attr->threading = FI_THREAD_SAFE;  // memory is registered on any thread
  // Progress by the worker's polls if possible: a provider's own thread could acknowledge what a fence drops.
  hints.domain_attr->control_progress = hints.domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
  // An endpoint serves one peer. By default EFA posts an 8 KiB buffer for each receive of its device, per endpoint.
  hints.tx_attr->size = wanted.sized ? kOperations : 0;
  hints.rx_attr->size = wanted.sized ? kPackets : 0;
  if (wanted.delivery) hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  if (wanted.in_order) hints.tx_attr->msg_order = hints.rx_attr->msg_order = kInOrder;
}

Sizes sizes_of(const fi_info& info) {
  const auto at_most = [](std::size_t has, std::size_t most) { return has == 0 ? most : std::min(has, most); };
  return {at_most(info.tx_attr->size, kOperations), at_most(info.rx_attr->size, kPackets)};
}

std::optional<Sizes> smaller(Sizes refused) {
  const Sizes less{std::max(refused.operations / 4, std::min(refused.operations, kLeastOperations)),
                   std::max(refused.receives / 4, std::min(refused.receives, kIn))};
  if (less == refused) return {};
  return less;
}

bool may_be_size(int result) {
  return result == -FI_EINVAL || result == -FI_ENOMEM || result == -FI_ENOSPC || result == -FI_E2BIG;
}

std::string text(const Sizes& sizes) {
  return fmt::format("{} operations, {} receives and {} completions", sizes.operations, sizes.receives,
                     sizes.completions());
}

bool writes_carry_data(const fi_info& info) {
  // cxi supports it only for messages: its fi_writemsg refuses it (FI_EBADFLAGS, libfabric 2.6).
  return info.domain_attr->cq_data_size >= 4 && text(info.fabric_attr->prov_name) != "cxi";
}

bool loses_silently(const fi_info& info) {
  return may_lose_silently(text(info.fabric_attr->prov_name)) && (info.tx_attr->msg_order & kInOrder) == kInOrder;
}

MovedBy moved_by(const fi_info& info) {
  const std::string name = text(info.fabric_attr->prov_name);
  const std::string core = name.substr(0, name.find(';'));  // "verbs;ofi_rxm"
  if (core == "verbs" ||
      std::find(sys::kNicProviders.begin(), sys::kNicProviders.end(), core) != sys::kNicProviders.end())
    return MovedBy::nic;
  return core == "shm" || core == "sm2" ? MovedBy::cpu : MovedBy::sockets;
}

std::vector<const fi_info*> usable(const fi_info* answers, const FabricOptions& options) {
  std::vector<const fi_info*> chosen;
  for (const fi_info* info = answers; info != nullptr; info = info->next) {
    const std::string name = text(info->domain_attr->name);
    if (text(info->fabric_attr->name) == sys::kEfaDirect) continue;
    const auto& wanted = options.domains;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    const DomainAddress own = address_of(*info);
    if (!may_listen(ip_of(own.format, own.address), options.listen_host)) continue;
    const bool known = std::any_of(chosen.begin(), chosen.end(),
                                   [&](const fi_info* other) { return text(other->domain_attr->name) == name; });
    if (!known && chosen.size() < kMaxPlannedDevices) chosen.push_back(info);
  }
  return chosen;
}

DomainAddress address_of(const fi_info& info) {
  DomainAddress out{text(info.fabric_attr->prov_name), text(info.domain_attr->name), info.addr_format, {}, {}};
  const auto* bytes = static_cast<const std::byte*>(info.src_addr);
  if (bytes != nullptr && info.src_addrlen <= kMaxAddressBytes) out.address.assign(bytes, bytes + info.src_addrlen);
  return out;
}

std::vector<std::byte> encode(std::span<const DomainAddress> addresses) {
  std::vector<std::byte> bytes(kMaxPlannedBytes);
  ByteWriter writer(bytes);
  writer.put(static_cast<std::uint8_t>(addresses.size()));
  for (const DomainAddress& each : addresses)
    writer.put_text(each.provider).put_text(each.name).put(each.format).put_sized(each.address).put_text(each.host);
  bytes.resize(writer.size());
  return bytes;
}

Result<std::vector<DomainAddress>> decode_addresses(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::vector<DomainAddress> out;
  const auto count = reader.get<std::uint8_t>();
  bool fits = count != 0 && count <= kMaxPlannedDevices;
  for (std::uint8_t i = 0; fits && i < count && reader.ok(); ++i) {
    DomainAddress& each = out.emplace_back();
    each.provider = reader.get_text();
    each.name = reader.get_text();
    each.format = reader.get<std::uint32_t>();
    const auto address = reader.get_sized();
    each.address.assign(address.begin(), address.end());
    each.host = reader.get_text();
    fits = each.provider.size() <= kMaxNameBytes && each.name.size() <= kMaxNameBytes &&
           each.host.size() <= kMaxNameBytes && address.size() <= kMaxAddressBytes;
  }
  if (!fits || !reader.done()) return Status(ErrorCode::protocol_error, "malformed fabric handshake: list of domains");
  return out;
}

bool can_connect(const DomainAddress& a, const DomainAddress& b) {
  if (a.provider != b.provider || a.format != b.format || a.host != b.host) return false;
  // Within one process the provider shm uses pointers into a closed endpoint.
  if (!a.host.empty() && a.address == b.address) return false;
  const auto one = ip_of(a.format, a.address), other = ip_of(b.format, b.address);
  if (one.empty() || other.empty()) return one.empty() == other.empty();
  return is_loopback(one) == is_loopback(other);
}

std::vector<PlannedPair> pair_domains(std::span<const DomainAddress> acceptors,
                                      std::span<const DomainAddress> initiators) {
  struct Candidate {
    int near = 0;
    PlannedPair pair;
  };
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < initiators.size(); ++i)
    for (std::size_t k = 0; k < acceptors.size(); ++k)
      if (const int near = nearness(initiators[i], acceptors[k]); near >= 0)
        candidates.push_back({near, {static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(k)}});
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.near > b.near; });
  std::vector<PlannedPair> pairs;
  for (const Candidate& each : candidates) {
    const bool taken = std::any_of(pairs.begin(), pairs.end(), [&](const PlannedPair& other) {
      return other.initiator == each.pair.initiator || other.acceptor == each.pair.acceptor;
    });
    if (!taken && pairs.size() < kMaxPlannedLinks) pairs.push_back(each.pair);
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const PlannedPair& a, const PlannedPair& b) { return a.initiator < b.initiator; });
  return pairs;
}

}  // namespace fairway::transport::fabric
