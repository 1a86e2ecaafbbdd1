#include "collectives/host/ways.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "collectives/clock.h"
#include "collectives/host/choose.h"
#include "collectives/way_file.h"

namespace fairway::collectives {
namespace {

constexpr std::string_view kHostWhat = "fairway: algorithms of collectives on host memory";
constexpr int kHostFormat = 1;
constexpr std::uint64_t kLongestOfHosts = 10'000'000'000;  // ns; times a row's bytes it stays below 2^62
constexpr int kMostOver = 16;

std::optional<Algorithm> algorithm_named(const std::string& name, CollectiveKind kind) {
  for (int i = 1; i <= static_cast<int>(Algorithm::hierarchical); ++i)
    if (const auto each = static_cast<Algorithm>(i); to_string(each) == name && has_algorithm(kind, each, false))
      return each;
  return {};
}

// "all_reduce 2048 one_shot 5120 direct 4096"
std::optional<HostRow> host_row_of(const std::string& line) {
  std::istringstream words(line);
  std::string kind, name;
  HostRow row;
  if (!(words >> kind >> row.bytes) || row.bytes > Fastest::kMost) return {};
  const auto* const found = std::find_if(Fastest::kKinds.begin(), Fastest::kKinds.end(),
                                         [&](CollectiveKind each) { return to_string(each) == kind; });
  if (found == Fastest::kKinds.end()) return {};
  row.kind = *found;
  while (words >> name) {
    const auto algorithm = algorithm_named(name, row.kind);
    std::uint64_t ns = 0;
    if (!algorithm || !(words >> ns) || ns == 0 || ns > kLongestOfHosts || row.of(*algorithm) != 0) return {};
    row.ns.emplace_back(*algorithm, ns);
  }
  return row.ns.empty() ? std::nullopt : std::optional(std::move(row));
}

std::size_t index_of(CollectiveKind kind) {
  return static_cast<std::size_t>(std::find(Fastest::kKinds.begin(), Fastest::kKinds.end(), kind) -
                                  Fastest::kKinds.begin());
}

}  // namespace

std::uint64_t HostRow::of(Algorithm algorithm) const {
  for (const auto& [each, time] : ns)
    if (each == algorithm) return time;
  return 0;
}

std::uint64_t Fastest::bytes_at(std::size_t point) {
  const std::uint64_t whole = kLeast << point / 2;
  return point % 2 == 0 ? whole : whole * 141421 / 100000;
}

std::size_t Fastest::point_of(std::uint64_t bytes) {
  bytes = std::clamp(bytes, kLeast, kMost);
  const std::size_t whole = 2 * (static_cast<std::size_t>(std::bit_width(bytes / kLeast)) - 1);
  return bytes >= bytes_at(whole + 1) ? whole + 1 : whole;
}

Algorithm Fastest::at(CollectiveKind kind, std::uint64_t bytes) const {
  const std::size_t index = index_of(kind);
  if (index == kKinds.size()) return Algorithm::automatic;
  const std::uint8_t found = all_[index * kPoints + point_of(bytes)];
  const auto algorithm = static_cast<Algorithm>(found);
  return found != kNone && has_algorithm(kind, algorithm, false) ? algorithm : Algorithm::automatic;
}

void Fastest::set(CollectiveKind kind, std::size_t point, Algorithm algorithm) {
  if (const std::size_t index = index_of(kind); index != kKinds.size() && algorithm != Algorithm::automatic)
    all_[index * kPoints + point] = static_cast<std::uint8_t>(algorithm);
}

std::string HostTable::text(const std::string& key) const {
  std::string out = fmt::format("over {}\n", over_);
  for (const HostRow& row : rows_) {
    out += fmt::format("{} {}", to_string(row.kind), row.bytes);
    for (const auto& [algorithm, ns] : row.ns) out += fmt::format(" {} {}", to_string(algorithm), ns);
    out += '\n';
  }
  return framed(kHostWhat, kHostFormat, key, out);
}

Result<HostTable> HostTable::parse(const std::string& text, const std::string& key) {
  const auto lines = rows_in(text, kHostWhat, kHostFormat, key);
  if (!lines) return lines.status();
  int over = -1;
  std::string word;
  if (lines->empty() || !(std::istringstream(lines->front()) >> word >> over) || word != "over" || over < 0 ||
      over > kMostOver)
    return unusable("it does not say over which links");
  HostTable table(over);
  for (std::size_t i = 1; i < lines->size(); ++i) {
    auto row = host_row_of((*lines)[i]);
    if (!row || table.rows_.size() == kMostRows)
      return unusable(fmt::format("it has a line that is wrong: {}", (*lines)[i]));
    table.add(std::move(*row));
  }
  return table;
}

std::pair<const HostRow*, const HostRow*> HostTable::around(CollectiveKind kind, std::uint64_t bytes) const {
  const HostRow *below = nullptr, *above = nullptr;
  for (const HostRow& row : rows_) {
    if (row.kind != kind) continue;
    if (row.bytes <= bytes && (below == nullptr || row.bytes > below->bytes)) below = &row;
    if (row.bytes >= bytes && (above == nullptr || row.bytes < above->bytes)) above = &row;
  }
  return {below, above};
}

Algorithm HostTable::fastest_at(CollectiveKind kind, std::uint64_t bytes) const {
  const auto [below, above] = around(kind, bytes);
  if (below == nullptr && above == nullptr) return Algorithm::automatic;
  const HostRow& low = below == nullptr ? *above : *below;
  const HostRow& high = above == nullptr ? *below : *above;
  Algorithm best = Algorithm::automatic;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [algorithm, ns] : low.ns) {
    const std::uint64_t end = high.of(algorithm);
    if (end == 0) continue;
    const std::uint64_t time =
        low.bytes == high.bytes ? ns : ns * (high.bytes - bytes) + end * (bytes - low.bytes);  // times the distance
    if (time >= least) continue;
    least = time;
    best = algorithm;
  }
  return best;
}

