#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/handles.h"
#include "transport/memory.h"
#include "transport/verbs/port.h"

namespace fairway::transport::verbs {

// What a peer's NIC needs to know of a region, for one port of its owner.
struct Key {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};
inline constexpr std::size_t kKeyBytes = 12;
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

// A region's registrations, one for each port. Immutable.
struct Registration {
  std::uint32_t generation = 0;
  bool writable = true;  // by the NIC, as a read's local memory
  std::array<std::uint32_t, kMaxPorts> lkeys{};
  std::vector<std::pair<const Library*, abi::MemoryRegion*>> regions;
  ~Registration();  // ends all access by any NIC
};

// The registrations by their region's slot. add() on any thread; find() and remove() are the worker's. A slot gets a
// new one only after its last was removed, as the contract has it.
class Registrations {
 public:
  explicit Registrations(std::uint32_t capacity) : slots_(capacity) {}
  ~Registrations();

  // Registers the memory at each port; the keys are in their order.
  Result<RegisteredMemory> add(std::span<const std::unique_ptr<Port>> ports, const MemoryDescription& memory);
  [[nodiscard]] const Registration* find(std::uint64_t handle) const;  // null: not registered
  void remove(std::uint64_t handle);

 private:
  std::vector<std::atomic<Registration*>> slots_;  // owns what is in it
};

}  // namespace fairway::transport::verbs
