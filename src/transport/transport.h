#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "core/counters.h"
#include "core/runtime.h"

// The contract between the engine and what moves bytes. An instance belongs to one worker and is called on its thread,
// except where a comment says "any thread". It does not choose routes. Reasons are in docs/decisions/.
namespace fairway::transport {

class GpuAccess;  // transport/gpu_access.h
using Bits = std::uint8_t;
using DeviceIndex = std::uint16_t;
using PeerIndex = std::uint32_t;   // the worker's number of a session; not reused while the transport has the peer
using SliceToken = std::uint32_t;  // the engine's number of a posted slice, given back in its one event
using KeyBytes = std::vector<std::byte>;
inline constexpr std::uint32_t kMessageBytes = 8 * 1024 + 256;  // of one message: 8 KiB and the engine's header
inline constexpr int kPollsForAll = 64;  // after so many calls of poll() no transport holds anything back
inline constexpr Time kPollAgain = 0;    // of next_timer()

enum class Op : Bits { write = 1, read = 2, message = 4, fetch_add = 8, compare_swap = 16, write_immediate = 32 };
enum class Shape : Bits { contiguous = 1, strided = 2, indexed = 4 };
enum class MovedBy : Bits { cpu, sockets, nic, gpu };   // nic: the one that the device names
enum class Role : Bits { initiator, acceptor };         // of the connection, not of transfers
enum class Reach : Bits { yes, pinning, opening, no };  // pinning: yes, still slow; then and at opening: wakes the task

struct Capabilities {
  Bits operations = 0;  // of Op, native; atomics only if they are atomic against the target's CPU
  Bits shapes = static_cast<Bits>(Shape::contiguous);
  Bits memory_kinds = 0b11;     // bit per MemoryKind, both ends; at first: host and pinned
  Bits immediate_kinds = 0xff;  // bit per target MemoryKind in which a write is visible before its immediate
  std::uint64_t max_slice_bytes = std::uint64_t{1} << 20;  // of write and read: tens of microseconds, since a fence or
  std::uint32_t max_slice_blocks = 1024;                   // cancel waits for one slice
  std::uint32_t max_message_bytes = kMessageBytes;
  std::uint32_t queue_depth = 0;  // slices that a link may have in flight
  // Messages and immediates arrive in the order of posting; if the link breaks, a prefix of them has arrived. If the
  // target refuses the bytes of an immediate, the slice fails or the link breaks: no later one may arrive instead.
  bool ordered = false;
  bool visible_when_done = false;  // to whom the memory belongs; else only delivered to it
  bool needs_keys = false;         // peers reach a region by its keys; register_memory() may refuse
  bool operator==(const Capabilities&) const = default;
};

struct Device {                        // a NIC port, an interface of sockets, the paths of a machine's GPUs
  std::string name;                    // "loopback", "eth0", "mlx5_0/1"
  std::uint64_t bytes_per_second = 0;  // 0: unknown
  Capabilities capabilities;
  MovedBy moved_by = MovedBy::cpu;
};

// A connection to a peer, for one epoch: after a reconnect the slot is the same and the epoch higher. Epoch 0: none.
struct LinkId {
  std::uint32_t slot = 0, epoch = 0;
  bool operator==(const LinkId&) const = default;
};
struct RegisteredMemory {
  std::uint64_t handle = 0;
  std::vector<KeyBytes> keys;  // for peers, by device; empty key: not registered with that device. No keys: none needed
};
using RemoteMemory = Region;  // no address; as the peer stated it: authenticated, but its bounds are not trusted

struct Slice {
  Op op = Op::write;
  Shape shape = Shape::contiguous;
  bool may_coalesce = false;  // a message: may wait for others to share a frame with
  SliceToken token = 0;
  LinkId link;
  std::byte* local = nullptr;  // of a message: its bytes, copied by post()
  std::uint64_t local_handle = 0, remote_handle = 0, remote_offset = 0, length = 0;  // length: of one block
  std::uint32_t immediate = 0, count = 1;                                            // blocks
  std::uint64_t local_stride = 0, remote_stride = 0;  // strided: bytes; indexed: block i lies at index[i] * stride
  const std::uint64_t *local_index = nullptr, *remote_index = nullptr;
  std::uint64_t operand = 0, expected = 0;  // of atomics
  void* start_after = nullptr;              // a stream's event
};

enum class EventKind : Bits {
  done,          // token; value: an atomic's old value
  failed,        // token, status (effect() says what is known); this side's memory is no longer touched
  immediate,     // link, value
  message,       // link, bytes (valid until the next poll)
  exchange,      // peer, bytes: for the peer's transport of this name, in order
  link_up,       // link, peer, device; value: the epoch's name, equal at both ends, unique in the session
  link_down,     // link, status: slices in flight are undecided until fence(). protocol_error: messages that were
                 // acknowledged to the peer may be lost. Without a link: peer, status: connect() failed
  retry_failed,  // link of the last epoch, status: an attempt to reconnect failed
  fenced,  // link: its epoch does not touch this side's memory any more, if status is ok; value: immediates received
  deregistered,  // value: the handle; status not ok: not fenced, and deregister() may be asked again
  invalidated    // value: a view's number, status: why it must be given back
};
struct Event {
  EventKind kind = EventKind::done;
  DeviceIndex device = 0;
  SliceToken token = 0;
  PeerIndex peer = 0;
  LinkId link;
  std::uint64_t value = 0;
  std::span<const std::byte> bytes;
  Status status;
};

class Transport {
 public:
  virtual ~Transport() = default;                               // after close()
  const std::string& name() const { return name_; }             // any thread, like the next two
  std::span<const Device> devices() const { return devices_; }  // fixed once it is open
  const CostCounters& counters() const { return counters_; }
  virtual GpuAccess* gpu() { return nullptr; }  // null: no GPU support; any thread

