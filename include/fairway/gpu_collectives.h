#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fairway/ids.h"

// Options of collectives on GPU memory, and messages on streams: Communicator::use_gpu() and those after it.
namespace fairway {

// By whom operations on streams may go, the same on every rank: Fairway's kernels alone (never); NCCL where this
// machine's table says that it is faster (measured: Communicator::measure_gpu()); NCCL for all that it can do (always).
enum class NcclUse : std::uint8_t { measured, never, always };
struct GpuOptions {
  NcclUse nccl = NcclUse::measured;
  bool guarded = true;  // false: faster, but NCCL's operations have no deadline, and who never comes is not found
  std::string nccl_library = {};   // empty: FAIRWAY_NCCL_LIBRARY, else the libnccl.so.2 that this process has loaded
  std::string table = {};          // file; empty: one in the user's cache, for these GPUs and versions
  std::uint64_t windows_from = 0;  // bytes that a rank gets, of which windows are read; 0: as measured, on every rank
  std::uint64_t meet_from = 0;     // bytes of all blocks, of which one warp waits for the others first; 0: none
  bool messages = false;           // with room for stream_messages(): 8.4 MiB. The same on every rank
  // Any number of graphs may be captured, not 128 with the streams: what they captured from one stream is never
  // launched again before its last launch has ended, and in the same order on every rank. The same on every rank.
  bool graphs_in_turn = false;
};

struct StreamMessage {   // of stream_messages(), to or from `peer`
  void* data = nullptr;  // what is sent is only read
  std::size_t size_bytes = 0;
  int peer = 0;
  bool receives = false;
};

using WindowId = NumberId<struct WindowOfId>;  // of a communicator, from 1, the same on every rank

}  // namespace fairway
