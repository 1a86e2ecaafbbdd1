#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/verbs/library.h"

// Stand-in NICs for tests of what no available device does: GPU memory, on-demand paging, limits. There are two, nic0
// and nic1, on one wire within this process, behind the table that stands for libibverbs. The kernel's own devices test
// the semantics of verbs (tests/rdma_vm). These know reliable queue pairs as far as the transport uses them, and are
// strict about keys, bounds and permissions. A posted request is executed at once.
//
// Their bus is weakly ordered: bytes for a GPU's memory stay in flight until someone reads that memory over the bus.
// Bytes that the NICs read are visible at once, or, with FAIRWAY_STANDIN_UNORDERED, after the driver was told to flush.
namespace fairway::support::nic {

namespace abi = transport::verbs::abi;

// The behavior of the NICs, their kernel and the library. Set only while nothing uses them.
struct Settings {
  bool dmabuf_in_library = true;
  int dmabuf_error = 0;              // errno of a dma-buf registration; 0: it works
  bool peer_memory = false;          // GPU memory can be registered by address
  abi::PagingLimits paging{};        // the on-demand paging that the device reports
  std::uint64_t most_pinned = ~0UL;  // bytes, like a limit on locked memory
  bool kernel_takes_on_demand = true;
  std::string refuses_gpus;  // the name of a NIC that registers no GPU memory
  // The name of a NIC that refuses larger regions.
  std::string small;
  std::uint64_t small_takes = ~0UL;                                    // by an atomic_ref also while it is used
  std::uint8_t ports = 1;                                              // per NIC
  std::uint32_t takes_inline = ~0U;                                    // bytes; a queue pair for more is refused
  std::function<void(std::uint64_t size)> registering, deregistering;  // called without a lock
  std::function<void()> destroying;                                    // called without a lock, for each queue pair
  std::function<void()> leading;  // called without a lock, before a queue pair is connected to its peer
  std::function<int(std::uint64_t size)> keeping;         // the errno with which a region's end is refused; 0: it ends
  int no_error_state = 0, no_reset = 0, no_end = 0;       // errnos with which queue pairs refuse that
  bool flushes = true;                                    // queue pairs in the error state complete what they have
  std::uint64_t most_sends = ~0UL, most_receives = ~0UL;  // requests that a queue pair takes, in its life
  bool infiniband = false, header_required = false;
};
Settings& settings();

struct Counts {
  std::atomic<std::uint64_t> by_dmabuf{0}, by_peer_memory{0}, on_demand{0}, regions{0};
  std::atomic<std::uint64_t> reads_of_gpus{0}, pushed{0};      // reads over the bus; bytes that such reads made visible
  std::atomic<std::uint64_t> largest_inline{0};                // bytes
  std::atomic<int> rnr_timer{-1};                              // of the last queue pair that was told one
  std::atomic<std::uint64_t> global_paths{0}, local_paths{0};  // queue pairs that were connected, by their header
};
Counts& counts();

// The library of this process, with the current settings.
std::shared_ptr<const transport::verbs::Library> library();
// Breaks the queue pair with that user number. False: there is none.
bool break_pair(std::uint64_t user);
// None of that NIC's queue pairs hears anybody any more, as if the processes were killed that have it open.
void kill(const std::string& nic);
// Raises an asynchronous event of that NIC, at its first port, for everyone who has it open.
void befall(const std::string& nic, int event);
// Gives the NIC addresses of that network (the second number of the address), or none, and raises the event.
void readdress(const std::string& nic, std::optional<std::uint8_t> network);
// Gives the NIC a partition table and raises the event.
void repartition(const std::string& nic, std::vector<std::uint16_t> keys);
// Removes the NIC from the device list without an event. Open handles stay valid.
void unplug(const std::string& nic);
std::size_t users(const std::string& nic);  // number of open handles
void plug_all();
// How often anyone polled for such events.
std::uint64_t asked_for_events(const std::string& nic);

}  // namespace fairway::support::nic
