#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "core/time.h"
#include "transport/device.h"
#include "transport/memory.h"

// The contract between the engine and every way to move bytes. One instance belongs to one worker and is called from
// that worker's thread alone, except where "any thread" is said. A transport decides nothing about routes.
namespace fairway {
class Task;  // core/runtime.h
}

namespace fairway::transport {

class GpuAccess;  // transport/gpu_access.h

using PeerIndex = std::uint32_t;   // the worker's own number of a peer session; not reused while the transport knows it
using SliceToken = std::uint32_t;  // the engine's own number of a posted slice, given back in its one event

// One usable way to one peer, for one epoch: a link that broke and came back has the same slot and a higher epoch.
struct LinkId {
  std::uint32_t slot = 0;
  std::uint32_t epoch = 0;  // 0: no link
  bool operator==(const LinkId&) const = default;
};

enum class Role : std::uint8_t { initiator, acceptor };  // of the connection, not of transfers

struct Slice {
  Op op = Op::write;
  Shape shape = Shape::contiguous;
  bool more = false;     // another slice of this link follows in the batch
  bool patient = false;  // a message that may wait until the next poll for others to go with
  SliceToken token = 0;
  LinkId link;
  std::byte* local = nullptr;  // source or destination; of a message, its bytes, free again once post() took it
  std::uint64_t local_handle = 0;
  std::uint64_t remote_handle = 0, remote_offset = 0;
  std::uint64_t length = 0;  // of one block
  std::uint32_t immediate = 0;
  std::uint32_t count = 1;                            // blocks, for strided and indexed
  std::uint64_t local_stride = 0, remote_stride = 0;  // strided: bytes; indexed: unit of the indices
  // Indexed: block i lies index[i] * stride from `local`, and from remote_offset.
  const std::uint64_t *local_index = nullptr, *remote_index = nullptr;
  std::uint64_t operand = 0, expected = 0;  // atomics
  void* start_after = nullptr;              // a stream's event; with Capabilities::stream_ordered
};

enum class EventKind : std::uint8_t {
  done,       // token: the slice completed as Capabilities::completion says; value: an atomic's old value
  failed,     // token, status (effect() says what is known). Its memory is no longer touched by this side
  immediate,  // link, value
  message,    // link, bytes (valid until the next poll)
  exchange,   // peer, bytes: to be carried to the peer's transport of the same name and worker, in order
  link_up,    // link, peer, device; value: a name of this link and epoch that both ends agree on, unique in the session
  link_down,  // link, status: no further slice is taken, those in flight stay undecided until fence(). Without a link:
              // peer, status: connect() failed. protocol_error: what came makes no sense, and messages or immediates
              // that the peer was told were done may be lost with it; anything else: none of these is
  retry_failed,  // link, of the epoch that ended; status: a try of reconnect() came to nothing
  fenced,        // link; value: immediates this side received on it in that epoch; status not ok: not fenced
  deregistered,  // value: the handle; status not ok: not fenced
  invalidated    // value: of a view; status: why it is to be given back
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

struct Costs {  // since the transport was made
  std::uint64_t system_calls = 0;
  std::uint64_t copied_bytes = 0;  // by us, beside the one copy into or out of the kernel or the peer's memory
};

inline constexpr int kPollsForAll = 64;  // see Transport::poll()

class Transport {
 public:
  virtual ~Transport() = default;                       // after close()
  virtual std::string_view name() const = 0;            // "loopback", "tcp"; any thread
  virtual Status probe() = 0;                           // ok: usable on this machine; else a sentence why not
  virtual std::span<const Device> devices() const = 0;  // any thread; fixed after probe()
  // Before connect(): the task whose step polls this transport, to wake it and to watch descriptors by. Outlives it.
  virtual Status attach(Task& task) = 0;

  // Starts to connect; both sides call it. -> link_up, one per link, or link_down.
  virtual Status connect(PeerIndex peer, Role role) = 0;
  virtual void exchange(PeerIndex peer, std::span<const std::byte> bytes) = 0;  // the peer's; hostile: the link fails
  virtual void disconnect(PeerIndex peer) = 0;  // every slice in flight ends in an event, then the peer is forgotten

  // Whose memory that is; nothing: not that it knows. Any thread.
  virtual std::optional<MemoryPlace> place_of(const void* /*address*/) const { return {}; }
  virtual Result<RegisteredMemory> register_memory(const MemoryDescription& memory) = 0;  // any thread; may be slow
  virtual void deregister(std::uint64_t handle) = 0;  // -> deregistered: no byte lands in or is read from it any more
  virtual Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory,
                                       std::span<const std::vector<std::byte>> keys) = 0;
  virtual void release(std::uint64_t remote_handle) = 0;

  // Starts slices of any links in order; returns how many were taken (fewer: full for now, or the next one's link is
  // down; poll says when to go on). A taken slice has exactly one event. Rings each doorbell once.
  virtual std::size_t post(std::span<const Slice> slices) = 0;
  // May leave a quiet link out, and hold words back that others may go with, but not for kPollsForAll polls.
  virtual std::size_t poll(std::span<Event> events, Time now) = 0;
  virtual Time next_timer() const { return kNever; }  // poll at that time even when nothing wakes
  // Closes the link's epoch here. Until `fenced`, slices in flight are undecided; before it, each still without an
  // event gets `failed`; after it nothing on that epoch touches this side's memory, from either direction.
  virtual void fence(LinkId link) = 0;
  // The peer says that its end of the epoch of that name is closed, and none of that name has been up here. True: none
  // will be. False: its link_up is on the way.
  virtual bool never(PeerIndex, std::uint64_t) { return false; }
  // Tries the fenced link again -> link_up with a higher epoch, when it works. Nothing while a try is under way; one
  // that came to nothing is told (retry_failed) and followed by another call.
  virtual void reconnect(LinkId link) = 0;
  virtual void cancel(SliceToken token) = 0;          // hint: end this slice soon; its one event still comes
  virtual Status flush(std::uint64_t) { return {}; }  // makes what arrived in that memory visible to its owner
  // Of memory that not all devices took, on either side: whether those at both ends of that link did.
  virtual bool carries(LinkId, std::uint64_t /*local_handle*/, std::uint64_t /*remote_handle*/) { return true; }
  virtual GpuAccess* gpu() { return nullptr; }  // null: it reaches no GPU memory by itself; any thread
  virtual std::string way(std::uint64_t) const {
    return {};
  }                                           // of a remote handle: how its bytes go, why no better way
  virtual Costs costs() const { return {}; }  // any thread

  virtual bool prepare_sleep() { return true; }     // arm the wake-up; false: poll first
  virtual bool must_poll() const { return false; }  // cannot wake a sleeper (for now)
  virtual void close() = 0;                         // disconnects all; after it nothing touches any region
};

}  // namespace fairway::transport
