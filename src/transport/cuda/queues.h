#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/cuda/devices.h"
#include "transport/cuda/stream_kernels.h"
#include "transport/host/mover.h"

namespace fairway::transport::cuda {

// One device's queues of copies: two for large ones, taken in turn, one that passes them, and some for those that wait
// for an event of the caller's. Each tells how far it
// came by a word in host memory that the device writes after a flush's copies. Made on any thread; then owned by the
// worker.
class Queues {
 public:
  static constexpr std::uint32_t kBulk = 2, kUrgent = 2, kWaiting = 3, kWaitings = 4, kCount = kWaiting + kWaitings;
  static constexpr std::size_t kLists = 64;
  static constexpr std::size_t kListed = 4096;  // copies that one kernel takes
  // Bytes a copy: larger ones go by the copy engines. All of these by bench/nccl/copies on H200s (docs/cuda.md).
  static constexpr std::uint64_t kKernelBelow = 256 * 1024, kKernelBelowBetweenGpus = 1024 * 1024;
  static constexpr std::size_t kKernelFrom = 8;  // copies: for fewer, the engines' calls cost less
  static constexpr std::size_t kBatchFrom = 2;   // copies that go by one call of the engines'

  static Result<std::unique_ptr<Queues>> make(Devices& devices, int device);
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  std::byte* take_stage();
  void give_stage(std::byte* stage) { free_stages_.push_back(stage); }
  // In what a kernel can read, while there is any.
  std::span<host::Mover::Copy> list();
  [[nodiscard]] bool is_listed(std::span<const host::Mover::Copy> copies) const {
    return lists_ != nullptr && copies.data() >= lists_ && copies.data() < lists_ + kLists * kListed;
  }
  // `kernel_below`: bytes of a copy that a kernel may do; 0: some of the memory is beyond a kernel's reach, not pinned.
  Status start(std::span<const host::Mover::Copy> copies, std::uint64_t kernel_below, bool urgent, void* after,
               host::Mover::Ticket& out);
  void flush();  // what was started since the last time is going to be told of
  host::Mover::Readiness look(const host::Mover::Ticket& ticket, std::string& why);

  // For streams of the caller's; any thread.
  [[nodiscard]] const StreamKernels& for_streams() const { return for_streams_; }

 private:
  struct alignas(64) Word {
    std::uint32_t serial;
  };
  struct Queue {
    sys::cuda::Stream stream = nullptr;
    std::uint32_t serial = 0;                                   // last that the device was told to write
    bool waits = false;                                         // copies behind it
    std::deque<std::pair<std::uint32_t, std::uint32_t>> lists;  // serial, list in use until it is over
  };
  struct Failure {
    host::Mover::Ticket ticket;
    std::string why;
  };
  Queues(Devices& devices, int device, sys::cuda::Context context)
      : devices_(devices), device_(device), context_(context) {}
  Status set_up();
  // `queued`: something is under way, also where another copy is refused.
  Status copy_each(Queue& queue, std::span<const host::Mover::Copy> copies, std::size_t from, bool& queued);
  Status copy_as_one(Queue& queue, std::span<const host::Mover::Copy> copies, bool& queued);
  Status copy_by_kernel(Queue& queue, std::uint32_t list, std::uint32_t count);
  void take_lists_back();

  Devices& devices_;
  const int device_;
  const sys::cuda::Context context_;
  std::array<Queue, kCount> queues_;
  std::uint32_t next_bulk_ = 0, next_waiting_ = 0;
  Word* words_ = nullptr;  // pinned
  StreamKernels for_streams_;
  sys::cuda::Module module_ = nullptr;
  sys::cuda::Function kernel_ = nullptr;
  host::Mover::Copy* lists_ = nullptr;  // pinned: lists of pieces
  std::vector<std::uint32_t> free_lists_;
  std::vector<host::Mover::Copy> plain_;       // a list for when there is none
  std::vector<sys::cuda::Address> to_, from_;  // with sizes_, what one call takes; no larger than kListed
  std::vector<std::size_t> sizes_;
  std::byte* stages_ = nullptr;  // pinned, on first use
  std::vector<std::byte*> free_stages_;
  std::vector<Failure> failures_;
  std::string dead_;  // why the device does nothing any more
  std::uint32_t looks_ = 0;
};

}  // namespace fairway::transport::cuda