Fastest HostTable::fastest() const {
  Fastest out;
  for (const CollectiveKind kind : Fastest::kKinds)
    for (std::size_t point = 0; point < Fastest::kPoints; ++point)
      out.set(kind, point, fastest_at(kind, Fastest::bytes_at(point)));
  return out;
}

namespace {

std::string name_of_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// The first one's, which stands at the top of a file that the kernel writes as it is read.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  int lines = 0;
  for (std::string line; ++lines < 32 && std::getline(file, line);)
    if (line.starts_with("model name") || line.starts_with("CPU part")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

// "2, 2": ranks of each host, in the order of their first ranks.
std::string ranks_of_hosts(const std::vector<Words>& words) {
  std::map<std::uint64_t, int> ranks;
  for (const Words& one : words) ++ranks[one.host];
  std::string out;
  for (const Words& one : words) {
    int& here = ranks[one.host];
    if (here != 0) out += fmt::format("{}{}", out.empty() ? "" : ", ", here);
    here = 0;
  }
  return out;
}

std::string machine_key(const Engine& engine, const std::vector<Words>& words, std::uint32_t slot_bytes) {
  std::string transports;
  for (const TransportMetrics& one : engine.metrics().transports)
    transports += fmt::format("{}{}", transports.empty() ? "" : ", ", one.name);
  return fmt::format("Fairway {}; host {}; {} CPUs: {}; {} ranks on hosts: {}; by {}; messages of {} bytes",
                     FAIRWAY_VERSION, name_of_host(), std::thread::hardware_concurrency(), cpu_name(), words.size(),
                     ranks_of_hosts(words), transports, slot_bytes);
}

std::string times_text(const HostRow& row) {
  std::string out;
  for (const auto& [algorithm, ns] : row.ns)
    out += fmt::format("{}{} {:.2f} us", out.empty() ? "" : ", ", to_string(algorithm), static_cast<double>(ns) / 1e3);
  return fmt::format("{} bytes take {}", row.bytes, out);
}

}  // namespace

HostWays::Offer HostWays::look(Engine& engine, const std::vector<Words>& words, std::uint32_t slot_bytes) {
  Offer offer;
  offer.over = kNoTable;
  if (Clock::is_simulated()) return offer;
  key_ = machine_key(engine, words, slot_bytes);
  const auto path = way_file_path(key_);
  if (path) path_ = *path;
  const auto text = path ? read_way_file(path_) : Result<std::string>(path.status());
  const auto table = text ? HostTable::parse(*text, key_) : Result<HostTable>(text.status());
  if (!table) {
    const std::string where = text ? path_ + ": " : "";
    reason_ =
        fmt::format("there is no table of this machine, which measure() writes: {}{}", where, table.status().message());
    return offer;
  }
  table_ = *table;
  offer.over = static_cast<std::uint8_t>(table_.over());
  offer.fastest = table_.fastest();
  return offer;
}

void HostWays::take(const Offer& all, int over) {
  over_ = over;
  if (all.over == over) {
    fastest_ = all.fastest;
  } else if (all.over < kNoTable) {
    reason_ = "rank 0's table of this machine was measured over other links: measure() writes one of these";
    table_ = HostTable(over);
  }
}

void HostWays::take(HostTable table) {
  fastest_ = table.fastest();
  table_ = std::move(table);
}

Status HostWays::keep() const {
  if (path_.empty()) return way_file_path(key_).status();
  return write_way_file(path_, table_.text(key_));
}

std::string HostWays::why(CollectiveKind kind, std::uint64_t bytes) const {
  if (fastest(kind, bytes) == Algorithm::automatic) return reason_;
  const auto [below, above] = table_.around(kind, bytes);
  if (below == nullptr && above == nullptr) return "the fastest that rank 0 has measured: its explain() has the times";
  std::string out;
  if (below != nullptr) out = times_text(*below);
  if (above != nullptr && above != below) out += (out.empty() ? "" : "; ") + times_text(*above);
  return path_.empty() ? out : fmt::format("{} ({})", out, path_);
}

std::uint64_t all_bytes(CollectiveKind kind, std::uint64_t one, int size) {
  const bool blocks = kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter ||
                      kind == CollectiveKind::all_to_all;
  return blocks ? one * static_cast<std::uint64_t>(size) : one;
}

// Times each algorithm of operations on host memory, in turns, for the table that joined communicators take.

namespace {

constexpr int kRounds = 7;
constexpr std::uint64_t kRoundNs =
    2'000'000;  // ns that one takes at least, if that is not more than kMostMany operations
constexpr std::uint64_t kMostMany = 200;
constexpr std::uint64_t kNextSize = 4;  // from one size to the next

// Sizes of all blocks, up to the longest.
std::vector<std::uint64_t> sizes_to(std::uint64_t most) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = Fastest::kLeast; bytes < most; bytes *= kNextSize) sizes.push_back(bytes);
  sizes.push_back(most);
  return sizes;
}

