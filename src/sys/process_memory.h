#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// What the kernel knows of this process's memory: what can be read, where it lies, and how much more there is.
namespace fairway::sys {

// Whether the CPU can read the first and the last byte of the range. True where the kernel refuses to answer. Any
// thread.
bool readable(const void* address, std::size_t size);
// Whether it can write them. Commits their pages.
bool writable(void* address, std::size_t size);

// The NUMA node of the pages, by sampling three of them. -1: not present yet, on several nodes, or unknown to the
// kernel. Touches no page.
int numa_node_of(const void* address, std::size_t size_bytes);

// How much more memory this process can take, and what limits it.
struct AvailableMemory {
  std::uint64_t bytes = ~std::uint64_t{0};
  std::string limited_by;  // "the machine", "the control group /sys/fs/cgroup/job"
};

// Considers the machine (free and reclaimable memory, swap) and every memory control group of the process; page cache
// counts as free. A process that takes more gets no error: the kernel kills a process. The result is an estimate,
// because other processes allocate too. Whatever cannot be read imposes no limit. `root` is prepended to every path,
// for tests.
AvailableMemory available_memory(const std::string& root = {});

}  // namespace fairway::sys
