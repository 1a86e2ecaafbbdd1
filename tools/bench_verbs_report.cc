#include <fmt/format.h>

#include "bench.h"
#include "bench_verbs.h"

namespace fairway::tool::bench::raw {
namespace {

std::string each(std::uint64_t count, const Row& row) {
  return fmt::format("{:.3g}", static_cast<double>(count) / static_cast<double>(row.posted()));
}

}  // namespace

std::string table(const std::vector<Row>& rows) {
  std::string text;
  std::string last;
  double verified = 0;
  for (const Row& row : rows) {
    const Shape& shape = row.shape;
    const std::string head =
        fmt::format("{}, {} to {}, MTU {}, GID {}, {} queue pair{}, {} a doorbell, {}", name_of(shape.type), row.from,
                    row.to, row.mtu, row.gid_index, shape.queue_pairs, shape.queue_pairs == 1 ? "" : "s",
                    shape.post_list, shape.events ? "sleeping" : "polling");
    if (head != last)
      text += fmt::format("{}{}\n{:>24} {:>9} {:>9} {:>8} {:>9} {:>9} | {:>5} {:>5} {:>5} | {:>6}  {}\n",
                          last.empty() ? "" : "\n", head, "", "p50 us", "p99 us", "GB/s", "1000/s", "CPU s/GiB",
                          "bells", "WRs", "CQEs", "recvs", "");
    last = head;
    text += fmt::format("{:<15} {:>8} {:>9.2f} {:>9.2f} {:>8} {:>9.1f} {:>9.3g} | {:>5} {:>5} {:>5} | {:>6}  {}{}\n",
                        name_of(shape.action), size_text(shape.size), row.p50_us, row.p99_us,
                        rate_text(row.bytes_per_second), row.operations_per_second / 1e3, row.cpu_seconds_per_gib,
                        each(row.ours.doorbells, row), each(row.ours.requests, row), each(row.ours.completions, row),
                        each(row.theirs.receives, row), row.is_inline ? "inline" : "",
                        row.lost != 0 ? fmt::format(" {} LOST", row.lost) : "");
    verified += static_cast<double>(row.verified_bytes);
  }
  return text + fmt::format(
                    "\np50, p99: one at a time; half of the round trip where only an answer tells of the arrival "
                    "(send, write_immediate,\nUC write), else until the completion. The rest: many at once. bells, "
                    "WRs, CQEs: doorbells, work requests and\ncompletions of the measuring side for each operation; "
                    "recvs: receives that the other side posted.\nCPU: of both processes. {:.2g} GiB arrived, every "
                    "byte of it compared with what belongs there.\n",
                    verified / (1 << 30));
}

Fields fields(const Row& row) {
  const Shape& shape = row.shape;
  const auto number = [](std::uint64_t value) { return fmt::format("{}", value); };
  const auto part = [&](std::uint64_t count) {
    return fmt::format("{:.4f}", static_cast<double>(count) / static_cast<double>(row.posted()));
  };
  return {{"type", name_of(shape.type), true},
          {"operation", name_of(shape.action), true},
          {"bytes", number(shape.size)},
          {"from", row.from, true},
          {"to", row.to, true},
          {"gid_index", number(row.gid_index)},
          {"mtu", number(row.mtu)},
          {"queue_pairs", number(shape.queue_pairs)},
          {"post_list", number(shape.post_list)},
          {"gathers", number(shape.gathers)},
          {"inline", row.is_inline ? "true" : "false"},
          {"events", shape.events ? "true" : "false"},
          {"time_of", shape.answered() ? "half_round_trip" : "completion", true},
          {"rounds", number(row.rounds)},
          {"p50_us", fmt::format("{:.3f}", row.p50_us)},
          {"p99_us", fmt::format("{:.3f}", row.p99_us)},
          {"operations", number(row.operations)},
          {"bytes_per_second", fmt::format("{:.0f}", row.bytes_per_second)},
          {"operations_per_second", fmt::format("{:.0f}", row.operations_per_second)},
          {"cpu_seconds_per_gib", fmt::format("{:.4f}", row.cpu_seconds_per_gib)},
          {"doorbells_per_operation", part(row.ours.doorbells)},
          {"work_requests_per_operation", part(row.ours.requests)},
          {"completions_per_operation", part(row.ours.completions)},
          {"sleeps_per_operation", part(row.ours.sleeps)},
          {"target_receive_doorbells_per_operation", part(row.theirs.receive_doorbells)},
          {"target_receives_per_operation", part(row.theirs.receives)},
          {"target_completions_per_operation", part(row.theirs.completions)},
          {"target_sleeps_per_operation", part(row.theirs.sleeps)},
          {"lost", number(row.lost)},
          {"verified_bytes", number(row.verified_bytes)}};
}

}  // namespace fairway::tool::bench::raw
