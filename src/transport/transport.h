#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "core/time.h"
#include "transport/device.h"

namespace fairway {
class Task;  // core/runtime.h
}
// The contract between the engine and what moves bytes. An instance belongs to one worker and is called on its thread,
// except where a comment says "any thread". It does not choose routes. Reasons are in docs/decisions/.
namespace fairway::transport {

class GpuAccess;  // transport/gpu_access.h
using KeyBytes = std::vector<std::byte>;
using PeerIndex = std::uint32_t;   // the worker's number of a session; not reused while the transport has the peer
using SliceToken = std::uint32_t;  // the engine's number of a posted slice, given back in its one event

// A connection to a peer, for one epoch: after a reconnect the slot is the same and the epoch higher. Epoch 0: none.
struct LinkId {
  std::uint32_t slot = 0, epoch = 0;
  bool operator==(const LinkId&) const = default;
};
enum class Role : Bits { initiator, acceptor };         // of the connection, not of transfers
enum class Reach : Bits { yes, pinning, opening, no };  // pinning: yes, still slow; then and at opening: wakes the task

struct MemoryDescription {
  RegionId id;
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
  int memory_fd = -1;  // of the pages behind host memory (memfd), borrowed for the call; -1: private or unknown
  std::uint64_t memory_offset = 0;  // of `address` in that file
};
struct RegisteredMemory {
  std::uint64_t handle = 0;
  std::vector<KeyBytes> keys;  // for peers, by device; empty key: not registered with that device. No keys: none needed
  std::string how = {};        // for people: how it was registered, where there was a choice
  std::vector<std::pair<DeviceIndex, Status>> refused = {};  // devices that refused it while others accepted
};
struct RemoteMemory {  // as the peer stated it: authenticated, but its bounds are not trusted
  RegionId id;
  std::uint64_t size_bytes = 0;
  Access access = Access::none;
};

struct Slice {
  Op op = Op::write;
  Shape shape = Shape::contiguous;
  bool more = false, may_coalesce = false;  // another slice of this link follows at once; a message may wait for others
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
  fenced,        // link; value: immediates received in that epoch; status not ok: not fenced
  deregistered,  // value: the handle; status not ok: not fenced
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
struct Counters {                                               // any thread reads them
  std::atomic<std::uint64_t> system_calls{0}, copied_bytes{0};  // bytes copied besides the kernel's or device's copy
};
inline constexpr int kPollsForAll = 64;  // after so many calls of poll() no transport holds anything back
inline constexpr Time kPollAgain = 0;    // of next_timer()

class Transport {
 public:
  virtual ~Transport() = default;                               // after close()
  const std::string& name() const { return name_; }             // any thread, like the next two
  std::span<const Device> devices() const { return devices_; }  // fixed once it is open
  const Counters& counters() const { return counters_; }

  // Call before connect(). `task` polls this transport in its step and outlives it; the transport wakes it and watches
  // descriptors with it.
  virtual Status attach(Task& task) = 0;
  virtual Status connect(PeerIndex peer, Role role) = 0;  // on both sides -> link_up for each link, or link_down
  virtual void exchange(PeerIndex peer, std::span<const std::byte> bytes) = 0;  // from the peer, which may be hostile
  virtual void disconnect(PeerIndex peer) = 0;  // ends all slices by events, then forgets the peer

  virtual Result<RegisteredMemory> register_memory(const MemoryDescription& memory) = 0;  // any thread; may be slow
  virtual void deregister(std::uint64_t handle) = 0;  // -> deregistered: nothing reads or writes the memory any more
  virtual Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) = 0;
  virtual void release(std::uint64_t remote_handle) = 0;
  // Whether the link's devices move bytes between these memories; epoch 0: of any link. `path`: the path description,
  // or why not.
  virtual Reach reach(LinkId /*link*/, std::uint64_t /*local_handle*/, std::uint64_t /*remote_handle*/,
                      std::string* /*path*/) {
    return Reach::yes;
  }
  virtual Status flush(std::uint64_t) { return {}; }  // makes bytes `delivered` to that memory visible to its owner
  virtual GpuAccess* gpu() { return nullptr; }        // null: no GPU support; any thread

  // Starts slices of any links, in order. Returns how many it accepted: fewer when a queue is full or a link is down.
  // An accepted slice gets exactly one event. Rings each doorbell once. After events from poll() there may be room.
  virtual std::size_t post(std::span<const Slice> slices) = 0;
  virtual void cancel(SliceToken token) = 0;  // a hint: end this slice soon; it still gets its event
  virtual std::size_t poll(std::span<Event> events, Time now) = 0;
  virtual Time next_timer() const { return kNever; }  // poll by then, even without a wake-up; kPollAgain: at once
  virtual bool prepare_sleep() { return true; }       // arms the wake-up; false: poll first

  // Ends the link's epoch -> failed for each slice, then fenced: nothing of the epoch touches this side's memory any
  // more. With Capabilities::shares_fence the device's other links that are up go down with it -> link_down.
  virtual void fence(LinkId link) = 0;
  virtual void reconnect(LinkId link) = 0;  // tries a fenced link again -> link_up with a higher epoch, or retry_failed
  // The peer closed the epoch of that name, which was not up here yet. True: it never will be. False: it still will.
  virtual bool forgo(PeerIndex, std::uint64_t) { return false; }
  virtual void close() = 0;  // disconnects all; nothing touches any region afterwards

 protected:
  explicit Transport(std::string name) : name_(std::move(name)) {}
  const std::string name_;
  std::vector<Device> devices_;
  Counters counters_;
};

}  // namespace fairway::transport
