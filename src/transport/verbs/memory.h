#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime.h"
#include "sys/cuda_memory.h"
#include "transport/command.h"
#include "transport/gpu_access.h"
#include "transport/keyed_memory.h"
#include "transport/transport.h"
#include "transport/verbs/port.h"

namespace fairway::transport::verbs {

// Eight bytes at a port's owner that peers read to flush their earlier writes: when the read completes, those are
// visible. Each link has one in host memory; each GPU has its own, since the path over the bus to its memory differs.
struct Word {
  std::uint64_t address = 0;  // 0: none
  std::uint32_t rkey = 0;
  bool operator==(const Word&) const = default;
};

// A GPU with registered regions, for the ports of one transport. Any thread.
class Gpu {
 public:
  Gpu(std::unique_ptr<sys::BusGpu> bus, std::size_t ports);

  [[nodiscard]] const sys::BusGpu& bus() const { return *bus_; }
  // Its word at that port, registered at the first call that succeeds. The caller holds the port.
  Result<Word> word_at(const Port& port);
  OwnRegion give_up(std::size_t port);  // null: it had none there

 private:
  std::unique_ptr<sys::BusGpu> bus_;
  std::mutex mutex_;              // guards words_
  std::vector<OwnRegion> words_;  // by port; null: none yet
};

// A part of GPU memory that is to be registered: exported once for all ports.
class GpuPart {
 public:
  GpuPart(const sys::BusGpu& gpu, void* address, std::size_t size);

  // Registers it by dma-buf or, if that fails, by its address with the kernel module nvidia_peermem. `how` says which.
  Result<OwnRegion> register_at(const Port& port, int access, bool relaxed, std::string& how) const;

 private:
  void* const address_;
  const std::size_t size_;
  Result<sys::DmaBuf> exported_;
};

// The GPUs in which this transport has had regions; kept until the transport is destroyed. Any thread.
class Gpus {
 public:
  Result<Gpu*> of(const void* address, std::size_t ports);
  void give_up(std::size_t port, std::vector<OwnRegion>& all);

 private:
  std::mutex mutex_;  // guards all_
  // By device. One that failed, perhaps because its memory was full, is tried again for the next region.
  std::map<int, std::unique_ptr<Gpu>> all_;
};

// Where the address lies if this process uses the CUDA driver and the driver knows the address.
std::optional<MemoryPlace> place_of_gpu_memory(const void* address);

// What a peer's NIC needs to access a region through one port of its owner.
struct Key {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  Word word;  // for GPU memory: what to read after a write, to flush it
};
inline constexpr std::size_t kMaxKeyBytes = 24;
struct RenewedKey {
  std::uint64_t region = 0;  // handle_of() its id, at its owner
  Key key;
};
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

// A region's registrations, one for each port that accepted it. Owner: the worker, once find() returns it.
struct Registration {
  struct AtPort {
    std::size_t port = 0;
    OwnRegion region, for_reads;  // for_reads null: use `region`
  };
  Region memory;
  bool writable = true;  // by the NIC, as the local memory of reads
  Gpu* gpu = nullptr;    // of its memory, which the CPU cannot access; null: host memory
  // One bit per port: that has it; that had it and was removed; that was missing when it was registered.
  std::uint32_t ports = 0, lost = 0, missed = 0;
  [[nodiscard]] bool is_at(std::size_t port) const { return (ports >> port & 1) != 0; }
  std::array<std::uint32_t, kMaxPorts> lkeys{};
  std::array<std::uint32_t, kMaxPorts> read_lkeys{};  // for the local memory of reads
  std::vector<AtPort> regions;
  Refusals refused;
  std::string how;                                   // for people: how it was registered, where there was a choice
  std::vector<std::pair<std::size_t, Key>> renewed;  // of recovered ports: keys that replace those in the description
  // Ends all access. Not ok: a NIC's driver refused, and what it has is kept. Any thread, once it was taken.
  Status end(std::span<const std::unique_ptr<Port>> of);
};

// A region that is being registered with one port.
struct Placing {
  std::uint64_t handle = 0;
  Region memory;
  Gpu* gpu = nullptr;
  bool had = false;  // the port had it before it was removed, so it must get it again
  // The result of place().
  OwnRegion region, for_reads;  // for_reads null: use `region`
  bool writable = true;
  std::string how;  // for people: how it was registered, where there was a choice
  Word word;
  Status status;
};
// Registers it with a port that the caller holds or owns. Any thread.
void place(const Port& port, Placing& placing);

// From this size on, pinning or unpinning pages takes longer than handing it to another thread.
inline constexpr std::uint64_t kManyPages = std::uint64_t{16} << 20;

// The registrations by their region's slot. add() runs on any thread; find() and take() on the worker. A slot is reused
// only after take(), by the contract.
class Registrations {
 public:
  explicit Registrations(std::uint32_t capacity) : slots_(capacity) {}
  ~Registrations();

  // Registers the memory with each port that is present, in parallel if it is large; keys are in the order of ports.
  // Fails if no port accepts it and none is missing.
  Result<RegisteredMemory> add(std::span<const std::unique_ptr<Port>> ports, const Region& memory, Executor& executor);
  [[nodiscard]] const Registration* find(std::uint64_t handle) const { return at(handle); }  // null: not registered
  std::unique_ptr<Registration> take(std::uint64_t handle);
  // Removes and returns all that is registered with a port that nobody holds any more; the caller destroys it.
  std::vector<OwnRegion> give_up(const Port& port);
  // The same for the words of GPUs that place() registered with a port which does not come into use.
  std::vector<OwnRegion> give_up_words(std::size_t port);
  // The regions that a port which was missing does not have yet; and a count of regions added while a port was missing.
  [[nodiscard]] std::vector<Placing> missing_at(std::size_t port) const;
  [[nodiscard]] std::uint64_t added_without() const { return added_without_.load(std::memory_order_acquire); }
  // Takes over the result of place() and returns the new key for peers. Nothing: place() failed, or the region was
  // deregistered.
  std::optional<Key> settle(std::size_t port, Placing& placing);
  // The keys of that port that differ from those of add().
  [[nodiscard]] std::vector<RenewedKey> renewed_at(std::size_t port) const;

 private:
  Registration* at(std::uint64_t handle) const {
    const RegionId id = region_of(handle);
    if (id.slot >= slots_.size()) return nullptr;
    Registration* found = slots_[id.slot].load(std::memory_order_acquire);
    return found != nullptr && found->memory.id == id ? found : nullptr;
  }

  Gpus gpus_;                                      // outlive the regions in them
  std::vector<std::atomic<Registration*>> slots_;  // owns what is in it
  std::atomic<std::uint64_t> added_without_{0};
};

}  // namespace fairway::transport::verbs
