#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fairway/ids.h"
#include "fairway/memory.h"

namespace fairway {

inline constexpr int kCpu = -1;  // in place of a GPU's number: this process's CPUs

// A region that kernels of one GPU of this process, or its CPUs, can access, from Engine::map. A value; the mapping
// lasts until Engine::unmap or Engine::close.
//
// Nobody checks what kernels and CPUs access. The owner's deregister() therefore waits until the mapping is released.
// The holder learns that from `ended` and from a PeerEvent `mapping_ended`, lets its kernels end, and calls unmap().
// Respect `access` and `size_bytes`: the driver maps whole allocations, so nothing stops a kernel that goes beyond
// them.
struct Mapping {
  MappingId id;
  std::byte* address = nullptr;  // in that GPU's address space; kCpu: of this process
  std::uint64_t size_bytes = 0;
  int gpu = kCpu;  // as this process numbers them
  Access access = Access::none;
  // A word for the host and kernels to read, by atomic loads. 0: in use. Else an ErrorCode, and no new work may use
  // the mapping: revoked (its owner deregisters it), peer_dead, link_failed, closed.
  const std::uint32_t* ended = nullptr;
  bool atomics =
      false;  // true: that GPU's, or the CPUs', atomics work on it; false: only one side may write each signal
  std::string path_description;  // how the GPU accesses it, for people
};

// Who moves the bytes of a stream_put.
enum class PutBy : std::uint8_t {
  automatic,    // by size
  kernel,       // faster for small sizes; uses some of the GPU's multiprocessors (SMs)
  copy_engine,  // uses no SM
};

// Work for a stream: copy bytes to a mapping, then signal. A signal is an 8-byte aligned word of GPU memory.
struct StreamPut {
  std::uint64_t offset = 0;    // in the mapping
  const void* from = nullptr;  // memory that the stream's GPU can read
  std::uint64_t length = 0;    // 0: the signal alone
  PutBy by = PutBy::automatic;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t signal_offset = kNone;  // in the same mapping
  std::uint64_t signal_value = 1;
  // true: add the value to the word, as a graph that is launched repeatedly needs; false: store it.
  bool signal_add = true;
  // Of the kernel that copies more than 32 KiB, of 512 threads each; 0: up to 128. Fewer leave multiprocessors to the
  // program, and let signals of other streams pass sooner, at the price of some of the rate (docs/cuda.md).
  std::uint32_t blocks = 0;
  // With copy_engine and signal_add = false: the stream itself stores the signal, in place of a kernel behind the copy.
  bool signal_by_stream = false;
};

// Work for a stream: wait for a signal, and so for the bytes that were put before it.
struct StreamWait {
  const std::uint64_t* word = nullptr;  // memory of the stream's GPU
  // Null: waits until *word >= value. Else, in GPU memory: waits until *word >= *count + value, then adds `value` to
  // *count, so that each launch of a graph waits for the next signal.
  std::uint64_t* count = nullptr;
  std::uint64_t value = 1;
  // Counted from the start of the wait on the GPU. When it expires the stream goes on.
  std::chrono::microseconds timeout{1'000'000};
  // Receives the outcome: 0, deadline_exceeded, or the reason why the mapping `with` ended. Later work in the stream
  // should read it. It must be GPU memory: a word in pinned memory would delay the work behind it.
  std::uint32_t* outcome = nullptr;
  MappingId with = {};  // the wait ends early if this mapping ends; none: it does not
};

}  // namespace fairway
