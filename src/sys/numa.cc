#include "sys/numa.h"

#include <array>
#include <cstdint>

#include <sys/syscall.h>
#include <unistd.h>

namespace fairway::sys {

int numa_node_of(const void* address, std::size_t size_bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  std::array<void*, 3> pages{};
  for (std::size_t i = 0; i < pages.size(); ++i)
    pages[i] = reinterpret_cast<void*>((begin + (size_bytes - 1) / 2 * i) / page * page);
  std::array<int, 3> nodes{};
  // Without target nodes move_pages only reports where pages are, and does not fault in missing ones.
  if (::syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) return -1;
  int node = -1;
  for (const int each : nodes) {
    if (each < 0) continue;
    if (node >= 0 && each != node) return -1;
    node = each;
  }
  return node;
}

}  // namespace fairway::sys
