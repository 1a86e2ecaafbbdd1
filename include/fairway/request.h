#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "fairway/ids.h"
#include "fairway/memory.h"
#include "fairway/status.h"

namespace fairway {

using Timeout = std::chrono::microseconds;  // from now on; 0 or less: it has passed
inline constexpr Timeout kForever = Timeout::max();

// One contiguous piece of a transfer.
struct Extent {
  Slice local = {};
  RemoteAddress remote = {};
};

// `count` blocks of first.local.length bytes each. Block i starts i strides, in bytes, after the first on each side.
struct Strided {
  Extent first = {};
  std::uint64_t local_stride = 0;
  std::uint64_t remote_stride = 0;
  std::uint64_t count = 1;
};

// Pages of page_bytes each. Page i is at byte local_index[i] * local_unit of the local region and remote_index[i] *
// remote_unit of the remote region. With unit = page_bytes the indices are page numbers, with unit = 1 byte offsets.
// Both arrays have the same length. They are borrowed: keep them unchanged until the transfer completes.
struct Paged {
  RegionId local = {};
  RemoteRegionId remote = {};
  std::uint64_t page_bytes = 0;
  std::uint64_t local_unit = 0;
  std::uint64_t remote_unit = 0;
  std::span<const std::uint64_t> local_index = {};
  std::span<const std::uint64_t> remote_index = {};
};

// Memory layout of a transfer. A list of extents is borrowed, as Paged's arrays are.
using Layout = std::variant<Extent, std::span<const Extent>, Strided, Paged>;

enum class NotifyKind : std::uint8_t {
  none,
  event,    // the target's poll_notifications() returns {peer, immediate, message}
  counter,  // the target's counter number `immediate` grows by one; uses no queue space there
  signal,   // a u64 in a remote region is set to signal_value, or grows by it
};

// Notification of the target. It arrives after all bytes of the transfer are visible there.
struct Notify {
  NotifyKind kind = NotifyKind::none;
  std::uint32_t immediate = 0;
  std::span<const std::byte> message = {};  // event only: at most kMaxNotifyMessage bytes, copied when submitted
  // Signal only. 8-byte aligned, in a region with Access::atomic; in device memory, where a kernel may wait for it,
  // with Access::write too. An add to device memory is not atomic with respect to kernels.
  RemoteAddress signal = {};
  std::uint64_t signal_value = 0;
  bool signal_add = false;  // false: set
};
inline constexpr std::size_t kMaxNotifyMessage = 256;

// The same, by name: RequestOptions{.notify = notify_event(7)}.
constexpr Notify notify_event(std::uint32_t immediate, std::span<const std::byte> message = {}) {
  return {.kind = NotifyKind::event, .immediate = immediate, .message = message};
}
constexpr Notify notify_counter(std::uint32_t immediate) {
  return {.kind = NotifyKind::counter, .immediate = immediate};
}
constexpr Notify set_signal(RemoteAddress signal, std::uint64_t value) {
  return {.kind = NotifyKind::signal, .signal = signal, .signal_value = value};
}
constexpr Notify add_to_signal(RemoteAddress signal, std::uint64_t addend) {
  return {.kind = NotifyKind::signal, .signal = signal, .signal_value = addend, .signal_add = true};
}

struct Completion {
  TransferId id;
  Status status;                // ok: every byte is visible at the target and its notification has arrived, or what
                                // RequestOptions::local_completion says
  std::uint64_t bytes = 0;      // moved; for a receive, the message's length
  std::uint64_t old_value = 0;  // atomics: the value before the operation
  void* user_data = nullptr;    // the request's own
  PeerId peer = {};             // of a receive: whose message it is; none: it was of any peer, and ended without one
};

// How the caller gets the completion of a transfer.
enum class Deliver : std::uint8_t { to_wait, to_poll, to_callback };

// Runs on a worker thread of the engine, or in poll() with Progress::caller. It must not block; it may submit requests.
using CompletionCallback = void (*)(const Completion& completion, void* user_data);

enum class Priority : std::uint8_t { bulk, normal, urgent };

// Options of any request. The defaults suit most.
struct RequestOptions {
  Notify notify = {};
  TransferId after = {};  // start when that one has completed with ok; if it fails: dependency_failed
  // When it passes: deadline_exceeded, as soon as fenced. One that has passed when the request is submitted ends it so,
  // before anything is moved; unlike a request that is refused, it was accepted and completes.
  Timeout deadline = kForever;
  bool checksum = false;  // verify a CRC-32C of the bytes, end to end
  // A recorded CUDA event (cudaEvent_t): the transfer accesses memory only after it. The host does not wait. For write
  // and read over cuda. The event must live until the transfer completes. Before the event the transfer cannot be
  // stopped: deadline and cancel take effect after it.
  void* start_after = nullptr;
  // A send that is copied whole (up to 8 KiB of host memory, without checksum) is complete once it is copied, ok, and
  // its memory is free; other sends complete as ever. Such an ok says nothing of the receive: a receive that is too
  // short or ends early fails at the peer alone, and if the session ends first, PeerEvent::down is all that tells.
  bool local_completion = false;
  Priority priority = Priority::normal;  // among the transfers to one peer that wait for queue space
  Deliver deliver = Deliver::to_wait;
  QueueId queue = {};  // with Deliver::to_poll: the queue whose poll(queue, ...) gets it, in place of poll()
  CompletionCallback callback = nullptr;  // with Deliver::to_callback
  void* user_data = nullptr;
};

enum class Operation : std::uint8_t { write, read, send, receive, fetch_add, compare_swap };

// A transfer to start. The operation says which members are used.
struct Request {
  Operation operation = Operation::write;
  PeerId peer = {};  // none, of a receive: any
  // write, read; send and receive take the local side of one Extent, or of a list: a message is the bytes of its pieces
  // in their order, on each side as it likes. A list has at most 1,024, of host memory; a receive's 64 MiB together.
  Layout layout = {};
  RemoteAddress target = {};   // fetch_add, compare_swap: 8-byte aligned
  std::uint64_t operand = 0;   // fetch_add: addend; compare_swap: the new value
  std::uint64_t expected = 0;  // compare_swap
  std::uint64_t tag = 0;       // send, receive: matched per (peer, tag) in submission order
  RequestOptions options = {};
};

// A message that waits for its receive, as Engine::probe finds it.
struct Probed {
  PeerId peer;
  std::uint64_t tag = 0;
  std::uint64_t size_bytes = 0;
};

// A notification of kind `event` as the target sees it.
struct Notification {
  PeerId peer;
  std::uint32_t immediate = 0;
  std::uint32_t message_bytes = 0;
  std::byte message[kMaxNotifyMessage];
};

}  // namespace fairway
