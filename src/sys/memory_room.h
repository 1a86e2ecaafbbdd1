#pragma once

#include <cstdint>
#include <string>

namespace fairway::sys {

// How much more memory this process can have, and what says so.
struct MemoryRoom {
  std::uint64_t bytes = ~std::uint64_t{0};
  std::string limited_by;  // "the machine", "the control group /sys/fs/cgroup/job"
};

// By the machine (free and reclaimable memory, swap) and by every memory control group that the process is in, where
// what is cached of files counts as free. Who takes more is not told so: the kernel kills a process. An estimate, since
// others take memory meanwhile; what cannot be read limits nothing. `root` stands before each path.
MemoryRoom memory_room(const std::string& root = {});

}  // namespace fairway::sys
