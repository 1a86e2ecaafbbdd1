#include "collectives/host/nearness.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

namespace fairway::collectives {
namespace {

constexpr std::uint16_t kShm = 1, kLoopback = 2;  // Words::ways
constexpr std::chrono::milliseconds kSetUp{20};   // how long a slower link may be the only one

std::uint64_t mixed(std::uint64_t hash, const std::string& text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;  // FNV-1a
  return hash;
}

std::string link_of(const char* path) {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(path, error);
  return error ? std::string() : target.string();
}

// CPUs that this process may use: "0-3,8".
std::string own_cpus() {
  std::ifstream status("/proc/thread-self/status");
  const std::string name = "Cpus_allowed_list:";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return line.substr(name.size());
  return {};
}

bool is_memory(const std::string& link) {
  return link.starts_with("shm") || link.starts_with("loopback");
}

}  // namespace

// Processes of one host meet by a socket of their network namespace: without it there is no shm between them.
void tell_host(Engine& engine, Words& words) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  words.host = mixed(mixed(0xcbf29ce484222325, boot), link_of("/proc/self/ns/net"));
  if (const auto other = other_host.load(std::memory_order_relaxed)) words.host = other(engine);
  words.process = mixed(words.host, link_of("/proc/self"));
  const std::string cpus = own_cpus();
  words.node = static_cast<std::int16_t>(node_of_cpus(cpus, "/sys/devices/system/node"));
  words.cpus = cpus.empty() ? std::thread::hardware_concurrency() : static_cast<std::uint32_t>(numbers_of(cpus).size());
  words.cpu_set = static_cast<std::uint32_t>(mixed(words.host, cpus));
  unsigned ways = 0;
  for (const TransportMetrics& transport : engine.metrics().transports) {
    if (transport.name == "shm") ways |= kShm;
    if (transport.name == "loopback") ways |= kLoopback;
  }
  words.ways = static_cast<std::uint16_t>(ways);
}

std::vector<int> numbers_of(const std::string& list) {
  std::vector<int> numbers;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    int low = 0, high = 0;
    const int read = std::sscanf(item.c_str(), "%d-%d", &low, &high);
    if (read < 1) continue;
    for (int number = low; number <= (read == 2 ? high : low); ++number) numbers.push_back(number);
  }
  return numbers;
}

int node_of_cpus(const std::string& cpus, const std::string& nodes) {
  const std::vector<int> own = numbers_of(cpus);
  std::string online;
  std::getline(std::ifstream(nodes + "/online"), online);
  for (const int node : numbers_of(online)) {
    std::string list;
    std::getline(std::ifstream(nodes + "/node" + std::to_string(node) + "/cpulist"), list);
    const std::vector<int> here = numbers_of(list);
    const auto in_here = [&](int cpu) { return std::find(here.begin(), here.end(), cpu) != here.end(); };
    if (!own.empty() && std::all_of(own.begin(), own.end(), in_here)) return node;
  }
  return -1;
}

bool share_host(const Words& one, const Words& other) {
  const unsigned both = static_cast<unsigned>(one.ways) & other.ways;
  return ((both & kShm) != 0 && one.host == other.host) || ((both & kLoopback) != 0 && one.process == other.process);
}

bool has_core(int rank, const std::vector<Words>& words) {
  const Words& own = words[static_cast<std::size_t>(rank)];
  const auto sharing = std::count_if(
      words.begin(), words.end(), [&](const Words& one) { return one.host == own.host && one.cpu_set == own.cpu_set; });
  return sharing <= static_cast<std::ptrdiff_t>(own.cpus);
}

bool registers_cheaply(const Engine& engine) {
  const auto transports = engine.metrics().transports;
  return std::all_of(transports.begin(), transports.end(), [](const TransportMetrics& one) {
    return one.name == "tcp" || one.name == "shm" || one.name == "loopback" || one.name == "cuda";
  });
}

std::vector<int> neighbours_of(int rank, const std::vector<Words>& words) {
  std::vector<int> near;
  for (int other = 0; other < static_cast<int>(words.size()); ++other)
    if (other != rank && share_host(words[static_cast<std::size_t>(rank)], words[static_cast<std::size_t>(other)]))
      near.push_back(other);
  return near;
}

bool are_apart(const std::vector<Words>& words) {
  return std::all_of(words.begin(), words.end(), [&](const Words& one) {
    return std::all_of(words.begin(), words.end(), [&](const Words& other) {
      return &one == &other || share_host(one, other) == (one.host == other.host);
    });
  });
}

bool all_near(Lanes& lanes, const std::vector<int>& peers) {
  for (const Time end = Clock::now() + kSetUp;; lanes.pause(std::chrono::milliseconds(1))) {
    const auto links = lanes.engine().metrics().links;
    const bool all = std::all_of(peers.begin(), peers.end(), [&](int peer) {
      return std::any_of(links.begin(), links.end(), [&](const LinkMetrics& link) {
        return link.up && link.peer == lanes.members()[static_cast<std::size_t>(peer)].peer && is_memory(link.name);
      });
    });
    if (all || Clock::now() >= end) return all;
  }
}

}  // namespace fairway::collectives
