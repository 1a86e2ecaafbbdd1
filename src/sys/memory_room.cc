#include "sys/memory_room.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace fairway::sys {
namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return {};  // "max", or no such file
}

// The sum of those lines of a file that begin with one of the words.
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

// Whether `word` is in a list with commas.
bool lists(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// One of the two hierarchies that limit memory: where it is mounted, and where in it this process is.
struct Hierarchy {
  bool second = false;  // version 2, else 1
  std::string mount, group;
};

// Of the process, as /proc/self/cgroup says it, "number:controllers:path".
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
    // A container sees the hierarchy from its own group on, and may be told its path from the top.
    if (top != "/" && path->compare(0, top.size(), top) == 0) path->erase(0, top.size());
    Hierarchy found{second, root + mount, root + mount + (*path == "/" ? "" : *path)};
    if (!std::ifstream(found.group + "/cgroup.procs")) found.group = found.mount;
    return found;
  }
  return {};
}

// What a group may still have; nothing: it has no limit.
std::optional<std::uint64_t> room_in(const std::string& group, bool second) {
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

MemoryRoom memory_room(const std::string& root) {
  MemoryRoom room;
  const std::uint64_t machine = sum_of(root + "/proc/meminfo", {"MemAvailable:", "SwapFree:"}, 1024);
  if (machine != 0) room = {machine, "the machine"};
  for (const bool second : {false, true}) {
    const auto hierarchy = find(root, second);
    if (!hierarchy) continue;
    for (std::string group = hierarchy->group; group.size() >= hierarchy->mount.size();
         group.erase(group.find_last_of('/'))) {
      const auto left = room_in(group, second);
      if (left && *left < room.bytes) room = {*left, "the control group " + group.substr(root.size())};
    }
  }
  return room;
}

}  // namespace fairway::sys
