#include "collectives/host/choose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "collectives/host/schedule.h"
#include "collectives/host/wire.h"

namespace fairway::collectives {
namespace {

constexpr std::array kAllReduce{Algorithm::one_shot, Algorithm::recursive_doubling, Algorithm::direct, Algorithm::ring};
constexpr std::array kTrees{Algorithm::binomial, Algorithm::chain};
constexpr std::array kOrdered{Algorithm::one_shot, Algorithm::direct};  // all_reduce
constexpr std::array kAllGather{Algorithm::bruck, Algorithm::direct, Algorithm::ring};
constexpr std::array kReduceScatter{Algorithm::direct, Algorithm::ring};
constexpr std::array kAllToAll{Algorithm::bruck, Algorithm::direct};
constexpr std::array kBarrier{Algorithm::dissemination};
constexpr std::array kDirect{Algorithm::direct};

// One call's numbers. docs/collective-algorithms.md has the constants, and what comes of them.
struct Formula {
  double n, p, s;  // ranks, longest message, bytes
  const Costs& c;

  [[nodiscard]] double log2n() const { return std::bit_width(static_cast<unsigned>(n) - 1U); }
  [[nodiscard]] double pieces(double bytes) const {
    return bytes <= p ? 1 : static_cast<double>(static_cast<std::uint64_t>((bytes + p - 1) / p));
  }
  // A message of so many bytes, in pieces.
  [[nodiscard]] double move(double bytes) const { return pieces(bytes) * c.message + bytes * c.byte; }
  // A message from each rank to each other: it sends all, and then receives what has come meanwhile.
  [[nodiscard]] double fan(double bytes) const {
    const double half = move(bytes) / 2, all = (n - 1) * half;
    return all + std::max(all, c.round + half);
  }
  [[nodiscard]] double sync() const { return log2n() * (c.round + c.message); }