  virtual Status attach(Task& task) = 0;                  // first; `task` polls this transport and outlives it
  virtual Status connect(PeerIndex peer, Role role) = 0;  // on both sides -> link_up for each link, or link_down
  virtual void exchange(PeerIndex peer, std::span<const std::byte> bytes) = 0;  // from the peer, which may be hostile
  virtual void disconnect(PeerIndex peer) = 0;            // ends all slices by events, then forgets the peer
  virtual bool leaves(PeerIndex) const { return false; }  // after that: what the peer has written may come as events

  // Any thread; may be slow. `source`: the file behind the memory; its kind is the region's.
  virtual Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) = 0;
  virtual void deregister(std::uint64_t handle) = 0;  // -> deregistered: nothing reads or writes the memory any more
  virtual Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) = 0;
  virtual void release(std::uint64_t remote_handle) = 0;
  // Whether the link moves bytes between these memories; epoch 0: any link. `path` may be null: the path or why not.
  virtual Reach reach(LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) = 0;

  // Starts slices of any links, in order. Returns how many it accepted: fewer when a queue is full or a link is down.
  // An accepted slice gets exactly one event. Rings each doorbell once. After events from poll() there may be room.
  virtual std::size_t post(std::span<const Slice> slices) = 0;
  virtual void cancel(SliceToken token) = 0;  // a hint: end this slice soon; it still gets its event
  virtual std::size_t poll(std::span<Event> events, Time now) = 0;
  virtual Time next_timer() const { return kNever; }  // poll by then, even without a wake-up; kPollAgain: at once
  virtual bool prepare_sleep() { return true; }       // arms the wake-up; false: poll first

  virtual void fence(LinkId link) = 0;      // -> failed for each slice, then fenced; may take other links down with it
  virtual void reconnect(LinkId link) = 0;  // tries a fenced link again -> link_up with a higher epoch, or retry_failed
  virtual void close() = 0;                 // disconnects all; nothing touches any region once untouched() is ok
  // After close(), one thread at a time: not_fenced, and by what, while a peer may still touch memory of this side.
  virtual Status untouched() { return {}; }

 protected:
  explicit Transport(std::string name) : name_(std::move(name)) {}
  const std::string name_;
  std::vector<Device> devices_;
  CostCounters counters_;
};

}  // namespace fairway::transport
