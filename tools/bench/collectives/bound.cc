#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "bench/gpu_machine.h"
#include "collectives.h"
#include "predict/open.h"

namespace fairway::tool::bench {
// Blocks that do not stay in a core's own cache, as buffers of collectives do not.
MachineRates measure_rates() {
  constexpr std::size_t kBytes = 16U << 20;
  std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2});
  MachineRates rates;
  rates.cores = std::max(1U, std::thread::hardware_concurrency());
  for (int turn = 0; turn < 7; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    std::copy(from.begin(), from.end(), to.begin());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rates.copy = std::max(rates.copy, static_cast<double>(kBytes) / took.count());
    std::swap(from, to);
  }
  return rates;
}

// Each rank reads the others' memory: it copies a byte once, and combines one in the time of 1.5 copies (two bytes read
// and one written, where a copy reads one and writes one). Ranks beyond the cores wait their turn.
double bound_us(const CollectiveWork& work, const std::string& path, const MachineRates& rates) {
  if (path != "shm" || rates.copy == 0) return 0;
  const double n = work.ranks, s = static_cast<double>(work.whole());
  const double turns = std::max(1.0, n / rates.cores);
  const double copy = 1 / rates.copy * 1e6, combine = 1.5 * copy;
  if (work.messages) return turns * s * copy;
  switch (work.kind) {
    case CollectiveKind::all_reduce: return turns * (n - 1) / n * s * (combine + copy);
    case CollectiveKind::reduce: return (turns * combine + copy) * (n - 1) / n * s;
    case CollectiveKind::reduce_scatter: return turns * (n - 1) / n * s * combine;
    case CollectiveKind::broadcast: return std::max(1.0, (n - 1) / rates.cores) * s * copy;
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_to_allv: return turns * s * copy;
    case CollectiveKind::gather: return s * copy;
    case CollectiveKind::scatter: return turns / n * s * copy;
    case CollectiveKind::barrier: break;
  }
  return 0;
}

// Every GPU sends to every other at once, by a kernel.
Result<double> gpu_rate(int ranks, const std::string& machine) {
  const auto model = predict::open_model(machine);
  if (!model && !machine.empty()) return model.status().with_context("--from");
  if (!model || ranks < 2) return 0.0;
  predict::Conditions by_kernel;
  by_kernel.by_kernel = true;
  std::vector<predict::Flow> flows;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const auto a = gpu_of(model->machine(), from), b = gpu_of(model->machine(), to);
      if (!a || !b) return 0.0;
      flows.push_back({*a, *b, {}, by_kernel});
    }
  const auto predicted = model->predict(flows);
  if (!predicted) return 0.0;
  double least = 0;
  for (int from = 0; from < ranks; ++from) {
    double sent = 0;
    for (int other = 0; other < ranks - 1; ++other) {
      const predict::Prediction& one = (*predicted)[static_cast<std::size_t>(from * (ranks - 1) + other)];
      if (!one.known) return 0.0;
      sent += one.gbs.high * 1e9;
    }
    least = from == 0 ? sent : std::min(least, sent);
  }
  return least;
}

// The bytes by which nccl-tests counts bus bandwidth: what a GPU sends, or gets, at the least without multicast.
double gpu_bound_us(const CollectiveWork& work, double rate) {
  return rate == 0 ? 0 : static_cast<double>(work.whole()) * work.bus_factor() / rate * 1e6;
}

}  // namespace fairway::tool::bench
