#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fairway/ids.h"
#include "fairway/memory.h"

namespace fairway {

// A region as kernels of one GPU of this process reach it, from Engine::map. A value; what it names lasts until
// Engine::unmap or Engine::close.
//
// Kernels read and write there without asking anybody. So its owner's deregister() waits until it is given back: the
// holder is told by `ended` and by a PeerEvent `mapping_ended`, lets its kernels come to their end, and calls unmap().
// Keep to `access` and to `size_bytes`: the driver maps whole allocations, so nothing stops a kernel that does not.
struct Mapping {
  MappingId id;
  std::byte* address = nullptr;  // in that GPU's address space; no CPU reaches it
  std::uint64_t size_bytes = 0;
  int gpu = -1;  // as this process numbers them
  Access access = Access::none;
  // Pinned memory that the host and kernels may read: 0; or an ErrorCode once nothing more should be started that uses
  // it: revoked (its owner wants it back), peer_dead, link_failed, closed.
  const std::uint32_t* ended = nullptr;
  bool atomics = false;  // the GPU's atomics on it are atomic; without them only one side may write each signal
  std::string way;       // how the GPU reaches it
};

// Who moves the bytes of a stream_put.
enum class PutBy : std::uint8_t {
  automatic,    // by size
  kernel,       // less time for small ones; takes part of the GPU's processors
  copy_engine,  // takes none of them
};

// Bytes for a mapping and a signal behind them, as work of a stream. Signals are 8-byte aligned words of GPU memory.
struct StreamPut {
  std::uint64_t offset = 0;    // in the mapping
  const void* from = nullptr;  // memory that the stream's GPU reaches
  std::uint64_t length = 0;    // 0: the signal alone
  PutBy by = PutBy::automatic;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t signal_offset = kNone;  // in the same mapping
  std::uint64_t signal_value = 1;
  // The word grows by the value, as a graph that is launched again needs it; false: it is set to it.
  bool signal_add = true;
};

// A stream's wait for a signal, and for the bytes before it.
struct StreamWait {
  const std::uint64_t* word = nullptr;  // memory of the stream's GPU
  // Waits until the word has reached this one, in memory of the GPU too, plus `value`, and then adds `value` to this
  // one: so each launch of a graph waits for the next signal. Null: until the word has reached `value`.
  std::uint64_t* count = nullptr;
  std::uint64_t value = 1;
  // From its start on the GPU; past it the stream goes on.
  std::chrono::microseconds timeout{1'000'000};
  // Where it says whether it came: 0, deadline_exceeded, or why the mapping `with` ended before. What stands behind it
  // in the stream looks there. Memory of the GPU, since a word in pinned memory holds up what stands behind it.
  std::uint32_t* outcome = nullptr;
  MappingId with;  // gives up when this one ends; none: it does not look
};

}  // namespace fairway
