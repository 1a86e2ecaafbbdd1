#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "sys/cuda.h"
#include "sys/fd.h"

// The stand-in driver's memory. A device's is a memory file, which other processes may map. Its "device address" is a
// place that no CPU may touch (PROT_NONE), so that code which forgets what it holds ends there, as on a machine with a
// GPU; the driver's own copies go through a second mapping.
namespace standin {

using fairway::sys::cuda::Address;

enum class Kind : std::uint8_t { device, managed, pinned };

struct Backing {  // what a handle names
  fairway::sys::Fd file;
  std::uint64_t size = 0;
  int device = 0;
  bool lendable = true;  // by IPC, or of virtual memory management by a descriptor
  bool vmm = false;
};

struct Range {  // of addresses
  std::shared_ptr<Backing> backing;
  Kind kind = Kind::device;
  std::uint64_t base = 0, size = 0;
  unsigned char* shadow = nullptr;  // where its bytes can be touched
  unsigned long long id = 0;
  std::set<int> reached_by;  // of virtual memory management; empty: by every device
};

class Memory {
 public:
  static Memory& get();

  std::shared_ptr<Backing> back(std::uint64_t size, int device, bool vmm, bool lendable);
  // At a place of its own, or at `at`, reserved before. 0: it failed.
  Address map(std::shared_ptr<Backing> backing, Kind kind, Address at = 0);
  bool unmap(Address base);
  void add_host(void* address, std::uint64_t size);
  bool remove_host(void* address);
  // False: no such range. A copy: it may end at any time.
  bool find(Address address, Range& out);
  // What the driver says of it: virtual memory mapped side by side has one range.
  void extend(Range& range);
  // Of all mappings in the range, which must be mapped throughout.
  bool allow(Address base, std::uint64_t size, int device);
  // By a device. False: it may not touch some of the bytes. Neighbours of virtual memory management are one memory.
  bool copy(Address to, Address from, std::uint64_t size, int device);
  std::atomic<bool> spoils{false};             // for tests: the next copy brings a wrong byte
  std::atomic<bool> loses_peer_writes{false};  // for tests: what a device writes to another one's memory
  bool set(Address to, unsigned char value, std::uint64_t size, int device);

 private:
  // Where the bytes at `address` can be touched, for a device, and how many of `size`: plain memory is itself. Null:
  // they may not be.
  unsigned char* touch(Address address, std::uint64_t& size, int device);
  bool is_peers(Address address, int device);

  std::atomic<std::uint64_t> copies_{0};  // between devices
  std::mutex mutex_;
  std::map<std::uint64_t, Range> ranges_;  // by base
  unsigned long long next_id_ = 1;
};

}  // namespace standin