  [[nodiscard]] double all_reduce(Algorithm algorithm) const {
    switch (algorithm) {
      case Algorithm::one_shot:
        return c.round + (n - 1) * (move(s) + s * c.combine);  // the first rank's message comes last
      case Algorithm::direct: return 2 * fan(s / n) + (n - 1) * s / n * c.combine;
      case Algorithm::ring: return (n - 1) * (2 * (c.round + move(s / n)) + s / n * c.combine);
      default: break;
    }
    const double more = std::has_single_bit(static_cast<unsigned>(n)) ? 0 : 1;  // what ranks beyond a power of two add
    return (log2n() + more) * (c.round + move(s) + s * c.combine);
  }
  [[nodiscard]] double tree(Algorithm algorithm, bool combines) const {
    const double first = pieces(s) > 1 ? p : s, byte = combines ? c.byte + c.combine : c.byte;
    const double stage = c.round + c.message + first * byte;  // one piece, one level further
    const double depth = algorithm == Algorithm::chain ? n - 1 : log2n();
    const double width = algorithm == Algorithm::chain ? 1 : log2n();  // messages of a piece at the busiest rank
    // The other pieces: a chain's ranks receive and send each; the busiest rank of a tree only does one of the two.
    const double each = c.message + first * c.byte;
    const double busy = algorithm == Algorithm::chain && n > 2 ? each : width * each / 2;
    return depth * stage + (pieces(s) - 1) * (busy + (combines ? width * first * c.combine : 0)) + sync();
  }
  // In each round what it has, or what is missing; every block goes through scratch memory once more.
  [[nodiscard]] double all_gather_bruck() const {
    double time = n * s * c.combine;
    for (double have = 1; have < n; have *= 2) time += c.round + move(std::min(have, n - have) * s);
    return time;
  }
};

bool is_long_fan(Algorithm algorithm, int size, std::uint64_t block, const Costs& costs) {
  return (algorithm == Algorithm::direct || algorithm == Algorithm::one_shot) && size > costs.most_flows &&
         block > costs.long_block;
}

}  // namespace

std::uint32_t mapped_piece(int ranks) {
  constexpr std::uint32_t kCached = 8U << 20, kLeast = 8U << 10, kMost = 64U << 10;
  const auto n = static_cast<std::uint32_t>(std::max(ranks, 2));
  return std::clamp(std::bit_floor(kCached / (kSlots * n * (n - 1))), kLeast, kMost);
}

std::span<const Algorithm> algorithms_of(CollectiveKind kind, bool ordered) {
  switch (kind) {
    case CollectiveKind::all_reduce: return ordered ? std::span<const Algorithm>(kOrdered) : kAllReduce;
    case CollectiveKind::broadcast: return kTrees;
    case CollectiveKind::reduce: return ordered ? std::span<const Algorithm>(kDirect) : kTrees;
    case CollectiveKind::all_gather: return kAllGather;
    case CollectiveKind::reduce_scatter: return ordered ? std::span<const Algorithm>(kDirect) : kReduceScatter;
    case CollectiveKind::all_to_all: return kAllToAll;
    case CollectiveKind::barrier: return kBarrier;
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_allv: break;
  }
  return kDirect;
}

bool has_algorithm(CollectiveKind kind, Algorithm algorithm, bool ordered) {
  if (algorithm == Algorithm::hierarchical) return kind == CollectiveKind::all_reduce && !ordered;
  const auto all = algorithms_of(kind, ordered);
  return std::find(all.begin(), all.end(), algorithm) != all.end();
}

double cost_of(CollectiveKind kind, Algorithm algorithm, int size, std::uint64_t bytes, std::uint64_t piece,
               const Costs& costs) {
  if (size < 2) return 0;
  const Formula f{static_cast<double>(size), static_cast<double>(piece), static_cast<double>(bytes), costs};
  const double others = f.n - 1;
  switch (kind) {
    case CollectiveKind::barrier: return f.sync();
    case CollectiveKind::all_reduce: return f.all_reduce(algorithm);
    case CollectiveKind::broadcast: return f.tree(algorithm, false);
    case CollectiveKind::reduce:
      if (algorithm == Algorithm::direct)
        return costs.round + (others + 1) / 2 * f.move(f.s) + others * f.s * costs.combine + f.sync();
      return f.tree(algorithm, true);
    case CollectiveKind::gather:
    case CollectiveKind::scatter: return costs.round + (others + 1) / 2 * f.move(f.s) + f.sync();  // the root's half
    case CollectiveKind::all_gather:
      if (algorithm == Algorithm::ring) return others * (costs.round + f.move(f.s));
      if (algorithm == Algorithm::bruck) return f.all_gather_bruck();
      return f.fan(f.s);
    case CollectiveKind::reduce_scatter:
      return (algorithm == Algorithm::ring ? others * (costs.round + f.move(f.s)) : f.fan(f.s)) +
             others * f.s * costs.combine;
    case CollectiveKind::all_to_all:
      if (algorithm == Algorithm::bruck)  // half of the blocks travel in each round, packed and unpacked
        return f.log2n() * (costs.round + f.move(f.n / 2 * f.s) + f.n * f.s * costs.combine);
      return f.fan(f.s);
    case CollectiveKind::all_to_allv: return f.fan(f.s);
  }
  return 0;
}

// An owner combines its part of its group, then with the other groups' owners, and gives it to its group. In a group
// that is larger than there are parts the owners still hear from all.
double cost_in_levels(const Near& near, std::uint64_t bytes, std::uint64_t piece, const Costs& costs) {
  const int parts = parts_in_levels(near.least, bytes);
  const double part = static_cast<double>(bytes) / parts;
  const Formula within{static_cast<double>(near.most), static_cast<double>(near.piece), part, near.costs};
  const auto between = algorithm_between_groups(near.groups, bytes / static_cast<std::uint64_t>(parts), piece);
  const double others = cost_of(CollectiveKind::all_reduce, between, near.groups,
                                bytes / static_cast<std::uint64_t>(parts), piece, costs);
  if (near.most == 1) return others;
  return 2 * within.fan(part) + (within.n - 1) * part * near.costs.combine + others;
}

Algorithm choose(CollectiveKind kind, int size, std::uint64_t bytes, std::uint64_t piece, const Costs& costs,
                 bool ordered, const Near& near) {
  const auto candidates = algorithms_of(kind, ordered);
  Algorithm best = candidates.back();
  double least = std::numeric_limits<double>::infinity();
  for (const Algorithm candidate : candidates) {
    const std::uint64_t block = kind == CollectiveKind::all_reduce && candidate == Algorithm::direct
                                    ? bytes / static_cast<std::uint64_t>(size)
                                    : bytes;
    if (candidates.size() > 1 && kind != CollectiveKind::all_to_all && !ordered &&
        is_long_fan(candidate, size, block, costs))
      continue;
    const double cost = cost_of(kind, candidate, size, bytes, piece, costs);
    if (cost < least * 0.999) {  // equal but for rounding: the first
      least = cost;
      best = candidate;
    }
  }
  if (near.groups > 1 && has_algorithm(kind, Algorithm::hierarchical, ordered) &&
      cost_in_levels(near, bytes, piece, costs) < least * 0.999)
    return Algorithm::hierarchical;
  return best;
}

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
