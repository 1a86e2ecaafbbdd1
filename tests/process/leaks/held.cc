#include "process/leaks/held.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <malloc.h>

namespace fairway::leaks {
namespace {

std::uint64_t entries(const char* folder) {
  std::error_code none;
  const std::filesystem::directory_iterator all(folder, none);
  return none ? 0 : static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

// Of files, devices and the kernel. Anonymous memory is the heap's, which maps and unmaps as it likes.
std::uint64_t mapped_files() {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find('/') != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace

Held Held::now() {
  Held held;
  held.descriptors = entries("/proc/self/fd");
  held.mappings = mapped_files();
  held.threads = entries("/proc/self/task");
  held.named_memory = entries("/dev/shm");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const struct mallinfo2 heap = ::mallinfo2();
  held.heap_bytes = heap.uordblks + heap.hblkhd;
#endif
  return held;
}

std::string Held::text() const {
  std::ostringstream out;
  out << descriptors << ' ' << mappings << ' ' << threads << ' ' << named_memory << ' ' << heap_bytes;
  return out.str();
}

Held Held::of(const std::string& text) {
  Held held;
  std::istringstream(text) >> held.descriptors >> held.mappings >> held.threads >> held.named_memory >> held.heap_bytes;
  return held;
}

std::string more(const Held& before, const Held& after, std::uint64_t heap_slack) {
  std::ostringstream out;
  const auto compare = [&](const char* what, std::uint64_t was, std::uint64_t is) {
    if (is > was) out << what << ": " << was << " before, " << is << " after; ";
  };
  compare("descriptors", before.descriptors, after.descriptors);
  compare("mapped files", before.mappings, after.mappings);
  compare("threads", before.threads, after.threads);
  compare("entries of /dev/shm", before.named_memory, after.named_memory);
  compare("bytes of heap", before.heap_bytes,
          std::max(before.heap_bytes, after.heap_bytes) > before.heap_bytes + heap_slack ? after.heap_bytes
                                                                                         : before.heap_bytes);
  return out.str();
}

}  // namespace fairway::leaks
