#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/explain.h"
#include "fairway/export.h"
#include "fairway/ids.h"
#include "fairway/mapping.h"
#include "fairway/memory.h"
#include "fairway/metrics.h"
#include "fairway/options.h"
#include "fairway/request.h"
#include "fairway/status.h"

namespace fairway {

struct PeerEvent {
  // up: a session with the peer began. When it follows an earlier session, it comes after that session's `down`.
  // down: the session ended. Everything that arrived before has been notified, and every transfer that succeeded has
  //   completed with ok; all others complete with `reason`.
  // link_slow: for 150 ms of large transfers the link stayed below half of its lowest expected rate. Reported once,
  //   and again only after the link has recovered.
  // mapping_ended: start no more kernels that use the mapping. When those that run have ended, call unmap().
  enum class Kind : std::uint8_t { up, down, link_up, link_down, link_slow, mapping_ended } kind = Kind::up;
  PeerId peer;
  std::string name;               // the peer's name, or its address
  std::string link;               // link_up, link_down, link_slow
  std::uint64_t incarnation = 0;  // of the peer's process
  Status reason;                  // down, link_down, mapping_ended
  std::string detail;             // link_slow: what it reached and what was expected
  MappingId mapping = {};         // mapping_ended
};

// Result of Engine::submit.
struct Submitted {
  std::size_t taken = 0;  // requests accepted, from the first on
  // When fewer were accepted than offered. ok: the queue is full until writable(). queue_full: the queue that [taken]
  // names (RequestOptions::queue) is. Else: why [taken] is invalid.
  Status status;
};

// Result of Engine::cancel.
struct Cancelled {
  bool fenced = false;  // true: the transfer no longer reads or writes the caller's memory
  std::string held_by;  // if not fenced: the peer that may still access it
  // How many of the transfer's bytes reached the other side.
  enum class Far : std::uint8_t { nothing, all, partial, unknown } far_side = Far::unknown;
};

// How far the end of a region has come.
enum class Fence : std::uint8_t {
  registered,  // deregister() was not called
  pending,     // it was, or close(), and somebody may still access the memory
  fenced,      // nothing accesses it any more: it may be reused
  unknown,     // never a region of this engine
};

// Immediates `first` to `first + count - 1`, whose counters and events are their owner's alone.
struct CounterSpace {
  CounterSpaceId id;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// A communication endpoint. A process usually has one. All calls are thread-safe. Every call that waits takes a timeout
// and returns timed_out when it expires. Errors name the peer, the link and the cause.
class FAIRWAY_API Engine {
 public:
  // Errors: invalid_argument (the message names the option), system_error (an address cannot be bound, a thread cannot
  // be started).
  static Result<Engine> open(const EngineOptions& options);

  Engine(Engine&&) noexcept;  // what was moved from answers `closed` to every call
  Engine& operator=(Engine&&) noexcept;
  ~Engine();  // close()

  // Completes every transfer with `cancelled`, tells every peer, and releases all regions and mappings. Kernels that
  // use a mapping of this engine must have ended before. After the call nothing accesses the caller's memory, unless a
  // peer does not let go of it within a second: one that has mapped it and calls no unmap(), whose copies wait for its
  // program (start_after), or that is stopped. Then fence_state() is `pending` and deregister() `not_fenced`.
  // Callbacks may run during the call, but not after it. Of several threads that call it each returns once the engine
  // is closed, whoever began. In a callback of the engine it does nothing: it would wait for itself.
  void close();
  [[nodiscard]] bool is_open() const;                            // false from the beginning of close() on
  [[nodiscard]] std::chrono::milliseconds peer_timeout() const;  // EngineOptions::peer_timeout

  // ---- peers ----
  // "host:port" for other engines' connect().
  [[nodiscard]] std::string address() const;
  // Connects to "host:port", or, without a colon, to a name in the directory. Returns when both sides have proven that
  // they know the job's key and at least one link is up. Connecting again to a connected peer returns the same PeerId.
  // Errors: unreachable, authentication_failed, version_mismatch, timed_out, unsupported (no common transport; the
  // message says why for each).
  Result<PeerId> connect(std::string_view address, Timeout timeout = std::chrono::seconds(5));
  Status disconnect(PeerId peer);
  // Stores events about peers and links and returns how many; peers that connected to this engine are reported too. If
  // nobody polls, the oldest events are dropped; the next event's reason says how many.
  std::size_t poll_peer_events(std::span<PeerEvent> events);
  Status wait_peer_event(Timeout timeout);

