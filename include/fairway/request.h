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

// One contiguous piece of a transfer.
struct Extent {
  Slice local;
  RemoteAddress remote;
};

// `count` blocks of first.local.length bytes; block i lies i strides after the first one, on each side. Strides in
// bytes.
struct Strided {
  Extent first;
  std::uint64_t local_stride = 0;
  std::uint64_t remote_stride = 0;
  std::uint64_t count = 1;
};

// Pages: page i moves between local_index[i] * local_unit and remote_index[i] * remote_unit, page_bytes each, in bytes
// from the start of the regions. unit = page_bytes makes the arrays page numbers; unit = 1 makes them offsets. Both
// arrays have the same length and stay the caller's: they must live, unchanged, until the transfer completes.
struct Paged {
  RegionId local;
  RemoteRegionId remote;
  std::uint64_t page_bytes = 0;
  std::uint64_t local_unit = 0;
  std::uint64_t remote_unit = 0;
  std::span<const std::uint64_t> local_index;
  std::span<const std::uint64_t> remote_index;
};

// How the bytes of a transfer lie. A list of extents is borrowed like Paged's arrays.
using Layout = std::variant<Extent, std::span<const Extent>, Strided, Paged>;

enum class NotifyKind : std::uint8_t {
  none,
  event,    // the target's poll_notifications sees {peer, immediate, message}
  counter,  // the target's counter of `immediate` grows by one; needs no queue space there
  signal,   // a u64 in a remote region is set to, or grows by, signal_value
};

// What the target sees after, and only after, all bytes of the transfer.
struct Notify {
  NotifyKind kind = NotifyKind::none;
  std::uint32_t immediate = 0;
  std::span<const std::byte> message;  // event only: at most kMaxNotifyMessage bytes, copied when submitted
  // Signal only: 8-byte aligned, region with Access::atomic. To be set in a device's memory, where a kernel may wait
  // for it, the region grants Access::write too; one that is added to there is not atomic against what kernels write.
  RemoteAddress signal;
  std::uint64_t signal_value = 0;
  bool signal_add = false;  // false: set
};
inline constexpr std::size_t kMaxNotifyMessage = 256;

struct Completion {
  TransferId id;
  Status status;                // ok: every byte is visible at the target, its notification delivered
  std::uint64_t bytes = 0;      // moved; for a receive, the message's length
  std::uint64_t old_value = 0;  // of an atomic: what was there before
  void* user_data = nullptr;    // the request's own
};

// How the caller learns of the one completion of a transfer.
enum class Deliver : std::uint8_t { to_wait, to_poll, to_callback };

// Runs on the engine's worker thread (or in poll(), when the caller makes the progress). Must not block; may submit.
using CompletionCallback = void (*)(const Completion& completion, void* user_data);

enum class Priority : std::uint8_t { bulk, normal, urgent };

// What every request may carry. The defaults are right for most.
struct RequestOptions {
  Notify notify;
  TransferId after;                       // start only once this one is visible at its target
  std::chrono::microseconds deadline{0};  // 0: none. Past it the transfer fails with deadline_exceeded, once fenced
  bool checksum = false;                  // compare a CRC-32C of what was read and what landed, end to end
  // A CUDA event (cudaEvent_t) that the caller has recorded: no byte is read or written before it, and the host waits
  // for nothing. write and read only, over a transport with streams (cuda). It must live until the transfer completes.
  // While it has not come the transfer cannot be stopped: deadline and cancel end it afterwards.
  void* start_after = nullptr;
  Priority priority = Priority::normal;  // among transfers of one peer that wait for queue space
  Deliver deliver = Deliver::to_wait;
  CompletionCallback callback = nullptr;  // with Deliver::to_callback
  void* user_data = nullptr;
};

enum class Operation : std::uint8_t { write, read, send, receive, fetch_add, compare_swap };

// One transfer to start. Which members count depends on the operation.
struct Request {
  Operation operation = Operation::write;
  PeerId peer;
  Layout layout;               // write, read; send and receive take a single Extent's local slice
  RemoteAddress target;        // fetch_add, compare_swap: 8-byte aligned
  std::uint64_t operand = 0;   // fetch_add: addend; compare_swap: the new value
  std::uint64_t expected = 0;  // compare_swap
  std::uint64_t tag = 0;       // send, receive: matched per (peer, tag) in submission order
  RequestOptions options;
};

// A notification of kind `event` as the target sees it.
struct Notification {
  PeerId peer;
  std::uint32_t immediate = 0;
  std::uint32_t message_bytes = 0;
  std::byte message[kMaxNotifyMessage];
};

}  // namespace fairway