std::vector<Algorithm> candidates(CollectiveKind kind, bool in_levels) {
  const auto all = algorithms_of(kind);
  std::vector<Algorithm> out(all.begin(), all.end());
  if (in_levels && has_algorithm(kind, Algorithm::hierarchical, false)) out.push_back(Algorithm::hierarchical);
  return out;
}

// Memory of a rank. A resource.
class HostBench {
 public:
  HostBench(Communicator& group, std::uint64_t most)
      : group_(group), input_(2 * most + kBlockMost), output_(2 * most + kBlockMost) {}

  // Medians over turns of the slowest rank's time of one operation, by algorithm, all in turns.
  Status measure(CollectiveKind kind, std::uint64_t bytes, const std::vector<Algorithm>& by, HostRow::Times& out) {
    std::vector<std::vector<std::uint64_t>> times(by.size());
    std::vector<std::uint64_t> many(by.size(), 1);
    for (int turn = -2; turn < kRounds; ++turn)  // the first warms up, the second says how many fill a turn
      for (std::size_t i = 0; i < by.size(); ++i) {
        std::uint64_t ns = 0;
        if (Status status = time(call_of(kind, bytes, by[i]), many[i], ns); !status)
          return status.with_context(fmt::format("{} of {} bytes by {}", to_string(kind), bytes, to_string(by[i])));
        if (turn == -1) many[i] = std::clamp<std::uint64_t>(kRoundNs / ns, 1, kMostMany);
        if (turn >= 0) times[i].push_back(ns);
      }
    out.clear();
    for (std::size_t i = 0; i < by.size(); ++i) {
      std::sort(times[i].begin(), times[i].end());
      out.emplace_back(by[i], times[i][times[i].size() / 2]);
    }
    return {};
  }
  [[nodiscard]] Algorithm chosen(CollectiveKind kind, std::uint64_t bytes) const {
    return group_.chosen(call_of(kind, bytes, Algorithm::automatic));
  }

