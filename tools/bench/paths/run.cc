#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "bench/bench.h"
#include "bench/rows.h"
#include "interrupt.h"

// Measures Fairway and the roof in turns, batch by batch.
namespace fairway::tool::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kFootprint = 4 << 20;  // memory that a batch walks over, if more than one message fits

constexpr std::uint64_t kFewRounds = 16;

struct Sampled {
  std::vector<double> us;
  Cost cost;
};

// What a measured time is divided by: a round trip by two, the time of several in flight by their number.
double divisor(const Batch& batch) {
  return one_sided(batch.operation) ? static_cast<double>(batch.depth) : 2;
}

// Fewer rounds in a batch if it takes long, as on busy cores.
void shorten(Batch& batch, Clock::duration took) {
  constexpr std::chrono::milliseconds kLong(500);
  if (took <= kLong || batch.rounds == 0) return;
  const double part = std::chrono::duration<double>(kLong) / took;
  const auto fit = [part](std::uint64_t count) {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(count) * part));
  };
  batch.places = fit(batch.places);
  batch.rounds = std::max(batch.places, fit(batch.rounds));
}

Status sample(Mover& mover, const Batch& batch, Sampled& into) {
  if (Status status = mover.begin(batch); !status) return status;
  for (std::uint64_t round = 0; round < batch.rounds; ++round) {
    if (Status status = Interrupt::status(); !status) return status;
    const auto start = Clock::now();
    if (Status status = mover.once(batch, round); !status) return status;
    into.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / divisor(batch));
  }
  const auto cost = mover.end(batch);
  if (!cost) return cost.status();
  into.cost.cpu_seconds += cost->cpu_seconds;
  into.cost.copied_bytes += cost->copied_bytes;
  into.cost.system_calls += cost->system_calls;
  into.cost.verified_bytes += cost->verified_bytes;
  return {};
}

double percentile(const std::vector<double>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(part * static_cast<double>(sorted.size())))];
}

Row summarize(const Batch& batch, Sampled& ours, Sampled& roof) {
  Row row;
  row.operation = batch.operation;
  row.size = batch.size;
  row.pages = batch.pages;
  row.depth = batch.depth;
  row.rounds = ours.us.size();
  std::ranges::sort(ours.us);
  std::ranges::sort(roof.us);
  row.p50_us = percentile(ours.us, 0.5);
  row.p99_us = percentile(ours.us, 0.99);
  const auto bytes = static_cast<double>(batch.size * std::max<std::uint64_t>(1, batch.pages));
  row.bytes_per_second = bytes / row.p50_us * 1e6;
  row.peak_bytes_per_second = bytes / ours.us.front() * 1e6;
  const double moved = bytes * static_cast<double>(row.rounds) * divisor(batch);
  row.cpu_seconds_per_gib = ours.cost.cpu_seconds / moved * (1 << 30);
  row.copies_per_byte = ours.cost.copied_bytes / moved;
  row.calls_per_operation = ours.cost.system_calls / static_cast<double>(row.rounds * row.depth);
  row.verified_bytes = ours.cost.verified_bytes;
  if (!roof.us.empty()) row.roof_us = percentile(roof.us, 0.5);
  return row;
}

}  // namespace

std::string name_of(Operation operation) {
  switch (operation) {
    case Operation::write: return "write";
    case Operation::read: return "read";
    case Operation::send: return "send";
    case Operation::notify: return "notify";
    case Operation::count: return "count";
    case Operation::fetch_add: return "fetch_add";
    case Operation::send_local: return "send_local";
  }
  return {};
}

