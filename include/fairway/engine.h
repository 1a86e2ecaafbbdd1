#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
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

using Timeout = std::chrono::microseconds;
inline constexpr Timeout kForever = Timeout::max();

struct PeerEvent {
  // up: of a peer whose earlier session has ended, after that one's `down`.
  // down: by then what had arrived from the peer is notified, and every transfer to it that had succeeded has ended so;
  // the others end with that reason.
  // link_slow: a link was busy with large transfers for 150 ms and stayed under half of the least that it should reach.
  // Once, until it has kept its pace again.
  // mapping_ended: start no more kernels that use it, and unmap() it once those that run are over.
  enum class Kind : std::uint8_t { up, down, link_up, link_down, link_slow, mapping_ended } kind = Kind::up;
  PeerId peer;
  std::string name;               // the peer's name, or its address
  std::string link;               // link_up, link_down, link_slow
  std::uint64_t incarnation = 0;  // of the peer's process
  Status reason;                  // down, link_down, mapping_ended
  std::string detail;             // link_slow: what it reached and what was expected
  MappingId mapping = {};         // mapping_ended
};

// Taken requests and, when fewer than offered, why: ok means "full, try again when writable()", else request [taken]
// was refused as it stands.
struct Submitted {
  std::size_t taken = 0;
  Status status;
};

// What a cancelled transfer did, on both sides.
struct Cancelled {
  bool fenced = false;  // no byte can still land in, or be read from, the caller's memory
  std::string held_by;  // not fenced: the peer that may still touch it
  enum class Far : std::uint8_t { nothing, all, partial, unknown } far_side = Far::unknown;
};

// One process's communication endpoint. All calls are thread-safe. Every wait takes a timeout and returns timed_out
// when it passes. Errors name the peer, the link and the cause.
class FAIRWAY_API Engine {
 public:
  // Fails when an option makes no sense, an address cannot be bound, or no thread can be had.
  static Result<Engine> open(const EngineOptions& options);

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();  // close()

  // Ends every transfer with `cancelled`, tells every peer, releases all regions. Nothing touches the caller's memory
  // afterwards, but for kernels of a peer's that has it mapped and does not unmap() it within a second: deregister()
  // says. Unmaps what was not: kernels that use mappings must be over. Callbacks may still run during the call, none
  // after it.
  void close();

  // ---- peers ----
  // "host:port", for others' connect().
  [[nodiscard]] std::string address() const;
  // Connects to "host:port", or to a name in the directory when there is no colon. Returns once both sides have proven
  // the job's key and at least one link is up, or with unreachable, authentication_failed, version_mismatch,
  // unsupported (no common transport: the message lists why), timed_out. Connecting again to a living peer gives the
  // same PeerId.
  Result<PeerId> connect(std::string_view address, Timeout timeout = std::chrono::seconds(5));
  Status disconnect(PeerId peer);
  // Peers that came (they may have connected to us) and went, links up and down. The count stored. The oldest events
  // are dropped, and counted in the next one's reason, when nobody polls.
  std::size_t poll_peer_events(std::span<PeerEvent> events);
  Status wait_peer_event(Timeout timeout);

  // ---- memory ----
  // Registers the caller's memory; it stays the caller's and must stay mapped until deregister() says fenced.
  // invalid_argument: no CPU can read it, and no transport in use knows it for a device's.
  Result<Region> register_memory(void* address, std::size_t size_bytes, Access access, const MemorySource& source = {});
  // Memory from the engine: page-aligned, zeroed, reserved now, shareable with same-host peers by mapping where a
  // transport can. Freed by deregister().
  Result<Region> allocate(std::size_t size_bytes, Access access);
  // Stops all use. Transfers of this engine that use the region end with `cancelled`; peers' with `revoked`. ok:
  // fenced, the memory is the caller's alone. not_fenced: it names who may still touch it; do not reuse the memory.
  Status deregister(const Region& region, Timeout timeout = std::chrono::seconds(5));
  // The bytes a peer needs to import the region; they may travel by any means and hold no secret beyond the region's
  // name.
  Result<std::vector<std::byte>> describe(const Region& region);
  Result<RemoteRegion> import_region(PeerId peer, std::span<const std::byte> description);
  Status release(const RemoteRegion& region);
  // Exchange by name between connected peers. lookup waits until the peer publishes the name, or `timeout`.
  Status publish(std::string_view name, const Region& region);
  Result<RemoteRegion> lookup(PeerId peer, std::string_view name, Timeout timeout = std::chrono::seconds(5));

