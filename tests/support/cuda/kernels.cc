#include "support/cuda/kernels.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "support/cuda/memory.h"

namespace standin {
namespace {

using Work = std::function<bool()>;

template <class Value>
Value argument(void** arguments, int index) {
  return *static_cast<Value*>(arguments[index]);
}

// The accessible address of a word; null: that device may not access it.
template <class Value>
Value* place_of(Address address, int device) {
  Range range;
  if (!Memory::get().find(address, range)) return reinterpret_cast<Value*>(address);
  if (range.size - (address - range.base) < sizeof(Value)) return nullptr;
  if (!range.reached_by.empty() && !range.reached_by.contains(device)) return nullptr;
  return reinterpret_cast<Value*>(range.shadow + (address - range.base));
}

// A kernel may access pinned host memory; access to other host memory ends its context.
bool copy(Address to, Address from, std::uint64_t size, int device) {
  Range range;
  return Memory::get().find(to, range) && Memory::get().find(from, range) && Memory::get().copy(to, from, size, device);
}

struct Piece {  // as in copy_pieces.cu
  Address to, from;
  std::uint64_t size;
};

Work copy_pieces(int device, void** arguments) {
  return [device, pieces = argument<const Piece*>(arguments, 0), count = argument<unsigned>(arguments, 1)] {
    for (unsigned i = 0; i < count; ++i)
      if (!copy(pieces[i].to, pieces[i].from, pieces[i].size, device)) return false;
    return true;
  };
}

// The numbers used in signals.cu.
constexpr unsigned kSet = 1, kAdd = 2;

Work put_part(int device, void** arguments) {
  return [device, to = argument<Address>(arguments, 0), from = argument<Address>(arguments, 1),
          length = argument<std::uint64_t>(arguments, 2)] { return length == 0 || copy(to, from, length, device); };
}

Work put(int device, void** arguments) {
  return [device, bytes = put_part(device, arguments), word = argument<Address>(arguments, 3),
          value = argument<std::uint64_t>(arguments, 4), how = argument<unsigned>(arguments, 5)] {
    if (!bytes()) return false;
    if (how != kSet && how != kAdd) return true;
    auto* place = place_of<std::uint64_t>(word, device);
    if (place == nullptr) return false;
    if (how == kSet)
      std::atomic_ref(*place).store(value, std::memory_order_release);
    else
      std::atomic_ref(*place).fetch_add(value, std::memory_order_release);
    return true;
  };
}

Work wait(int device, void** arguments) {
  return [device, at = argument<Address>(arguments, 0), counts = argument<Address>(arguments, 1),
          value = argument<std::uint64_t>(arguments, 2), nanoseconds = argument<std::uint64_t>(arguments, 3),
          ends = argument<std::uint32_t*>(arguments, 4), late = argument<unsigned>(arguments, 5),
          says = argument<Address>(arguments, 6)] {
    auto* word = place_of<std::uint64_t>(at, device);
    auto* count = counts == 0 ? nullptr : place_of<std::uint64_t>(counts, device);
    auto* outcome = place_of<std::uint32_t>(says, device);
    if (word == nullptr || outcome == nullptr || (counts != 0 && count == nullptr)) return false;
    const std::uint64_t target = (count == nullptr ? 0 : *count) + value;
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
    const auto ended = [&] { return ends == nullptr ? 0 : std::atomic_ref(*ends).load(std::memory_order_acquire); };
    bool came = false;
    for (;;) {
      came = static_cast<std::int64_t>(std::atomic_ref(*word).load(std::memory_order_acquire) - target) >= 0;
      if (came || std::chrono::steady_clock::now() >= until || ended() != 0) break;
      std::this_thread::yield();
    }
    if (came && count != nullptr) *count = target;
    std::atomic_ref(*outcome).store(came ? 0 : ended() != 0 ? ended() : late, std::memory_order_release);
    return true;
  };
}

constexpr Kernel kKernels[] = {
    {"fairway_copy_pieces", copy_pieces}, {"fairway_put", put}, {"fairway_put_part", put_part}, {"fairway_wait", wait}};

struct LookedFor {
  std::mutex mutex;          // guards names
  std::string names = "\n";  // of kernels that were looked for, a line each
} looked_for;

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  {
    const std::lock_guard lock(looked_for.mutex);
    looked_for.names += std::string(name) + "\n";
  }
  for (const Kernel& kernel : kKernels)
    if (kernel.name == name) return &kernel;
  for (const Kernel& kernel : group_kernels())
    if (kernel.name == name) return &kernel;
  return nullptr;
}

}  // namespace standin

// For tests: whether a kernel was looked for whose name begins so.
extern "C" __attribute__((visibility("default"))) bool fairway_standin_loaded(const char* kernel) {
  const std::lock_guard lock(standin::looked_for.mutex);
  return standin::looked_for.names.find("\n" + std::string(kernel)) != std::string::npos;
}
