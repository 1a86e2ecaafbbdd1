#include "collectives/host/ways.h"

#include <fstream>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "collectives/clock.h"
#include "collectives/way_file.h"

namespace fairway::collectives {
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

}  // namespace fairway::collectives
