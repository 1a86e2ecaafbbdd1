#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "sys/cuda.h"
#include "sys/fd.h"

// The stand-in driver's memory. Device memory is a memory file, which other processes may map. Its "device address" is
// a range that no CPU may access (PROT_NONE), so that code which mixes up device and host pointers crashes, as on a
// machine with a GPU. The driver's own copies use a second mapping.
namespace standin {

using fairway::sys::cuda::Address;

enum class Kind : std::uint8_t { device, managed, pinned };

struct Backing {  // what an allocation handle refers to
  fairway::sys::Fd file;
  std::uint64_t size = 0;
  int device = 0;
  bool lendable = true;  // by IPC, or by descriptor for virtual memory management
  bool vmm = false;
};

struct Range {  // of addresses
  std::shared_ptr<Backing> backing;
  Kind kind = Kind::device;
  std::uint64_t base = 0, size = 0;
  unsigned char* shadow = nullptr;  // where its bytes are accessible
  unsigned long long id = 0;
  std::set<int> reached_by;  // virtual memory management: devices with access; empty: every device
};

class Memory {
 public:
  static Memory& get();

  std::shared_ptr<Backing> back(std::uint64_t size, int device, bool vmm, bool lendable);
  // Maps at a new address, or at the reserved address `at`. Returns 0 on failure.
  Address map(std::shared_ptr<Backing> backing, Kind kind, Address at = 0);
  bool unmap(Address base);
  bool add_host(void* address, std::uint64_t size);  // false: some of it is pinned already
  bool remove_host(void* address);
  // False: no such range. `out` is a copy, because the range may end at any time.
  bool find(Address address, Range& out);
  // Extends the range as the driver reports it: adjacent mappings of virtual memory count as one range.
  void extend(Range& range);
  // Grants access to all mappings in the range, which must be mapped without gaps.
  bool allow(Address base, std::uint64_t size, int device);
  // Copies as that device. False: it may not access some of the bytes. Adjacent mappings of virtual memory count as
  // one.
  bool copy(Address to, Address from, std::uint64_t size, int device);
  std::atomic<bool> spoils{false};             // for tests: the next copy has a wrong byte
  std::atomic<bool> loses_peer_writes{false};  // for tests: a device's writes to another device's memory are lost
  bool set(Address to, unsigned char value, std::uint64_t size, int device);

 private:
  // Where the bytes at `address` are accessible for a device, and how many of `size`. Plain memory is itself. Null: no
  // access.
  unsigned char* touch(Address address, std::uint64_t& size, int device);
  bool is_peers(Address address, int device);

  std::atomic<std::uint64_t> copies_{0};  // between devices
  std::mutex mutex_;
  std::map<std::uint64_t, Range> ranges_;  // by base address
  unsigned long long next_id_ = 1;
};

}  // namespace standin