  // ---- memory ----
  // Registers the caller's memory. The caller keeps ownership and must keep it mapped until deregister() returns ok.
  // Memory that this process cannot write may be sent and read by peers, and nothing can arrive in it. Errors:
  // invalid_argument (it is not mapped here and no transport in use recognises it as device memory; peers may write it
  // and this process may not), resource_exhausted.
  Result<Region> register_memory(void* address, std::size_t size_bytes, Access access, const MemorySource& source = {});
  // Allocates and registers memory: page-aligned, zeroed, committed, and mappable by peers on this host, which is the
  // fastest path for shm. Freed by deregister().
  Result<Region> allocate(std::size_t size_bytes, Access access);
  // Ends all use of the region: this engine's transfers complete with `cancelled`, peers' with `revoked`. ok: nothing
  // accesses the memory any more. not_fenced: somebody may still access it (the message says who), so do not reuse or
  // free it; the end goes on, and another call, from any thread, waits for the same one. revoked: it has ended before.
  // closed: so has the engine, and nothing accesses the memory; the call waits for that, too.
  Status deregister(const Region& region, Timeout timeout = std::chrono::seconds(5));
  // Where that is, without waiting. Any thread. Of a region whose slot was used 2^31 times since it says nothing right.
  [[nodiscard]] Fence fence_state(const Region& region) const;
  // The bytes that a peer passes to import_region(). Send them by any means; they contain no secret.
  Result<std::vector<std::byte>> describe(const Region& region);
  // Importing or looking up the same region of a peer again returns the same id. One release() ends it for all of them.
  Result<RemoteRegion> import_region(PeerId peer, std::span<const std::byte> description);
  Status release(const RemoteRegion& region);
  // Exchange by name between connected peers. lookup() waits until the peer has published the name.
  Status publish(std::string_view name, const Region& region);
  Result<RemoteRegion> lookup(PeerId peer, std::string_view name, Timeout timeout = std::chrono::seconds(5));

  // ---- communication by kernels, CUDA streams (docs/cuda.md) and CPUs ----
  // Makes a region accessible to kernels of GPU `gpu` of this process: a peer's GPU memory, or this process's memory on
  // another GPU. The first call takes milliseconds and may wait for running kernels, so do not call it while a kernel
  // waits for its result. unsupported, with the reason: no direct path (another host, host memory, staged memory).
  // gpu = kCpu: to loads and stores of this process's CPUs: a peer's host memory from allocate(), or from a file that
  // MemorySource names, by the transport shm. The owner may store meanwhile: share words by atomics alone. The memory
  // stays readable when its owner dies. It ends with this engine's close().
  Result<Mapping> map(const RemoteRegion& region, int gpu, Timeout timeout = std::chrono::seconds(5));
  Result<Mapping> map(const Region& region, int gpu, Timeout timeout = std::chrono::seconds(5));
  // Releases a mapping. The caller makes sure that no kernel or stream uses it and no graph that uses it is launched.
  Status unmap(MappingId mapping);
  // Enqueue work on a CUDA stream of that GPU (cudaStream_t, not the default one), also during capture. The host does
  // not wait. A put's bytes are visible to whoever waits for its signal, by stream_wait_signal() or in a kernel
  // (fairway/device.cuh). A mapping that has ended is refused with the reason.
  Status stream_put(MappingId to, const StreamPut& put, void* stream);
  Status stream_wait_signal(const StreamWait& wait, void* stream);

