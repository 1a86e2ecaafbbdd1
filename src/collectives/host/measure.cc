// Times each algorithm of operations on host memory, in turns, for the table that joined communicators take.
#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/format.h>

#include "collectives/host/choose.h"
#include "collectives/host/ways.h"
#include "collectives/slowest.h"

namespace fairway::collectives {
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