  // ---- kernels and streams that reach peers by themselves (docs/cuda.md) ----
  // For kernels of that GPU of this process: a peer's GPU memory, or this process's own of another GPU. Takes
  // milliseconds the first time, and may wait for running kernels, so not where those wait for it. unsupported, with
  // the reason, where there is no direct way: another host, host memory, memory that goes staged.
  Result<Mapping> map(const RemoteRegion& region, int gpu, Timeout timeout = std::chrono::seconds(5));
  Result<Mapping> map(const Region& region, int gpu, Timeout timeout = std::chrono::seconds(5));
  // Gives it back. No kernel or stream that uses it runs any more, and no graph with it will be launched.
  Status unmap(MappingId mapping);
  // Work for a CUDA stream of that GPU (cudaStream_t, not the default one), also while it is captured; the host waits
  // for nothing. A mapping that has ended is refused with the reason. Who waits for the signal, with stream_wait_signal
  // or in a kernel (fairway/device.cuh), sees all bytes.
  Status stream_put(MappingId to, const StreamPut& put, void* stream);
  Status stream_wait_signal(const StreamWait& wait, void* stream);

  // ---- transfers: accepted ones complete exactly once ----
  // Takes requests in order, as many as there is room for. Copies nothing but notification messages; does not wait.
  Submitted submit(std::span<const Request> requests, std::span<TransferId> ids);
  // True when at least one more request to any peer would be taken.
  [[nodiscard]] bool writable() const;
  // One request each; a full queue is the error queue_full and nothing was done. A write or read of no bytes to or from
  // a GPU's memory completes once the way is open: later ones between the two regions make no call of the driver's that
  // could wait for a running kernel.
  Result<TransferId> write(PeerId peer, const Layout& layout, const RequestOptions& options = {});
  Result<TransferId> read(PeerId peer, const Layout& layout, const RequestOptions& options = {});
  Result<TransferId> send(PeerId peer, std::uint64_t tag, const Slice& from, const RequestOptions& options = {});
  Result<TransferId> receive(PeerId peer, std::uint64_t tag, const Slice& into, const RequestOptions& options = {});
  Result<TransferId> fetch_add(PeerId peer, RemoteAddress target, std::uint64_t addend,
                               const RequestOptions& options = {});
  Result<TransferId> compare_swap(PeerId peer, RemoteAddress target, std::uint64_t expected, std::uint64_t desired,
                                  const RequestOptions& options = {});

  // ---- completion ----
  // Of a transfer with Deliver::to_wait: its completion, once; not_found afterwards. timed_out: it goes on.
  Result<Completion> wait(TransferId id, Timeout timeout = kForever);
  // What is put into the CUDA stream (cudaStream_t, not the default one) from now on starts once the transfer has
  // completed, well or not; the host waits for nothing. Somebody must still make progress and collect the completion.
  // unsupported without the transport cuda.
  Status stream_wait(TransferId id, void* stream);
  // Completions of transfers with Deliver::to_poll; with Progress::caller also moves the bytes. The count stored.
  std::size_t poll(std::span<Completion> completions);
  // Readable when poll, poll_notifications or poll_peer_events may have something, or a counter has grown (with
  // Progress::caller: when poll() should run). For event loops; poll until all return 0, look at the counters, then
  // wait for it again: it wakes at most twice for each of these. -1 in a simulation.
  [[nodiscard]] int fd() const;
  // Ends a transfer early. It still completes once, with `cancelled` or, if it was faster, its own outcome. Not fenced
  // in time: it goes on ending; call again, or wait for it. A write whose bytes have all arrived is fenced at once, also
  // while its notification is still under way; it completes when that has arrived.
  Result<Cancelled> cancel(TransferId id, Timeout timeout = std::chrono::seconds(5));

  // ---- at the target ----
  std::size_t poll_notifications(std::span<Notification> notifications);
  Status wait_notification(Timeout timeout);
  // How many notifications of kind `counter` with this immediate have come, from all peers, ever.
  [[nodiscard]] std::uint64_t counter(std::uint32_t immediate) const;
  Status wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout = kForever);

  // ---- what it does ----
  Result<Explanation> explain(const Request& request) const;  // the route it would take now
  Result<Explanation> explain(PeerId peer) const;             // all links to the peer
  Result<Explanation> explain(TransferId id) const;           // in flight, or one of the last 1,024
  [[nodiscard]] Metrics metrics() const;
  // Of the RDMA ports that this engine uses, as the system has them; also those that are zero. Reads some fifty small
  // files of each port.
  [[nodiscard]] std::vector<PortCounter> port_counters() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  friend struct EngineAccess;  // opens engines on another runtime, for the simulator
  std::unique_ptr<State> state_;
};

}  // namespace fairway
