#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime.h"
#include "transport/handles.h"
#include "transport/transport.h"
#include "transport/verbs/gpu.h"
#include "transport/verbs/port.h"

namespace fairway::transport::verbs {

// What a peer's NIC needs to know of a region, for one port of its owner.
struct Key {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  Word word;  // of memory of a GPU: what to read after writing there
};
inline constexpr std::size_t kMaxKeyBytes = 24;
struct RenewedKey {
  std::uint64_t region = 0;  // handle_of() its id, at its owner
  Key key;
};
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

// A region's registrations, one for each port that took it. The worker's, once it can be found.
struct Registration {
  struct AtPort {
    std::size_t port = 0;
    OwnRegion region, for_reads;  // null: the same
  };
  MemoryDescription memory;  // without its files
  bool writable = true;      // by the NIC, as a read's local memory
  Gpu* gpu = nullptr;        // whose memory it is: no CPU reaches it
  // A bit for each port that took it; that had it and went; that was gone when it was registered.
  std::uint32_t ports = 0, lost = 0, missed = 0;
  [[nodiscard]] bool is_at(std::size_t port) const { return (ports >> port & 1) != 0; }
  std::array<std::uint32_t, kMaxPorts> lkeys{};
  std::array<std::uint32_t, kMaxPorts> read_lkeys{};  // where what is read goes to
  std::vector<AtPort> regions;
  std::vector<std::pair<std::size_t, Key>> renewed;  // of ports that came back: not the keys that peers were told first
};

// A region on its way to one more port.
struct Placing {
  std::uint64_t handle = 0;
  MemoryDescription memory;
  Gpu* gpu = nullptr;
  bool had = false;  // the port, before it went: without this region it is of no use
  // What place() made of it.
  OwnRegion region, for_reads;  // null: the same
  bool writable = true;
  std::string how;  // where there was a choice
  Word word;
  Status status;
};
// Registers it at a port that the caller holds, or has alone. Any thread.
void place(const Port& port, Placing& placing);

// From so many bytes on what pins or unpins a region's pages takes longer than handing it to another thread.
inline constexpr std::uint64_t kManyPages = std::uint64_t{16} << 20;

// The registrations by their region's slot. add() on any thread; find() and take() are the worker's. A slot gets a
// new one only after its last was taken, as the contract has it.
class Registrations {
 public:
  explicit Registrations(std::uint32_t capacity) : slots_(capacity) {}
  ~Registrations();

  // Registers the memory at each port that is there, at all of them at once where there is much of it; the keys are in
  // their order. Refused where no port takes it, and none is gone.
  Result<RegisteredMemory> add(std::span<const std::unique_ptr<Port>> ports, const MemoryDescription& memory,
                               Executor& executor);
  [[nodiscard]] const Registration* find(std::uint64_t handle) const;  // null: not registered
  // The end of what is given ends all access.
  std::unique_ptr<Registration> take(std::uint64_t handle);
  // What is registered at a port that nobody holds any more: none of it is from now on, and its end is the caller's.
  std::vector<OwnRegion> give_up(const Port& port);
  // What that port, which was gone, has not yet; and a count that grows when something was added without a port.
  [[nodiscard]] std::vector<Placing> missing_at(std::size_t port) const;
  [[nodiscard]] std::uint64_t added_without() const { return added_without_.load(std::memory_order_acquire); }
  // It is registered there, and the key is peers' from now on; nothing: place() was refused, or the region has ended.
  std::optional<Key> settle(std::size_t port, Placing& placing);
  // Whatever peers have to be told of that port, besides what add() gave.
  [[nodiscard]] std::vector<RenewedKey> renewed_at(std::size_t port) const;

 private:
  Registration* at(std::uint64_t handle) const;

  Gpus gpus_;                                      // outlive the regions in them
  std::vector<std::atomic<Registration*>> slots_;  // owns what is in it
  std::atomic<std::uint64_t> added_without_{0};
};

}  // namespace fairway::transport::verbs
