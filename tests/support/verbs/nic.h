#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/verbs/library.h"

// NICs for claims about what no device at hand does: memory of GPUs, on-demand paging, limits. Two of them, nic0 and
// nic1, on one wire within this process, behind the table that stands for libibverbs. What verbs mean is claimed on the
// kernel's own (tests/rdma_vm); this knows reliable queue pairs as far as the transport uses them, and is strict about
// keys, bounds and rights. A posted request is carried out at once.
//
// Their bus is a weak one: bytes for a GPU's memory stay on their way until that GPU's memory is read over the bus.
// What they read themselves is there at once, or, with FAIRWAY_STANDIN_UNORDERED, once the driver was told to flush.
namespace fairway::support::nic {

namespace abi = transport::verbs::abi;

// What the NICs, their kernel and the library do. Set while nothing uses them.
struct Settings {
  bool dmabuf_in_library = true;
  int dmabuf_error = 0;              // errno of registering one; 0: it works
  bool peer_memory = false;          // a GPU's memory may be registered by its address
  abi::PagingLimits paging{};        // what is said of it
  std::uint64_t most_pinned = ~0UL;  // bytes, as by a limit of locked memory
  bool kernel_takes_on_demand = true;
  std::string refuses_gpus;  // the name of a NIC that takes no GPU's memory
  // A NIC that takes no memory of more bytes.
  std::string small;
  std::uint64_t small_takes = ~0UL;
  std::uint8_t ports = 1;                                              // of each
  std::function<void(std::uint64_t size)> registering, deregistering;  // called without a lock
  std::function<void()> destroying;                                    // a queue pair, likewise
  std::function<void()> leading;                                       // one to its peer, likewise
};
Settings& settings();

struct Counts {
  std::atomic<std::uint64_t> by_dmabuf{0}, by_peer_memory{0}, on_demand{0}, regions{0};
  std::atomic<std::uint64_t> reads_of_gpus{0}, pushed{0};  // read over the bus; bytes that such reads pushed
};
Counts& counts();

// Of this process, with the settings as they are.
std::shared_ptr<const transport::verbs::Library> library();
// False: there is no queue pair whose user named it so.
bool break_pair(std::uint64_t user);
// An asynchronous event of that NIC, at its first port, for everyone who has it open.
void befall(const std::string& nic, int event);
// It has addresses of that network from now on (the second of their numbers), or none, and says so.
void readdress(const std::string& nic, std::optional<std::uint8_t> network);
// It is listed no more, and tells nobody; what has it open keeps it.
void unplug(const std::string& nic);
std::size_t users(const std::string& nic);  // who have it open
void plug_all();
// How often anyone has asked for such events.
std::uint64_t asked_for_events(const std::string& nic);

}  // namespace fairway::support::nic
