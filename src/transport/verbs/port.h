#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/choice.h"
#include "transport/verbs/library.h"
#include "transport/verbs/verbs.h"

namespace fairway::transport::verbs {

// One usable port of a device, opened: its own context, protection domain and completion channel. A resource, kept by
// the transport from probe() on; what it says is fixed, except the state of the port.
class Port {
 public:
  Port(std::shared_ptr<const Library> library, abi::Context* context, std::uint8_t number, std::size_t index,
       const RdmaOptions& options);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // Fills the rest. A sentence why the port cannot be used, with the remedy. iWARP's addresses are told by rdma_cm.
  Status open(const VerbsOptions& options, std::span<const GidEntry> iwarp_addresses);

  [[nodiscard]] const Library& library() const { return *library_; }
  [[nodiscard]] abi::Context* context() const { return context_; }
  [[nodiscard]] abi::ProtectionDomain* domain() const { return domain_; }
  [[nodiscard]] abi::CompletionChannel* channel() const { return channel_; }
  [[nodiscard]] const abi::Limits& limits() const { return limits_; }
  [[nodiscard]] const abi::PortState& state() const { return state_; }
  [[nodiscard]] const PortAddress& address() const { return address_; }
  [[nodiscard]] std::uint8_t mtu() const;  // that this side wants, as the ABI counts
  [[nodiscard]] std::uint8_t gid_index() const { return gid_index_; }
  [[nodiscard]] std::uint16_t pkey_index() const { return pkey_index_; }
  [[nodiscard]] const RdmaOptions& options() const { return options_; }
  [[nodiscard]] bool iwarp() const { return address_.fabric == Fabric::iwarp; }
  void listens_at(std::uint16_t port) { address_.listens_at = port; }  // rdma_cm, for it
  [[nodiscard]] const std::string& bond() const { return bond_; }      // that its interface is; empty: none
  [[nodiscard]] std::uint8_t legs() const { return legs_; }
  [[nodiscard]] std::uint8_t number() const { return number_; }
  [[nodiscard]] std::size_t index() const { return index_; }  // among the ports of its transport
  [[nodiscard]] bool read_back() const { return read_back_; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] const abi::MemoryRegion* word() const { return word_region_; }  // eight bytes that every peer may read

  // What the kernel refused at this port, with its reason, and the remedy where a limit is reached.
  [[nodiscard]] Status refusal(const std::string& what, int error) const;
  [[nodiscard]] bool active() const;  // asks the kernel
  void drain_channel();               // what announced itself; the queues are looked at anyway
  // Why every link of this port ends, if something happened to it; null: nothing did.
  const char* what_happened();

  // Whether a region may be registered without pinning it, its pages coming when the NIC asks for them; why not.
  [[nodiscard]] bool pages(bool atomics) const { return missing_paging(atomics) == 0; }
  [[nodiscard]] std::string why_no_pages(bool atomics) const;

  // Registers memory for this port; null, with errno: refused. Relaxed ordering where the system knows it.
  [[nodiscard]] abi::MemoryRegion* register_memory(void* address, std::size_t size, int access, bool relaxed) const;

 private:
  Status choose_address(std::span<const GidEntry> iwarp_addresses);
  Status read_gids(std::vector<GidEntry>& entries) const;
  Status choose_partition();
  void describe(const VerbsOptions& options);
  [[nodiscard]] unsigned missing_paging(bool atomics) const;

  std::shared_ptr<const Library> library_;
  abi::Context* context_;
  std::uint8_t number_;
  std::size_t index_;
  const RdmaOptions options_;
  abi::ProtectionDomain* domain_ = nullptr;
  abi::CompletionChannel* channel_ = nullptr;
  abi::MemoryRegion* word_region_ = nullptr;
  alignas(64) std::uint64_t word_[8] = {};
  abi::Limits limits_{};
  abi::PagingLimits paging_{};
  abi::PortState state_{};
  PortAddress address_;
  std::uint8_t gid_index_ = 0;
  std::uint16_t pkey_index_ = 0;
  std::string bond_;
  std::uint8_t legs_ = 1;
  bool read_back_ = false;
  Device device_;
};

// The ports of this host that can be used; else why there is none, or why not the first that was found. Without a
// network, which knows this host's addresses, those that need rdma_cm (iWARP's) are left out.
Result<std::vector<std::unique_ptr<Port>>> open_ports(const VerbsOptions& options, Network* network = nullptr);

}  // namespace fairway::transport::verbs
