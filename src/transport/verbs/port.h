#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/choice.h"
#include "transport/verbs/library.h"
#include "transport/verbs/verbs.h"

namespace fairway::transport::verbs {

// One usable port of a device, opened: its own context, protection domain and completion channel. A resource, kept by
// the transport from probe() on; what it says is fixed, except its state and its address.
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
  // Its state and address as they are now, for links to come; why there can be none.
  Status look_again();
  void drain_channel();  // what announced itself; the queues are looked at anyway
  // Why every link of this port ends, if something happened to it; empty: nothing did. A system call at least.
  std::string what_happened();
  // Its device failed or is to go: nothing new begins here, and what is left is to be given back.
  void lose(std::string why) { lost_ = std::move(why); }
  [[nodiscard]] const std::string& lost() const { return lost_; }  // why; empty: it is there
  [[nodiscard]] bool software() const { return !hardware_; }
  // For other threads than the worker's: it is not let go meanwhile. Null: it is gone.
  struct Release {
    void operator()(const Port* port) const { port->holders_.fetch_sub(1, std::memory_order_release); }
  };
  using Hold = std::unique_ptr<const Port, Release>;
  [[nodiscard]] Hold hold() const;
  // Nobody uses it from now on but close(). False: someone holds it, for now.
  bool let_go();
  [[nodiscard]] bool gone() const { return holders_.load(std::memory_order_acquire) == kGone; }
  void close();  // gives all of it back; no queue pair and no region is left. Any thread, once

  void works() { quiet_ = false; }                                        // it gave a request back
  [[nodiscard]] bool was_quiet() { return std::exchange(quiet_, true); }  // since this was last asked

  // Whether a region may be registered without pinning it, its pages coming when the NIC asks for them; why not.
  [[nodiscard]] bool pages(bool atomics) const { return missing_paging(atomics) == 0; }
  [[nodiscard]] std::string why_no_pages(bool atomics) const;

  // Registers memory for this port; null, with errno: refused. Relaxed ordering where the system knows it.
  [[nodiscard]] abi::MemoryRegion* register_memory(void* address, std::size_t size, int access, bool relaxed) const;

 private:
  Status choose_address(std::span<const GidEntry> iwarp_addresses);
  Status read_gids(std::vector<GidEntry>& entries) const;
  [[nodiscard]] bool has_address() const;  // still, that it told
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
  bool quiet_ = true;
  bool hardware_ = false;
  std::string lost_;
  static constexpr int kGone = -1;
  mutable std::atomic<int> holders_{0};
  Device device_;
};

// The ports of this host that can be used; else why there is none, or why not the first that was found. Without a
// network, which knows this host's addresses, those that need rdma_cm (iWARP's) are left out.
Result<std::vector<std::unique_ptr<Port>>> open_ports(const VerbsOptions& options, Network* network = nullptr);

}  // namespace fairway::transport::verbs
