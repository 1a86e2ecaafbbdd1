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
// The contract between the engine and what moves bytes. An instance belongs to one worker and is called from that
// worker's thread, except where "any thread" is said. It decides nothing about routes. docs/decisions/ says why.
namespace fairway::transport {

class GpuAccess;  // transport/gpu_access.h
using KeyBytes = std::vector<std::byte>;
using PeerIndex = std::uint32_t;   // the worker's number of a session; not reused while the transport knows it
using SliceToken = std::uint32_t;  // the engine's number of a posted slice, given back in its one event

// A way to a peer, for one epoch: a link that broke and came back has its slot and a higher epoch. Epoch 0: none.
struct LinkId {
  std::uint32_t slot = 0, epoch = 0;
  bool operator==(const LinkId&) const = default;
};
enum class Role : Bits { initiator, acceptor };         // of the connection, not of transfers
enum class Reach : Bits { yes, pinning, opening, no };  // pinning: yes, slowly; as with opening, the task is woken

struct MemoryDescription {
  RegionId id;
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
  int memory_fd = -1;  // of the pages behind host memory (memfd), borrowed for the call; -1: private, or not known
  std::uint64_t memory_offset = 0;  // of `address` in that file
};
struct RegisteredMemory {
  std::uint64_t handle = 0;
  std::vector<KeyBytes> keys;  // for peers, by device; an empty one: not with that device. None: no need
  std::string how = {};        // for people, where there was a choice
  std::vector<std::pair<DeviceIndex, Status>> refused = {};  // by devices, where others took it
};
struct RemoteMemory {  // a peer's own facts: authenticated, not trusted for bounds
  RegionId id;
  std::uint64_t size_bytes = 0;
  Access access = Access::none;
};

struct Slice {
  Op op = Op::write;
  Shape shape = Shape::contiguous;
  bool more = false, may_coalesce = false;  // another of this link follows at once; a message that may wait for others
  SliceToken token = 0;
  LinkId link;
  std::byte* local = nullptr;  // of a message: its bytes, free again once post() took it
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
  link_down,     // link, status: slices in flight are undecided until fence(). protocol_error: words that the peer was
                 // told were done may be lost. Without a link: peer, status: connect() failed
  retry_failed,  // link of the epoch that ended, status: a try of reconnect() failed
  fenced,        // link; value: immediates received in that epoch; status not ok: not fenced
  deregistered,  // value: the handle; status not ok: not fenced
  invalidated    // value: a view's number, status: why it is to be given back
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
  std::atomic<std::uint64_t> system_calls{0}, copied_bytes{0};  // copies beside the one of the kernel or the device
};
inline constexpr int kPollsForAll = 64;  // of poll(): after so many none holds anything back
inline constexpr Time kPollAgain = 0;    // of next_timer()

class Transport {
 public:
  virtual ~Transport() = default;                               // after close()
  const std::string& name() const { return name_; }             // any thread, as the next two
  std::span<const Device> devices() const { return devices_; }  // fixed once it is open
  const Counters& counters() const { return counters_; }

  // Before connect(): the task whose step polls; it outlives this. To wake it, and to watch descriptors by.
  virtual Status attach(Task& task) = 0;
  virtual Status connect(PeerIndex peer, Role role) = 0;  // on both sides -> link_up for each link, or link_down
  virtual void exchange(PeerIndex peer, std::span<const std::byte> bytes) = 0;  // from the peer, maybe hostile
  virtual void disconnect(PeerIndex peer) = 0;  // ends all slices by events, then the peer is forgotten

  virtual Result<RegisteredMemory> register_memory(const MemoryDescription& memory) = 0;  // any thread; may be slow
  virtual void deregister(std::uint64_t handle) = 0;  // -> deregistered: no byte lands in it or is read any more
  virtual Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) = 0;
  virtual void release(std::uint64_t remote_handle) = 0;
  // Whether the link's devices move between these memories; epoch 0: any link's. `path`: by which way, or why not.
  virtual Reach reach(LinkId /*link*/, std::uint64_t /*local_handle*/, std::uint64_t /*remote_handle*/,
                      std::string* /*path*/) {
    return Reach::yes;
  }
  virtual Status flush(std::uint64_t) { return {}; }  // makes what was `delivered` in that memory visible to its owner
  virtual GpuAccess* gpu() { return nullptr; }        // null: it has nothing to do with GPUs; any thread

  // Starts slices of any links in order; returns how many were taken: fewer when full, or a link is down. A taken one
  // has exactly one event. Rings each doorbell once.
  virtual std::size_t post(std::span<const Slice> slices) = 0;
  virtual void cancel(SliceToken token) = 0;  // a hint: end this slice soon, by its event
  virtual std::size_t poll(std::span<Event> events, Time now) = 0;
  virtual Time next_timer() const { return kNever; }  // poll by then even if nothing wakes; kPollAgain: nothing can
  virtual bool prepare_sleep() { return true; }       // arms the wake-up; false: poll first

  // Ends the link's epoch -> failed for each slice, fenced: nothing of the epoch touches this side's memory any more.
  // With Capabilities::shares_fence the epochs of all the device's links that are up by then end with it, by link_down.
  virtual void fence(LinkId link) = 0;
  virtual void reconnect(LinkId link) = 0;  // tries a fenced link again -> link_up with a higher epoch, or retry_failed
  // The peer closed the epoch of that name, which has not been up here. True: it will not be. False: it will.
  virtual bool forgo(PeerIndex, std::uint64_t) { return false; }
  virtual void close() = 0;  // disconnects all; nothing touches any region afterwards

 protected:
  explicit Transport(std::string name) : name_(std::move(name)) {}
  const std::string name_;
  std::vector<Device> devices_;
  Counters counters_;
};

}  // namespace fairway::transport
