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

// An opened port of a device: context, protection domain and completion channel. A resource that the transport keeps
// until it closes. Only its state and address change, by the worker; other threads register memory there meanwhile, so
// they read neither, but for the kind of fabric, which stays. When its device is removed the port is released; when a
// device of that name returns, the port takes that over (become()).
class Port {
 public:
  Port(std::shared_ptr<const Library> library, abi::Context* context, std::uint8_t number, std::size_t index,
       const RdmaOptions& options);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // Opens the rest. The error says why the port cannot be used, with the remedy. iWARP addresses come from rdma_cm.
  Status open(const VerbsOptions& options, std::span<const GidEntry> iwarp_addresses);

  [[nodiscard]] const Library& library() const { return *library_; }
  [[nodiscard]] const std::shared_ptr<const Library>& shared_library() const { return library_; }
  [[nodiscard]] abi::Context* context() const { return has_.context; }
  [[nodiscard]] abi::ProtectionDomain* domain() const { return has_.domain; }
  [[nodiscard]] abi::CompletionChannel* channel() const { return has_.channel; }
  [[nodiscard]] const abi::Limits& limits() const { return has_.limits; }
  [[nodiscard]] const abi::PortState& state() const { return has_.state; }
  [[nodiscard]] const PortAddress& address() const { return has_.address; }
  [[nodiscard]] std::uint8_t mtu() const;  // wanted by this side, as ibv_mtu
  [[nodiscard]] std::uint8_t gid_index() const { return has_.gid_index; }
  [[nodiscard]] std::uint16_t pkey_index() const { return has_.pkey_index; }
  [[nodiscard]] const RdmaOptions& options() const { return options_; }
  [[nodiscard]] bool has_atomics() const {  // that a region of this engine allows
    return (device_.capabilities.operations & static_cast<Bits>(Op::fetch_add)) != 0;
  }
  [[nodiscard]] bool iwarp() const { return has_.address.fabric == Fabric::iwarp; }
  void set_cm_port(std::uint16_t port) { has_.address.cm_port = port; }
  [[nodiscard]] const std::string& bond() const { return has_.bond; }  // the bond that its interface is; empty: none
  [[nodiscard]] std::uint8_t legs() const { return has_.legs; }
  [[nodiscard]] std::uint8_t number() const { return number_; }
  [[nodiscard]] std::size_t index() const { return index_; }  // among the ports of its transport
  [[nodiscard]] bool read_back() const { return has_.read_back; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] const abi::MemoryRegion* word() const {
    return has_.word_region;
  }  // eight bytes that every peer may read

  // An error of the kernel at this port, with the remedy if a limit was reached.
  [[nodiscard]] Status refusal(const std::string& what, int error) const;
  // Reads its current state and address, for new links; the error says why there can be none.
  Status refresh();
  void drain_channel();  // discards notifications; all completion queues are polled anyway
  // Reads asynchronous events. Not empty: why all links of this port must end. At least one system call.
  std::string poll_async_events();
  // Its device failed or is being removed: starts nothing new; what is left must be released.
  void lose(std::string why) {
    lost_ = std::move(why);
    failed_.store(true, std::memory_order_release);
  }
  [[nodiscard]] const std::string& lost() const { return lost_; }  // why it was lost; empty: it was not
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }  // it was lost; any thread
  // Of an error at the end of one of its objects: not_fenced, unless the kernel has ended all of them. Any thread.
  [[nodiscard]] Status not_ended(const char* call, int error) const;
  // How long a lane that ends may wait for the NIC to flush its requests. A NIC that has failed flushes nothing: one
  // wait in vain, then none for a while.
  [[nodiscard]] Time drain_deadline(Time now) const;
  void drained_nothing(Time now);
  [[nodiscard]] bool software() const { return !has_.hardware; }
  // For other threads: while held, the port is not closed. Null: it is gone.
  struct Release {
    void operator()(const Port* port) const { port->holders_.fetch_sub(1, std::memory_order_release); }
  };
  using Hold = std::unique_ptr<const Port, Release>;
  [[nodiscard]] Hold hold() const;
  // Afterwards only close() may be called. False: another thread holds it.
  bool let_go();
  [[nodiscard]] bool gone() const { return holders_.load(std::memory_order_acquire) == kGone; }
  void close();  // releases everything; needs that no queue pair and no region is left. Any thread, once
  // A device of its name has returned and was opened as `again`. can_become(): why this port cannot use it. become():
  // a gone port takes it over; `again` is then empty.
  [[nodiscard]] Status can_become(const Port& again) const;
  void become(Port& again);

  void works() { quiet_ = false; }                                        // a completion came
  [[nodiscard]] bool was_quiet() { return std::exchange(quiet_, true); }  // no completion since the last call

  // Whether regions can use on-demand paging instead of pinning; and why not.
  [[nodiscard]] bool pages(bool atomics) const { return missing_paging(atomics) == 0; }
  [[nodiscard]] std::string why_no_pages(bool atomics) const;

  // Registers memory; null and errno on failure. Uses relaxed ordering if wanted and supported.
  [[nodiscard]] abi::MemoryRegion* register_memory(void* address, std::size_t size, int access, bool relaxed) const;

 private:
  struct alignas(64) Cell {
    std::uint64_t bytes[8] = {};
  };
  struct Opened {  // belongs to the device that is present now
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
    std::uint16_t pkey_index = 0, partition = 0;  // the key there; 0: unknown
    std::string bond;
    std::uint8_t legs = 1;
    bool read_back = false;
    bool hardware = false;
  };
  [[nodiscard]] Fabric fabric_of(const abi::PortState& state) const;
  Status choose_address(std::span<const GidEntry> iwarp_addresses);
  Status read_gids(std::vector<GidEntry>& entries) const;
  [[nodiscard]] bool has_address() const;  // whether its address is still valid
  Status choose_partition();
  [[nodiscard]] std::uint16_t partition_at(int index) const;  // 0: none, or unknown
  void describe(const VerbsOptions& options);
  [[nodiscard]] unsigned missing_paging(bool atomics) const;

  std::shared_ptr<const Library> library_;
  std::uint8_t number_;
  std::size_t index_;
  const RdmaOptions options_;
  Opened has_;
  bool quiet_ = true;
  std::string lost_;
  std::atomic<bool> failed_{false};
  Time no_drain_before_ = 0;
  static constexpr int kGone = -1;
  mutable std::atomic<int> holders_{0};
  Device device_;
};

// The usable ports of this host. The error says why there is none: of the first port if there are some. `network` knows
// this host's addresses; without it iWARP ports are left out.
Result<std::vector<std::unique_ptr<Port>>> open_ports(const VerbsOptions& options, Network* network = nullptr);

// Opens the port of the same name on a device that has returned; the error says why it cannot be used. Any thread.
Result<std::unique_ptr<Port>> open_again(const Port& gone, const VerbsOptions& options);

}  // namespace fairway::transport::verbs
