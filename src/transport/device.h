#pragma once

#include <cstdint>
#include <string>

// What a transport says of its devices and of what they can do. Values.
namespace fairway::transport {

using DeviceIndex = std::uint16_t;

// write_immediate: a write whose target sees an `immediate` event after its bytes.
enum class Op : std::uint8_t {
  write = 1,
  read = 2,
  message = 4,
  fetch_add = 8,
  compare_swap = 16,
  write_immediate = 32
};
// What a transport of ours carries in one message: 8 KiB and the engine's header before it.
inline constexpr std::uint32_t kMessageBytes = 8 * 1024 + 256;

enum class Shape : std::uint8_t { contiguous = 1, strided = 2, indexed = 4 };
enum class Meaning : std::uint8_t { handed_off, delivered, visible };   // of a `done` event, at the target
enum class Revocation : std::uint8_t { by_owner, by_owner_and_peers };  // by_owner: deregister() alone stops all access

struct Capabilities {
  std::uint8_t operations = 0;  // of Op, native
  std::uint8_t shapes = static_cast<std::uint8_t>(Shape::contiguous);
  std::uint8_t memory_kinds = 1;        // bit per MemoryKind, both ends
  std::uint8_t immediate_kinds = 0xff;  // of the target's: those in which a write's bytes are visible at its immediate
  std::uint64_t max_slice_bytes = 0;    // of write and read
  // What one slice of a larger transfer should move: a fence or a cancel waits for no more than one of them, so some
  // tens of microseconds' worth, and as many blocks at most.
  std::uint64_t piece_bytes = std::uint64_t{1} << 20;
  std::uint32_t piece_blocks = 1024;
  std::uint32_t max_message_bytes = 0;
  std::uint32_t queue_depth = 0;  // slices a link may have in flight
  // Messages and immediates arrive in the order of posting; of a broken link, the first so many. An immediate whose
  // bytes the target refuses breaks the link: its initiator might not learn of the gap before another break.
  bool ordered = false;
  Meaning completion = Meaning::delivered;
  Revocation revocation = Revocation::by_owner;
  bool atomics_by_cpu = false;  // native atomics are atomic against the target's CPU
  bool stream_ordered = false;  // takes Slice::start_after
  // What goes to a region that has ended says `revoked`; else it ends its link, undecided until the fence.
  bool tells_revoked = true;
  bool needs_keys = false;  // peers reach a region by its keys alone; register_memory() may refuse one
  bool operator==(const Capabilities&) const = default;
};

// Whose work the copies of a device's links are, so what a machine's model can say of their rate.
enum class MovedBy : std::uint8_t {
  cpu,      // of this host: nothing
  sockets,  // the kernel, through the port of that name: no more than the port carries
  nic,      // by RDMA, through the port of that name
  gpu,      // copy engines and kernels
};

struct Device {                        // a NIC port, a bond leg, an NVLink path, a socket interface
  std::string name;                    // "loopback", "eth0", "mlx5_0/1"
  std::uint64_t bytes_per_second = 0;  // 0: unknown
  int numa_node = -1;
  Capabilities capabilities;
  MovedBy moved_by = MovedBy::cpu;
};

}  // namespace fairway::transport
