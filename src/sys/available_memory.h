#pragma once

#include <cstdint>
#include <string>

namespace fairway::sys {

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
