#include "support/cuda/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <sys/mman.h>
#include <unistd.h>

namespace standin {

Memory& Memory::get() {
  static Memory* const memory = new Memory;  // outlives every thread that still copies
  return *memory;
}

std::shared_ptr<Backing> Memory::back(std::uint64_t size, int device, bool vmm, bool lendable) {
  auto backing = std::make_shared<Backing>();
  backing->file = fairway::sys::Fd(::memfd_create("standin-gpu", MFD_CLOEXEC));
  backing->size = size;
  backing->device = device;
  backing->vmm = vmm;
  backing->lendable = lendable;
  if (!backing->file || ::ftruncate(backing->file.get(), static_cast<off_t>(size)) != 0) return nullptr;
  return backing;
}

Address Memory::map(std::shared_ptr<Backing> backing, Kind kind, Address at) {
  const int reach = kind == Kind::device ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* place = ::mmap(reinterpret_cast<void*>(at), backing->size, reach, MAP_SHARED | (at != 0 ? MAP_FIXED : 0),
                       backing->file.get(), 0);
  if (place == MAP_FAILED) return 0;
  void* shadow = ::mmap(nullptr, backing->size, PROT_READ | PROT_WRITE, MAP_SHARED, backing->file.get(), 0);
  if (shadow == MAP_FAILED) {
    ::munmap(place, backing->size);
    return 0;
  }
  const std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<std::uint64_t>(place);
  const std::uint64_t size = backing->size;
  std::set<int> reached_by;
  if (backing->vmm) reached_by.insert(-1);  // no device yet
  ranges_[base] = {std::move(backing), kind, base, size, static_cast<unsigned char*>(shadow), next_id_++, reached_by};
  return base;
}

bool Memory::unmap(Address base) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || found->second.backing == nullptr) return false;
  // Addresses of virtual memory management stay reserved.
  if (found->second.backing->vmm)
    ::mmap(reinterpret_cast<void*>(found->second.base), found->second.size, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  else
    ::munmap(reinterpret_cast<void*>(found->second.base), found->second.size);
  ::munmap(found->second.shadow, found->second.size);
  ranges_.erase(found);
  return true;
}

bool Memory::add_host(void* address, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<std::uint64_t>(address);
  const auto behind = ranges_.lower_bound(base + size);
  if (behind != ranges_.begin() && std::prev(behind)->second.base + std::prev(behind)->second.size > base) return false;
  ranges_[base] = {nullptr, Kind::pinned, base, size, static_cast<unsigned char*>(address), next_id_++, {}};
  return true;
}

bool Memory::remove_host(void* address) {
  const std::lock_guard lock(mutex_);
  return ranges_.erase(reinterpret_cast<std::uint64_t>(address)) == 1;
}

bool Memory::find(Address address, Range& out) {
  const std::lock_guard lock(mutex_);
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return false;
  const Range& range = std::prev(after)->second;
  if (address - range.base >= range.size) return false;
  out = range;
  return true;
}

void Memory::extend(Range& range) {
  if (!range.backing || !range.backing->vmm) return;
  const std::lock_guard lock(mutex_);
  const auto joins = [](const Range& other) { return other.backing && other.backing->vmm; };
  for (auto at = ranges_.find(range.base); at != ranges_.begin();) {
    --at;
    if (!joins(at->second) || at->second.base + at->second.size != range.base) break;
    range.base = at->second.base;
    range.size += at->second.size;
  }
  for (auto at = ranges_.find(range.base + range.size); at != ranges_.end() && joins(at->second);
       at = ranges_.find(range.base + range.size))
    range.size += at->second.size;
}

bool Memory::allow(Address base, std::uint64_t size, int device) {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t at = base; at < base + size;) {
    const auto found = ranges_.find(at);
    if (found == ranges_.end() || found->second.size > base + size - at) return false;
    found->second.reached_by.insert(device);
    at += found->second.size;
  }
  return true;
}

unsigned char* Memory::touch(Address address, std::uint64_t& size, int device) {
  Range range;
  if (!find(address, range)) return reinterpret_cast<unsigned char*>(address);
  const std::uint64_t left = range.size - (address - range.base);
  Range next;
  const bool joins = range.backing == nullptr || range.backing->vmm;  // pinned, or virtual memory management
  const bool goes_on = joins && find(range.base + range.size, next) &&
                       (next.backing == nullptr) == (range.backing == nullptr) &&
                       (next.backing == nullptr || next.backing->vmm);
  if (size > left && !goes_on) return nullptr;
  if (!range.reached_by.empty() && !range.reached_by.contains(device)) return nullptr;
  size = std::min(size, left);
  return range.shadow + (address - range.base);
}

// The number of the copy between devices that gets a wrong byte, from the environment.
static const std::optional<std::uint64_t>& spoils_after() {
  static const std::optional<std::uint64_t> after = [] {
    const char* set = std::getenv("FAIRWAY_STANDIN_SPOIL");
    return set == nullptr ? std::nullopt : std::optional<std::uint64_t>(std::strtoull(set, nullptr, 10));
  }();
  return after;
}

bool Memory::is_peers(Address address, int device) {
  Range range;
  return find(address, range) && range.backing != nullptr && range.kind == Kind::device &&
         range.backing->device != device;
}

// A copy engine moves words whole, and kernels may look at a few of them meanwhile. Of more nobody expects it.
template <class Word>
static bool move_words(unsigned char* to, const unsigned char* from, std::uint64_t size) {
  constexpr std::uint64_t kFew = 1024;
  const auto places = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | size;
  if (size > kFew || places % sizeof(Word) != 0) return false;
  for (std::uint64_t at = 0; at < size; at += sizeof(Word)) {
    const Word word = __atomic_load_n(reinterpret_cast<const Word*>(from + at), __ATOMIC_RELAXED);
    __atomic_store_n(reinterpret_cast<Word*>(to + at), word, __ATOMIC_RELAXED);
  }
  return true;
}

static void move(unsigned char* to, const unsigned char* from, std::uint64_t size) {
  if (to == from || move_words<std::uint64_t>(to, from, size) || move_words<std::uint32_t>(to, from, size)) return;
  std::memmove(to, from, size);
}

bool Memory::copy(Address to, Address from, std::uint64_t size, int device) {
  while (size > 0) {
    std::uint64_t here = size, there = size;
    unsigned char* target = touch(to, here, device);
    const unsigned char* source = touch(from, there, device);
    if (target == nullptr || source == nullptr) return false;
    const std::uint64_t part = std::min(here, there);
    if (!loses_peer_writes || !is_peers(to, device)) move(target, source, part);
    if (target != reinterpret_cast<unsigned char*>(to) && source != reinterpret_cast<const unsigned char*>(from) &&
        spoils_after() && copies_.fetch_add(1) + 1 == *spoils_after())
      spoils = true;
    if (spoils.exchange(false)) target[part / 2] ^= 1;
    to += part;
    from += part;
    size -= part;
  }
  return true;
}

bool Memory::set(Address to, unsigned char value, std::uint64_t size, int device) {
  while (size > 0) {
    std::uint64_t part = size;
    unsigned char* target = touch(to, part, device);
    if (target == nullptr) return false;
    std::memset(target, value, part);
    to += part;
    size -= part;
  }
  return true;
}

}  // namespace standin
