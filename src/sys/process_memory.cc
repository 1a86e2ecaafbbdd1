#include "sys/process_memory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>

#include <sys/mman.h>
#include <sys/syscall.h>
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

namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return {};  // "max", or the file does not exist
}

// The sum of the file's lines that begin with one of the words.
std::uint64_t sum_of(const std::string& path, std::initializer_list<const char*> words, std::uint64_t unit) {
  std::ifstream file(path);
  std::uint64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string word;
    std::uint64_t value = 0;
    if (fields >> word >> value && std::find(words.begin(), words.end(), word) != words.end()) sum += value * unit;
  }
  return sum;
}

// Whether `word` is in a comma-separated list.
bool lists(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// One of the two control group hierarchies that limit memory: its mount point and this process's group.
struct Hierarchy {
  bool second = false;  // cgroup v2; otherwise v1
  std::string mount, group;
};

// This process's group in /proc/self/cgroup, whose lines are "number:controllers:path".
std::optional<std::string> path_in(const std::string& root, bool second) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), next = line.find(':', first + 1);
    if (first == std::string::npos || next == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, next - first - 1);
    if (second ? controllers.empty() : lists(controllers, "memory")) return line.substr(next + 1);
  }
  return {};
}

std::optional<Hierarchy> find(const std::string& root, bool second) {
  auto path = path_in(root, second);
  if (!path) return {};
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), behind(line.substr(dash + 3));
    std::string number, parent, device, top, mount, type, source, options;
    before >> number >> parent >> device >> top >> mount;
    behind >> type >> source >> options;
    if (second ? type != "cgroup2" : type != "cgroup" || !lists(options, "memory")) continue;
    // A container sees the hierarchy only from its own group down, but may be told the path from the top.
    if (top != "/" && path->compare(0, top.size(), top) == 0) path->erase(0, top.size());
    Hierarchy found{second, root + mount, root + mount + (*path == "/" ? "" : *path)};
    if (!std::ifstream(found.group + "/cgroup.procs")) found.group = found.mount;
    return found;
  }
  return {};
}

// The memory that a group may still take; empty: no limit.
std::optional<std::uint64_t> available_in(const std::string& group, bool second) {
  const auto most = number_in(group + (second ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = number_in(group + (second ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!most || !used) return {};
  const std::uint64_t cached =
      sum_of(group + "/memory.stat",
             second ? std::initializer_list<const char*>{"inactive_file", "active_file"}
                    : std::initializer_list<const char*>{"total_inactive_file", "total_active_file"},
             1);
  const std::uint64_t kept = *used - std::min(*used, cached);
  return *most - std::min(*most, kept);
}

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory available;
  const std::uint64_t machine = sum_of(root + "/proc/meminfo", {"MemAvailable:", "SwapFree:"}, 1024);
  if (machine != 0) available = {machine, "the machine"};
  for (const bool second : {false, true}) {
    const auto hierarchy = find(root, second);
    if (!hierarchy) continue;
    for (std::string group = hierarchy->group; group.size() >= hierarchy->mount.size();
         group.erase(group.find_last_of('/'))) {
      const auto left = available_in(group, second);
      if (left && *left < available.bytes) available = {*left, "the control group " + group.substr(root.size())};
    }
  }
  return available;
}

}  // namespace fairway::sys
