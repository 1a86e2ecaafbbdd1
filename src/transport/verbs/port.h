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
// the transport from when it opened; what it says is fixed, except its state and its address. Where its device goes, it is
// let go, and becomes the port of the device that comes back.
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
  [[nodiscard]] const std::shared_ptr<const Library>& shared_library() const { return library_; }
  [[nodiscard]] abi::Context* context() const { return has_.context; }
  [[nodiscard]] abi::ProtectionDomain* domain() const { return has_.domain; }
  [[nodiscard]] abi::CompletionChannel* channel() const { return has_.channel; }
  [[nodiscard]] const abi::Limits& limits() const { return has_.limits; }
  [[nodiscard]] const abi::PortState& state() const { return has_.state; }
  [[nodiscard]] const PortAddress& address() const { return has_.address; }
  [[nodiscard]] std::uint8_t mtu() const;  // that this side wants, as the ABI counts
  [[nodiscard]] std::uint8_t gid_index() const { return has_.gid_index; }
  [[nodiscard]] std::uint16_t pkey_index() const { return has_.pkey_index; }
  [[nodiscard]] const RdmaOptions& options() const { return options_; }
  [[nodiscard]] bool iwarp() const { return has_.address.fabric == Fabric::iwarp; }
  void listens_at(std::uint16_t port) { has_.address.listens_at = port; }  // rdma_cm, for it
  [[nodiscard]] const std::string& bond() const { return has_.bond; }      // that its interface is; empty: none
  [[nodiscard]] std::uint8_t legs() const { return has_.legs; }
  [[nodiscard]] std::uint8_t number() const { return number_; }
  [[nodiscard]] std::size_t index() const { return index_; }  // among the ports of its transport
  [[nodiscard]] bool read_back() const { return has_.read_back; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] const abi::MemoryRegion* word() const {
    return has_.word_region;
  }  // eight bytes that every peer may read

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
  [[nodiscard]] bool software() const { return !has_.hardware; }
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
  // A device of its name is there again, opened as `again`: why this port cannot go on with that; and that it does,
  // while it is gone. `again` is then closed.
  [[nodiscard]] Status can_become(const Port& again) const;
  void become(Port& again);

  void works() { quiet_ = false; }                                        // it gave a request back
  [[nodiscard]] bool was_quiet() { return std::exchange(quiet_, true); }  // since this was last asked

  // Whether a region may be registered without pinning it, its pages coming when the NIC asks for them; why not.
  [[nodiscard]] bool pages(bool atomics) const { return missing_paging(atomics) == 0; }
  [[nodiscard]] std::string why_no_pages(bool atomics) const;

  // Registers memory for this port; null, with errno: refused. Relaxed ordering where the system knows it.
  [[nodiscard]] abi::MemoryRegion* register_memory(void* address, std::size_t size, int access, bool relaxed) const;

 private:
  struct alignas(64) Cell {
    std::uint64_t bytes[8] = {};
  };
  struct Opened {  // of the device that there is now
    abi::Context* context = nullptr;
    abi::ProtectionDomain* domain = nullptr;
    abi::CompletionChannel* channel = nullptr;
    std::unique_ptr<Cell> word = std::make_unique<Cell>();
    abi::MemoryRegion* word_region = nullptr;
    abi::Limits limits{};
    abi::PagingLimits paging{};
    abi::PortState state{};
    PortAddress address;
    std::uint8_t gid_index = 0;
    std::uint16_t pkey_index = 0;
    std::string bond;
    std::uint8_t legs = 1;
    bool read_back = false;
    bool hardware = false;
  };
  Status choose_address(std::span<const GidEntry> iwarp_addresses);
  Status read_gids(std::vector<GidEntry>& entries) const;
  [[nodiscard]] bool has_address() const;  // still, that it told
  Status choose_partition();
  void describe(const VerbsOptions& options);
  [[nodiscard]] unsigned missing_paging(bool atomics) const;

  std::shared_ptr<const Library> library_;
  std::uint8_t number_;
  std::size_t index_;
  const RdmaOptions options_;
  Opened has_;
  bool quiet_ = true;
  std::string lost_;
  static constexpr int kGone = -1;
  mutable std::atomic<int> holders_{0};
  Device device_;
};

// The ports of this host that can be used; else why there is none, or why not the first that was found. Without a
// network, which knows this host's addresses, those that need rdma_cm (iWARP's) are left out.
Result<std::vector<std::unique_ptr<Port>>> open_ports(const VerbsOptions& options, Network* network = nullptr);

// The port of the same name, of a device that is there by now; why it cannot be used. Any thread.
Result<std::unique_ptr<Port>> open_again(const Port& gone, const VerbsOptions& options);

}  // namespace fairway::transport::verbs
