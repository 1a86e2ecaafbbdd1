#include "fairway/device.cuh"

// The kernels of stream_put and stream_wait_signal.
namespace dev = fairway::device;

namespace {

constexpr unsigned kSet = 1, kAdd = 2;

__device__ void signal(dev::Word* word, dev::Word value, unsigned how) {
  if (how == kSet) dev::signal_set<dev::Block>(word, value);
  if (how == kAdd) dev::signal_add<dev::Block>(word, value);
}

}  // namespace

// One block.
extern "C" __global__ void __launch_bounds__(1024) fairway_put(void* to, const void* from, unsigned long long length, dev::Word* word,
                                       dev::Word value, unsigned how) {
  dev::put<dev::Block>(to, from, length);
  signal(word, value, how);
}

// Any one-dimensional grid; the signal follows in another kernel.
extern "C" __global__ void __launch_bounds__(512) fairway_put_part(void* to, const void* from, unsigned long long length) {
  dev::put_by_grid(to, from, length);
}

// One thread.
extern "C" __global__ void fairway_wait(const dev::Word* word, dev::Word* count, dev::Word value,
                                        unsigned long long nanoseconds, const unsigned* ended, unsigned past_deadline,
                                        unsigned* outcome) {
  const dev::Word target = (count == nullptr ? 0 : *count) + value;
  const bool came = dev::signal_wait(word, target, dev::now() + nanoseconds, ended);
  if (came && count != nullptr) *count = target;
  unsigned why = past_deadline;
  if (!came && ended != nullptr && *static_cast<const volatile unsigned*>(ended) != 0)
    why = *static_cast<const volatile unsigned*>(ended);
  *outcome = came ? 0 : why;
}