namespace {

// What else used the cores, if the figures show it: a median far from the fastest round, or longer than on any machine.
// Else empty. Both sample lists are sorted.
std::string why_slow(const Plan& plan, const Batch& batch, const Sampled& ours, const Sampled& roof,
                     const CoreUse& use) {
  constexpr double kFar = 3;
  const auto bytes = static_cast<double>(batch.size * std::max<std::uint64_t>(1, batch.pages));
  const auto off = [bytes](const Sampled& of) { return !of.us.empty() && order_off(percentile(of.us, 0.5), bytes); };
  const auto far = [](const Sampled& of) { return !of.us.empty() && percentile(of.us, 0.5) > kFar * of.us.front(); };
  if (!off(ours) && !off(roof) && !far(ours) && !far(roof)) return {};
  std::string why = busy_text(use, !plan.settings.sleeping);
  if (why.empty() && (off(ours) || off(roof)) && lost_cores(use))
    why = fmt::format("{:.0f} involuntary context switches a second", use.switches_per_second);
  if (off(roof)) why += fmt::format("{}a roof ten times as slow as any machine's", why.empty() ? "" : ", ");
  return why;
}

// The samples of one row, of Fairway and of the roof in turns.
Status measure_row(const Plan& plan, Batch batch, Mover& ours, Mover* roof, Row& row) {
  Sampled it, least, warm;
  const CoreWatch watch;
  // A few rounds to estimate how long all would take.
  Batch probe = batch;
  probe.places = std::min(batch.places, kFewRounds);
  probe.rounds = std::min(batch.rounds, kFewRounds);
  const auto probed = Clock::now();
  if (Status status = sample(ours, probe, warm); !status) return status;
  shorten(batch, (Clock::now() - probed) * static_cast<std::int64_t>(batch.rounds / probe.rounds));
  ++batch.seed;
  const auto begun = Clock::now();
  if (Status status = sample(ours, batch, warm); !status) return status;
  shorten(batch, Clock::now() - begun);
  if (roof != nullptr)
    if (Status status = sample(*roof, batch, warm); !status) return status;
  const auto until = Clock::now() + std::chrono::duration<double>(plan.seconds_per_row);
  for (int turn = 0; turn < 3 || Clock::now() < until; ++turn) {
    ++batch.seed;
    if (Status status = sample(ours, batch, it); !status) return status;
    if (roof != nullptr)
      if (Status status = sample(*roof, batch, least); !status) return status;
  }
  row = summarize(batch, it, least);
  row.cores = watch.use();
  row.busy = why_slow(plan, batch, it, least, row.cores);
  const auto bytes = static_cast<double>(batch.size * std::max<std::uint64_t>(1, batch.pages));
  row.late = row.busy.empty() && is_late(row.p99_us, bytes, row.cores);
  return {};
}

}  // namespace

Status run(const Plan& plan, const std::string& path, Mover& ours, Mover* roof, const std::string& roof_name,
           Meter& meter, const OnRow& on_row) {
  int busy_twice = 0;
  for (const Operation operation : plan.operations)
    for (const std::uint64_t size : plan.sizes) {
      meter(fmt::format("{} {} {}", path, name_of(operation), size_text(size)));
      Batch batch;
      batch.operation = operation;
      batch.size = size;
      batch.pages = plan.settings.pages;
      batch.depth = plan.settings.depth;
      const std::uint64_t round_bytes = size * std::max<std::uint64_t>(1, batch.pages);
      if (batch.depth > 1 && !one_sided(operation)) continue;
      if (!ours.does(batch) || round_bytes > plan.settings.most) continue;
      batch.places = std::clamp<std::uint64_t>(kFootprint / round_bytes, 1, 1000);
      // A GPU lowers its clocks while the arrival is checked: warm it up.
      const bool gpu = plan.settings.from.starts_with("gpu:") || plan.settings.to.starts_with("gpu:");
      const std::uint64_t all = (batch.places + batch.depth - 1) / batch.depth;  // rounds that see every place
      batch.rounds = gpu || batch.depth > 1 ? std::max(all, kFewRounds) : all;
      batch.seed = 1;
      Mover* beside = roof != nullptr && operation != Operation::fetch_add && roof->does(batch) ? roof : nullptr;
      Row row;
      if (Status status = measure_row(plan, batch, ours, beside, row); !status) return status;
      constexpr int kGivenUp = 2;  // the cores stay busy, and more attempts only take time
      if (!row.busy.empty() && busy_twice < kGivenUp) {
        Row again;
        if (Status status = measure_row(plan, batch, ours, beside, again); !status) return status;
        busy_twice += again.busy.empty() ? 0 : 1;
        if (again.busy.empty() || again.p50_us < row.p50_us) row = again;
      }
      row.path = path;
      row.from = plan.settings.from;
      row.to = plan.settings.to;
      row.roof = beside != nullptr ? roof_name : "";
      row.expected = ours.expected(operation);
      row.path_description = ours.path_description(operation);
      if (Status status = on_row(row); !status) return status;
    }
  return {};
}

}  // namespace fairway::tool::bench
