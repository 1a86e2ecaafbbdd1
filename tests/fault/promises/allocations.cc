#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> all{0};
std::atomic<std::int64_t> bytes{0};
thread_local std::uint64_t mine = 0;

// Stored in front of each allocation: its size, and the pointer that malloc() returned.
struct Head {
  std::size_t size;
  void* start;
};

void* take(std::size_t size, std::size_t alignment) {
  const std::size_t room = alignment < sizeof(Head) ? sizeof(Head) : alignment;
  void* start = std::malloc(size + room + alignment);
  if (start == nullptr) throw std::bad_alloc();
  const auto first = reinterpret_cast<std::uintptr_t>(start) + room;
  const std::uintptr_t place = (first + alignment - 1) / alignment * alignment;
  new (reinterpret_cast<void*>(place - sizeof(Head))) Head{size, start};
  ++mine;
  all.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  return reinterpret_cast<void*>(place);
}

void give_back(void* place) {
  if (place == nullptr) return;
  const Head head = *reinterpret_cast<Head*>(reinterpret_cast<std::uintptr_t>(place) - sizeof(Head));
  bytes.fetch_sub(static_cast<std::int64_t>(head.size), std::memory_order_relaxed);
  std::free(head.start);
}

}  // namespace

void* operator new(std::size_t size) {
  return take(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size) {
  return take(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {  // used by std::stable_sort, for example
  return take(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return take(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return take(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* place) noexcept {
  give_back(place);
}
void operator delete[](void* place) noexcept {
  give_back(place);
}
void operator delete(void* place, std::size_t) noexcept {
  give_back(place);
}
void operator delete[](void* place, std::size_t) noexcept {
  give_back(place);
}
void operator delete(void* place, std::align_val_t) noexcept {
  give_back(place);
}
void operator delete[](void* place, std::align_val_t) noexcept {
  give_back(place);
}
void operator delete(void* place, std::size_t, std::align_val_t) noexcept {
  give_back(place);
}
void operator delete[](void* place, std::size_t, std::align_val_t) noexcept {
  give_back(place);
}

namespace fairway::promises {

std::uint64_t allocations_of_this_thread() {
  return mine;
}
std::uint64_t allocations_of_all_threads() {
  return all.load();
}
std::int64_t bytes_allocated() {
  return bytes.load();
}

}  // namespace fairway::promises
