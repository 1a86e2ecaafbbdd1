#include "sys/readable.h"

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace fairway::sys {

// Lets the kernel read: it returns EFAULT where a load in this process would raise a signal.
bool readable(const void* address, std::size_t size) {
  if (size == 0) return true;
  for (const std::size_t at : {std::size_t{0}, size - 1}) {
    char byte = 0;
    const iovec here{&byte, 1};
    const iovec there{static_cast<char*>(const_cast<void*>(address)) + at, 1};
    if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) < 0 && errno == EFAULT) return false;
  }
  return true;
}

namespace {

// Of the mapping that the kernel lists at this address. True where it lists none.
bool listed_as_writable(std::uintptr_t at) {
  std::ifstream maps("/proc/self/maps");  // "7f12a000-7f12b000 r--p ..."
  std::uintptr_t from = 0, to = 0;
  char dash = 0;
  std::string permissions, rest;
  while (maps >> std::hex >> from >> dash >> to >> permissions && std::getline(maps, rest))
    if (at >= from && at < to) return permissions.size() > 1 && permissions[1] == 'w';
  return true;
}

#ifdef MADV_POPULATE_WRITE
// As a store to that page would. 0: yes.
int populate(std::uintptr_t at) {
  static const std::uintptr_t page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return ::madvise(reinterpret_cast<void*>(at & ~(page - 1)), page, MADV_POPULATE_WRITE);
}

// QEMU's user mode says yes to advice that it does not know. A constant's page is read-only, which a kernel notices.
bool is_answered() {
  static const char kConstant = 0;
  static const bool refused = populate(reinterpret_cast<std::uintptr_t>(&kConstant)) != 0;
  return refused;
}
#endif

}  // namespace

// Asks the kernel to make the pages writable as a store would, which changes no byte. Where it refuses, mappings are
// read-only, or special, or the kernel does not know the question: then its list is read.
bool writable(void* address, std::size_t size) {
  if (size == 0) return true;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  for (const std::uintptr_t at : {first, first + size - 1}) {
#ifdef MADV_POPULATE_WRITE
    if (is_answered() && populate(at) == 0) continue;
#endif
    if (!listed_as_writable(at)) return false;
  }
  return true;
}

}  // namespace fairway::sys