  // ---- transfers: each accepted request completes exactly once ----
  // Accepts requests in order, as many as there is room for, and stores their ids. Does not wait. Index arrays and
  // extent lists are borrowed until completion; notification messages are copied.
  Submitted submit(std::span<const Request> requests, std::span<TransferId> ids);
  // True if at least one more request, to any peer, would be accepted.
  [[nodiscard]] bool writable() const;
  // One request each. queue_full: not accepted; try again when writable(). A write or read of 0 bytes with GPU memory
  // completes when the path between the two regions is set up: later transfers between them make no driver call that
  // could wait for a running kernel.
  Result<TransferId> write(PeerId peer, const Layout& layout, const RequestOptions& options = {});
  Result<TransferId> read(PeerId peer, const Layout& layout, const RequestOptions& options = {});
  // One extent can be written in braces: write(peer, {{region.id, offset, length}, {remote.id, offset}}).
  Result<TransferId> write(PeerId peer, const Extent& extent, const RequestOptions& options = {}) {
    return write(peer, Layout(extent), options);
  }
  Result<TransferId> read(PeerId peer, const Extent& extent, const RequestOptions& options = {}) {
    return read(peer, Layout(extent), options);
  }
  Result<TransferId> send(PeerId peer, std::uint64_t tag, const Slice& from, const RequestOptions& options = {});
  // An empty PeerId: a message of any peer; Completion::peer says whose it was. It keeps its place among the receives
  // of each peer. At most 1,024 may wait for a message, then queue_full. Without `after`.
  Result<TransferId> receive(PeerId peer, std::uint64_t tag, const Slice& into, const RequestOptions& options = {});
  // The same with a message in several pieces: Request::layout says which. The list is borrowed until completion.
  Result<TransferId> send(PeerId peer, std::uint64_t tag, std::span<const Extent> from,
                          const RequestOptions& options = {});
  Result<TransferId> receive(PeerId peer, std::uint64_t tag, std::span<const Extent> into,
                             const RequestOptions& options = {});
  // Finds the message that the next receive of this tag from its peer would take, and takes nothing: of that peer, or
  // of any with an empty PeerId. receive(found.peer, tag, ...) then takes it, unless another thread's receive does
  // first. A message for which a receive waits is not found. Waits until there is one; timed_out: there is none. Any
  // thread, not in a callback: it asks the workers.
  Result<Probed> probe(PeerId peer, std::uint64_t tag, Timeout timeout = Timeout(0));
  Result<TransferId> fetch_add(PeerId peer, RemoteAddress target, std::uint64_t addend,
                               const RequestOptions& options = {});
  Result<TransferId> compare_swap(PeerId peer, RemoteAddress target, std::uint64_t expected, std::uint64_t desired,
                                  const RequestOptions& options = {});

