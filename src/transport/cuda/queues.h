#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/cuda/devices.h"
#include "transport/cuda/stream_kernels.h"
#include "transport/host/mover.h"

namespace fairway::transport::cuda {

// One device's copy queues: two for large copies, used in turn, one for urgent copies, and some for copies that wait
// for a caller's event. The device reports each queue's progress in a word in host memory, which it writes after the
// copies of a flush. Made on any thread, then owned by the worker.
class Queues {
 public:
  static constexpr std::uint32_t kBulk = 2, kUrgent = 2, kWaiting = 3, kWaitings = 4, kCount = kWaiting + kWaitings;
  static constexpr std::size_t kLists = 64;
  static constexpr std::size_t kListed = 4096;  // most copies of one kernel
  // Bytes per copy: larger ones use the copy engines. These limits were measured by bench/nccl/copies on H200s
  // (docs/cuda.md).
  static constexpr std::uint64_t kKernelBelow = 256 * 1024, kKernelBelowBetweenGpus = 1024 * 1024;
  static constexpr std::size_t kKernelFrom = 8;  // copies: for fewer, calls of the copy engines cost less
  static constexpr std::size_t kBatchFrom = 2;   // copies: from here on one batch call

  static constexpr std::size_t kScratch = 64 * 1024;  // each 256 bytes of addresses use another NVLink

  // `scratch`: with memory on the device that a read may overwrite.
  static Result<std::unique_ptr<Queues>> make(Devices& devices, int device, bool scratch = false);
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  std::byte* take_stage();
  void give_stage(std::byte* stage) { free_stages_.push_back(stage); }
  // A list for copies, which a kernel can read if one is free.
  std::span<host::Mover::Copy> list();
  [[nodiscard]] bool is_listed(std::span<const host::Mover::Copy> copies) const {
    return lists_ != nullptr && copies.data() >= lists_ && copies.data() < lists_ + kLists * kListed;
  }
  // `kernel_below`: a kernel may do copies smaller than this; 0: a kernel cannot access some of the memory. A copy that
  // leaves the pinned memory in which it begins is cut there, since the driver refuses it. `urgent`: small ones.
  Status start(std::span<const host::Mover::Copy> copies, std::uint64_t kernel_below, bool urgent, void* after,
               host::Mover::Ticket& out);
  void flush() {  // makes the device report the copies started since the last flush
    if (unmarked_ != 0) mark();
  }
  host::Mover::Readiness poll(const host::Mover::Ticket& ticket, std::string& why);

  // Empty: made without, or the device has no memory for it.
  [[nodiscard]] std::span<std::byte> scratch() const { return {scratch_, scratch_ == nullptr ? 0 : kScratch}; }

  // For the caller's streams; any thread.
  [[nodiscard]] const StreamKernels& for_streams() const { return for_streams_; }

 private:
  struct alignas(64) Word {
    std::uint32_t serial;
  };
  struct Queue {
    sys::cuda::Stream stream = nullptr;
    std::uint32_t serial = 0;                                   // the last one that the device will write
    std::deque<std::pair<std::uint32_t, std::uint32_t>> lists;  // {serial, list}: in use until that serial
  };
  Queues(Devices& devices, int device, sys::cuda::Context context)
      : devices_(devices), device_(device), context_(context) {}
  Status set_up(bool scratch);
  void mark();  // writes the word behind the last copy of each queue that has copies behind its last one
  // `queued`: some copy was queued, even if a later one failed.
  Status copy_each(Queue& queue, std::span<const host::Mover::Copy> copies, std::size_t from, bool& queued);
  Status copy_as_one(Queue& queue, std::span<const host::Mover::Copy> copies, bool& queued);
  Status wait_for_event(Queue& queue, sys::cuda::Event after);
  int copy_in_parts(const Queue& queue, const host::Mover::Copy& copy, bool& queued);
  Status copy_by_kernel(Queue& queue, std::span<const host::Mover::Copy> copies);
  [[nodiscard]] bool by_kernel(std::span<const host::Mover::Copy> copies, std::uint64_t kernel_below,
                               bool urgent) const;
  [[nodiscard]] bool bulk_is_queued() const;
  void take_lists_back();

  Devices& devices_;
  const int device_;
  const sys::cuda::Context context_;
  std::array<Queue, kCount> queues_;
  std::uint32_t unmarked_ =
      0;  // bits of the queues with copies behind their last word: a poll without any costs a compare
  std::uint32_t next_bulk_ = 0, next_waiting_ = 0;
  Word* words_ = nullptr;  // pinned
  std::byte* scratch_ = nullptr;
  StreamKernels for_streams_;
  sys::cuda::Function kernel_ = nullptr;
  host::Mover::Copy* lists_ = nullptr;  // pinned: lists of pieces
  std::vector<std::uint32_t> free_lists_;
  std::vector<host::Mover::Copy> plain_;       // used if no pinned list is free
  std::vector<sys::cuda::Address> to_, from_;  // with sizes_: the arguments of a batch call, kListed at most
  std::vector<std::size_t> sizes_;
  std::byte* stages_ = nullptr;  // pinned, on first use
  std::vector<std::byte*> free_stages_;
  std::unordered_map<std::uint32_t, std::string> failures_;  // why copies were refused, until that was told
  std::uint32_t next_failure_ = 1;
  std::string dead_;  // why the device has failed
  std::uint32_t looks_ = 0;
};

}  // namespace fairway::transport::cuda
