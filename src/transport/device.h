#pragma once

#include <cstdint>
#include <string>

// The devices of a transport and their capabilities. Values.
namespace fairway::transport {

using Bits = std::uint8_t;
using DeviceIndex = std::uint16_t;
inline constexpr std::uint32_t kMessageBytes = 8 * 1024 + 256;  // of one message: 8 KiB and the engine's header

enum class Op : Bits { write = 1, read = 2, message = 4, fetch_add = 8, compare_swap = 16, write_immediate = 32 };
enum class Shape : Bits { contiguous = 1, strided = 2, indexed = 4 };
enum class CompletionLevel : Bits { handed_off, delivered, visible };  // of a `done` event, at the target
enum class Revocation : Bits { by_owner, by_owner_and_peers };         // by_owner: deregister() alone stops all access

struct Capabilities {
  Bits operations = 0;  // of Op, native
  Bits shapes = static_cast<Bits>(Shape::contiguous);
  Bits memory_kinds = 1;              // bit per MemoryKind, both ends
  Bits immediate_kinds = 0xff;        // bit per target MemoryKind in which a write is visible before its immediate
  Bits device_initiated = 0;          // of DeviceInitiated (gpu_access.h): how kernels reach a peer by themselves
  std::uint64_t max_slice_bytes = 0;  // of write and read
  std::uint64_t piece_bytes = std::uint64_t{1} << 20;  // larger transfers are cut into pieces of tens of
  std::uint32_t piece_blocks = 1024;                   // microseconds, since a fence or cancel waits for one piece
  std::uint32_t max_message_bytes = 0;
  std::uint32_t queue_depth = 0;  // slices that a link may have in flight
  // Messages and immediates arrive in the order of posting; if the link breaks, a prefix of them has arrived. If the
  // target refuses the bytes of an immediate, the slice fails or the link breaks: no later one may arrive instead.
  bool ordered = false;
  CompletionLevel completion = CompletionLevel::delivered;
  Revocation revocation = Revocation::by_owner;
  bool atomics_by_cpu = false;  // native atomics are atomic against the target's CPU
  bool stream_ordered = false;  // takes Slice::start_after
  bool tells_revoked = true;    // a slice to a deregistered region fails; else its link breaks
  bool needs_keys = false;      // peers reach a region by its keys; register_memory() may refuse
  bool shares_fence = false;    // the device's links are one fence domain: see Transport::fence()
  bool operator==(const Capabilities&) const = default;
};

// What moves the bytes: the CPU, the kernel's sockets, the NIC named by the device, or a GPU.
enum class MovedBy : Bits { cpu, sockets, nic, gpu };

struct Device {                        // a NIC port, an interface of sockets, the paths of a machine's GPUs
  std::string name;                    // "loopback", "eth0", "mlx5_0/1"
  std::uint64_t bytes_per_second = 0;  // 0: unknown
  int numa_node = -1;
  Capabilities capabilities;
  MovedBy moved_by = MovedBy::cpu;
};

}  // namespace fairway::transport