  // ---- completion ----
  // Waits for a transfer with Deliver::to_wait. Returns its completion once, then not_found. timed_out: it goes on.
  Result<Completion> wait(TransferId id, Timeout timeout = kForever);
  // Waits until one of them is complete and returns its completion, once; of several the first in the order given. Ids
  // whose completion was collected, by whichever thread, are passed over: not_found once none of the others is left.
  // invalid_argument: one has another Deliver. Any thread; several may wait for the same ids, and one gets each.
  Result<Completion> wait_any(std::span<const TransferId> ids, Timeout timeout = kForever);
  // Waits until all are complete, then stores the completion of ids[i] in completions[i]; ok, whatever their outcomes.
  // timed_out: none was collected, so call again. not_found: one, whose stored status says so, was collected by another
  // call or never given; all others are stored.
  Status wait_all(std::span<const TransferId> ids, std::span<Completion> completions, Timeout timeout = kForever);
  // Waits until all that any thread had submitted to the peer, or to any peer, before the call is complete, with ok or
  // an error; their callbacks have returned, and their completions are there to be collected. Receives are left out:
  // those end when the peer sends. What is submitted meanwhile is not waited for. Not in a callback.
  Status flush(PeerId peer, Timeout timeout = kForever);
  Status drain(Timeout timeout = kForever);
  // Makes a CUDA stream (cudaStream_t, not the default one) wait: work enqueued on it from now on starts after the
  // transfer has completed, with ok or an error. The host does not wait. The caller must still make progress and
  // collect the completion. unsupported: the transport cuda is not in use.
  Status stream_wait(TransferId id, void* stream);
  // Stores completions of transfers with Deliver::to_poll and returns how many. With Progress::caller it also makes
  // progress.
  std::size_t poll(std::span<Completion> completions);
  // Completion queues keep apart what two parts of a program wait for, such as two libraries that share this engine:
  // the completion of a transfer that names a queue comes by poll(queue, ...) and by nothing else. Any thread may make
  // any of these calls, several may poll one queue. At most 64 queues. `capacity`: transfers that may name it and are
  // not collected yet; a request beyond it gets queue_full.
  Result<QueueId> make_queue(std::uint32_t capacity);
  std::size_t poll(QueueId queue, std::span<Completion> completions);  // as poll(); 0 also when there is no such queue
  // Waits until poll(queue, ...) may return something. not_found: it has ended. fd() tells nothing of these queues.
  Status wait(QueueId queue, Timeout timeout = kForever);
  // Refused (invalid_argument) while transfers that name it are in flight or not collected; close() completes them.
  Status end_queue(QueueId queue);
  // A descriptor for poll(2), epoll or an event loop. It is readable when poll(), poll_notifications() or
  // poll_peer_events() may return something, or a counter has grown; with Progress::caller also when poll() should run,
  // for arrived data or an expired timer. A signal does not wake it. After a wake-up call all three until they return
  // 0, read the counters, then wait again: there are at most two wake-ups for each event. -1 in a simulation.
  [[nodiscard]] int fd() const;
  // Ends a transfer early. It still completes exactly once: with `cancelled`, or with its own outcome if that came
  // first. If the timeout passes before it is fenced, the cancel goes on: call again, or wait for the completion. Once
  // it is fenced the completion is there, but for a write whose bytes have all arrived and whose notification is still
  // in flight: it is fenced at once, and completes when the notification has arrived.
  Result<Cancelled> cancel(TransferId id, Timeout timeout = std::chrono::seconds(5));

  // ---- at the target ----
  std::size_t poll_notifications(std::span<Notification> notifications);
  Status wait_notification(Timeout timeout);
  // How many notifications of kind `counter` with this immediate have arrived, from all peers, since the engine opened.
  [[nodiscard]] std::uint64_t counter(std::uint32_t immediate) const;
  Status wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout = kForever);
  // Takes immediates that nobody else of this engine gets: those from `first` on, or without it any that are free.
  // Their counters begin at 0 and are read by counter() and wait_counter(); their events come by
  // poll_notifications(space,
  // ...) alone, and hold the same credits as others (notifications_per_peer), so poll them. Any thread. Errors:
  // already_exists, which names the range that overlaps, or the counter in it that has counted before;
  // resource_exhausted: all spaces together have more counters than max_counters, or they are more than 64.
  Result<CounterSpace> make_counters(std::uint32_t count, std::optional<std::uint32_t> first = {});
  // Events that were not polled are dropped. What arrives later with these immediates is nobody's: it counts and queues
  // as any, so first make sure that peers send none. Not in a callback.
  Status release_counters(CounterSpaceId space);
  std::size_t poll_notifications(CounterSpaceId space, std::span<Notification> notifications);
  Status wait_notification(CounterSpaceId space, Timeout timeout);  // not_found: it was released

  // ---- introspection ----
  Result<Explanation> explain(const Request& request) const;  // the path it would take now
  Result<Explanation> explain(PeerId peer) const;             // all links to the peer
  // In flight, or one of the last 1,024 or more. Its bytes_done is the transfer's progress; asking does not disturb it.
  Result<Explanation> explain(TransferId id) const;
  // Any thread at any time, also during close(): it asks no worker, so it neither waits for one nor makes progress.
  // Each number is read by itself: of what ends meanwhile one may count it already and another not yet.
  [[nodiscard]] Metrics metrics() const;
  // Error and congestion counters of the RDMA ports that this engine uses, zeros included. Reads about fifty small
  // files for each port.
  [[nodiscard]] std::vector<PortCounter> port_counters() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  friend struct EngineAccess;  // opens engines on another runtime, for the simulator
  std::unique_ptr<State> state_;
};

}  // namespace fairway