 private:
  static constexpr std::uint64_t kBlockMost = 4096;  // a block has an element at least, whatever the size

  [[nodiscard]] Collective call_of(CollectiveKind kind, std::uint64_t bytes, Algorithm algorithm) const {
    Collective call{.kind = kind, .type = DataType::f32, .algorithm = algorithm};
    const auto ranks = static_cast<std::uint64_t>(all_bytes(kind, 1, group_.size()));
    call.input = input_.data();
    call.output = const_cast<std::byte*>(output_.data());
    call.count = std::max<std::uint64_t>(1, bytes / sizeof(float) / ranks);
    return call;
  }

  Status time(const Collective& call, std::uint64_t many, std::uint64_t& ns) {
    if (Status status = group_.run({}); !status) return status;
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < many; ++i)
      if (Status status = group_.run(call); !status) return status;
    return slowest(group_, std::chrono::steady_clock::now() - begin, many, ns);
  }

  Communicator& group_;
  const std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

double micros(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

std::string others_of(const HostRow& row, std::size_t skip) {
  std::string out;
  for (std::size_t i = skip; i < row.ns.size(); ++i)
    out += fmt::format("  {} {:.2f}", to_string(row.ns[i].first), micros(row.ns[i].second));
  return out;
}

std::uint64_t least_of(const HostRow& row, std::size_t skip) {
  std::uint64_t out = row.ns[skip].second;
  for (std::size_t i = skip; i < row.ns.size(); ++i) out = std::min(out, row.ns[i].second);
  return out;
}

}  // namespace

Result<std::string> measure_hosts(Communicator& group, HostWays& ways, bool in_levels, std::size_t most_bytes,
                                  bool compare, Agree agree, void* context) {
  if (group.size() == 1) return Status(ErrorCode::unsupported, "there is one rank");
  const std::uint64_t most = std::clamp<std::uint64_t>(most_bytes, Fastest::kLeast, Fastest::kMost);
  HostBench bench(group, most);
  HostTable table(ways.over());
  std::string text = ways.key() + "\n" + fmt::format("{:<15} {:>10}  {:<19} us\n", "", "bytes", "fastest");
  for (const CollectiveKind kind : Fastest::kKinds)
    for (const std::uint64_t bytes : sizes_to(most)) {
      HostRow row{kind, bytes};
      if (Status status = bench.measure(kind, bytes, candidates(kind, in_levels), row.ns); !status) return status;
      const auto best = std::min_element(row.ns.begin(), row.ns.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      text +=
          fmt::format("{:<15} {:>10}  {:<19}{}\n", to_string(kind), bytes, to_string(best->first), others_of(row, 0));
      table.add(std::move(row));
    }
  ways.take(std::move(table));
  if (Status all = agree(context, group.rank() == 0 ? ways.keep() : Status()); !all) return all;
  if (group.rank() == 0) text += fmt::format("kept in {}\n", ways.path());
  if (!compare) return text;

  text += fmt::format("\n{:<15} {:>10}  {:<19} {:>10} {:>8}  us\n", "", "bytes", "chosen", "us", "it/best");
  for (const CollectiveKind kind : Fastest::kKinds)
    for (const std::uint64_t bytes : sizes_to(most)) {
      std::vector<Algorithm> by = candidates(kind, in_levels);
      by.insert(by.begin(), Algorithm::automatic);
      HostRow row{kind, bytes};
      if (Status status = bench.measure(kind, bytes, by, row.ns); !status) return status;
      text += fmt::format("{:<15} {:>10}  {:<19} {:>10.2f} {:>8.2f}{}\n", to_string(kind), bytes,
                          to_string(bench.chosen(kind, bytes)), micros(row.ns[0].second),
                          micros(row.ns[0].second) / micros(least_of(row, 1)), others_of(row, 1));
    }
  return text;
}

}  // namespace fairway::collectives
