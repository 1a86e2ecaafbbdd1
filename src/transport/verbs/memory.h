#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/runtime.h"
#include "transport/handles.h"
#include "transport/memory.h"
#include "transport/verbs/gpu.h"
#include "transport/verbs/port.h"

namespace fairway::transport::verbs {

// What a peer's NIC needs to know of a region, for one port of its owner.
struct Key {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  Word word;  // of memory of a GPU: what to read after writing there
};
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

// A region's registrations, one for each port that took it. The worker's, once it can be found.
struct Registration {
  struct AtPort {
    std::size_t port = 0;
    const Library* library = nullptr;
    abi::MemoryRegion* region = nullptr;
  };
  std::uint32_t generation = 0;
  std::uint64_t size_bytes = 0;
  bool writable = true;      // by the NIC, as a read's local memory
  const Gpu* gpu = nullptr;  // whose memory it is: no CPU reaches it
  std::uint32_t ports = 0;   // a bit for each that took it
  [[nodiscard]] bool is_at(std::size_t port) const { return (ports >> port & 1) != 0; }
  std::array<std::uint32_t, kMaxPorts> lkeys{};
  std::array<std::uint32_t, kMaxPorts> read_lkeys{};  // where what is read goes to
  std::vector<AtPort> regions;
  ~Registration();  // ends all access by any NIC
};

// From so many bytes on what pins or unpins a region's pages takes longer than handing it to another thread.
inline constexpr std::uint64_t kManyPages = std::uint64_t{16} << 20;

// The registrations by their region's slot. add() on any thread; find() and take() are the worker's. A slot gets a
// new one only after its last was taken, as the contract has it.
class Registrations {
 public:
  explicit Registrations(std::uint32_t capacity) : slots_(capacity) {}
  ~Registrations();

  // Registers the memory at each port, at all of them at once where there is much of it; the keys are in their order.
  // Refused where no port takes it.
  Result<RegisteredMemory> add(std::span<const std::unique_ptr<Port>> ports, const MemoryDescription& memory,
                               Executor& executor);
  [[nodiscard]] const Registration* find(std::uint64_t handle) const;  // null: not registered
  // The end of what is given ends all access.
  std::unique_ptr<Registration> take(std::uint64_t handle);
  // What is registered at a port that nobody holds any more: none of it is from now on, and the caller ends it.
  std::vector<abi::MemoryRegion*> give_up(const Port& port);

 private:
  Gpus gpus_;                                      // outlive the regions in them
  std::vector<std::atomic<Registration*>> slots_;  // owns what is in it
};

}  // namespace fairway::transport::verbs
