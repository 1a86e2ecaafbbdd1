#include "collectives/nccl/way_table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "collectives/gpu/calls.h"
#include "collectives/nccl/calls.h"
#include "collectives/way_file.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {
namespace {

constexpr std::string_view kWhat = "fairway: ways of collectives on streams";
constexpr int kFormat = 1;
constexpr std::array kKinds{CollectiveKind::all_reduce,     CollectiveKind::broadcast,  CollectiveKind::all_gather,
                            CollectiveKind::reduce_scatter, CollectiveKind::all_to_all, CollectiveKind::reduce,
                            CollectiveKind::gather,         CollectiveKind::scatter};
constexpr std::uint64_t kLongest = 100'000'000'000;  // ns; nothing that was measured takes longer
constexpr std::uint64_t kOfHundred = 97;             // the time of what is faster, at the most

std::optional<WayRow> row_of(const std::string& line) {
  std::istringstream words(line);
  std::string kind, how, more;
  WayRow row;
  if (!(words >> kind >> how >> row.bytes)) return {};
  for (std::uint64_t& ns : row.ns)
    if (!(words >> ns) || ns == 0 || ns > kLongest) return {};
  if (words >> more) return {};
  const auto* const found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](CollectiveKind each) { return to_string(each) == kind; });
  if (found == kKinds.end() || (how != "graph" && how != "launched")) return {};
  row.kind = *found;
  row.captured = how == "graph";
  return row;
}

}  // namespace

bool WayRow::is_faster(GpuWay way) const {
  return ns[static_cast<std::size_t>(way)] * 100 < ns[0] * kOfHundred;
}

std::string WayTable::text(const std::string& key) const {
  std::string out;
  for (const WayRow& row : rows_)
    out += fmt::format("{} {} {} {} {} {}\n", to_string(row.kind), row.captured ? "graph" : "launched", row.bytes,
                       row.ns[0], row.ns[1], row.ns[2]);
  return framed(kWhat, kFormat, key, out);
}

Result<WayTable> WayTable::parse(const std::string& text, const std::string& key) {
  const auto lines = rows_in(text, kWhat, kFormat, key);
  if (!lines) return lines.status();
  WayTable table;
  for (const std::string& line : *lines) {
    const auto row = row_of(line);
    if (!row || table.rows_.size() == kMostRows) return unusable(fmt::format("it has a line that is wrong: {}", line));
    table.add(*row);
  }
  return table;
}

WayTable::Around WayTable::around(CollectiveKind kind, bool captured, std::uint64_t bytes) const {
  Around out;
  for (const WayRow& row : rows_) {
    if (row.kind != kind || row.captured != captured) continue;
    if (row.bytes <= bytes && (out.below == nullptr || row.bytes > out.below->bytes)) out.below = &row;
    if (row.bytes >= bytes && (out.above == nullptr || row.bytes < out.above->bytes)) out.above = &row;
  }
  return out;
}

bool WayTable::takes(GpuWay way, CollectiveKind kind, bool captured, std::uint64_t bytes) const {
  const auto [below, above] = around(kind, captured, bytes);
  if (below == nullptr && above == nullptr) return false;
  return (below == nullptr || below->is_faster(way)) && (above == nullptr || above->is_faster(way));
}

bool WayTable::takes_any(GpuWay way) const {
  return std::any_of(rows_.begin(), rows_.end(), [way](const WayRow& row) { return row.is_faster(way); });
}

std::uint64_t bytes_of_all(const Collective& call, int size) {
  std::uint64_t elements = call.count;
  switch (call.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all: elements *= static_cast<std::uint64_t>(size); break;
    case CollectiveKind::all_to_allv:  // of this rank
      elements = 0;
      for (const std::size_t count : call.send.counts) elements += count;
      break;
    default: break;
  }
  return elements * size_of(call.type);
}

namespace {

constexpr std::array kMeasured{CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                               CollectiveKind::all_to_all, CollectiveKind::broadcast,  CollectiveKind::reduce,
                               CollectiveKind::gather,     CollectiveKind::scatter};
constexpr std::array<std::size_t, 9> kSizes{512,      8U << 10,  64U << 10, 256U << 10, 1U << 20,
                                            4U << 20, 16U << 20, 64U << 20, 256U << 20};
constexpr int kTurns = 7;
constexpr std::size_t kCaptures = 30;  // that a communicator serves, beside its stream

std::size_t many_of(std::size_t bytes) {
  return bytes <= (1U << 20) ? 20 : bytes <= (16U << 20) ? 6 : 2;
}

// One who takes part: a communicator of the same ranks, with options of its own.
struct Side {
  GpuOptions options;
  std::optional<Communicator> group = {};
  sys::cuda::ReadyGraph graph = nullptr;
  std::vector<std::uint64_t> ns = {};
};

// Memory, a stream and graphs of the rank's GPU. A resource.
class Bench {
 public:
  Bench(Communicator& group, const GpuGroup& on)
      : group_(group), driver_(*on.driver()), context_(on.context()), gpu_(on.device()) {}
  ~Bench() {
    const sys::CurrentContext current(driver_, context_);
    if (stream_ != nullptr) driver_->cuStreamDestroy_v2(stream_);
    if (memory_ != 0) driver_->cuMemFree_v2(memory_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Status prepare(std::size_t bytes) {
    if (driver_->cuGraphInstantiateWithFlags == nullptr || driver_->cuStreamBeginCapture_v2 == nullptr)
      return {ErrorCode::unsupported, "this driver has no graphs: a newer one is needed"};
    const sys::CurrentContext current(driver_, context_);
    bytes_ = bytes;
    Status status = driver_.check(driver_->cuMemAlloc_v2(&memory_, 2 * bytes), "allocating what is moved");
    if (status)
      status =
          driver_.check(driver_->cuStreamCreateWithPriority(&stream_, sys::cuda::kStreamNonBlocking, 0), "a stream");
    if (status)
      status = driver_.check(driver_->cuMemsetD8Async(memory_, 0, 2 * bytes, stream_), "clearing what is moved");
    return status ? driver_.check(driver_->cuStreamSynchronize(stream_), "clearing what is moved") : status;
  }

  // The communicators of all sides, new ones.
  Status renew(std::vector<Side>& sides) {
    for (Side& side : sides) {
      side.group.reset();
      auto made = group_.split(0);
      if (!made) return made.status();
      side.group.emplace(std::move(*made));
      if (Status status = side.group->use_gpu(gpu_, side.options); !status) return status;
    }
    return {};
  }

  // Nanoseconds of one operation by each side: medians over turns of the slowest rank's time.
  Status measure(std::vector<Side>& sides, CollectiveKind kind, std::size_t bytes, bool captured) {
    const std::size_t many = many_of(bytes);
    const Collective call = call_of(kind, bytes);
    Status status;
    for (Side& side : sides) {
      side.ns.clear();
      if (status && captured) status = capture(side, call, many);
    }
    for (int turn = -1; turn < kTurns && status; ++turn)  // the first is a trial
      for (Side& side : sides) {
        std::uint64_t ns = 0;
        if (status) status = time(side, call, many, captured, ns);
        if (status && turn >= 0) side.ns.push_back(ns);
      }
    const sys::CurrentContext current(driver_, context_);
    for (Side& side : sides) {
      if (side.graph != nullptr) driver_->cuGraphExecDestroy(std::exchange(side.graph, nullptr));
      std::sort(side.ns.begin(), side.ns.end());
    }
    return status.with_context(fmt::format("{} of {} bytes", to_string(kind), bytes));
  }

 private:
  [[nodiscard]] Collective call_of(CollectiveKind kind, std::size_t bytes) const {
    Collective call{.kind = kind, .type = DataType::f32};
    call.input = reinterpret_cast<const void*>(memory_);
    call.output = reinterpret_cast<void*>(memory_ + bytes_);
    call.count = 1;
    call.count = bytes / bytes_of_all(call, group_.size());
    return call;
  }

  Status capture(Side& side, const Collective& call, std::size_t many) {
    const sys::CurrentContext current(driver_, context_);
    Status status = driver_.check(driver_->cuStreamBeginCapture_v2(stream_, sys::cuda::kCaptureOfThread), "a capture");
    if (!status) return status;
    for (std::size_t i = 0; i < many && status; ++i) status = side.group->stream_run(call, stream_);
    sys::cuda::Graph graph = nullptr;
    const Status ended = driver_.check(driver_->cuStreamEndCapture(stream_, &graph), "ending a capture");
    if (status) status = ended;
    if (status) status = driver_.check(driver_->cuGraphInstantiateWithFlags(&side.graph, graph, 0), "making a graph");
    if (graph != nullptr) driver_->cuGraphDestroy(graph);
    return status;
  }

  Status time(Side& side, const Collective& call, std::size_t many, bool captured, std::uint64_t& ns) {
    if (Status status = group_.run({}); !status) return status;
    const auto begin = std::chrono::steady_clock::now();
    Status status;
    {
      const sys::CurrentContext current(driver_, context_);
      if (captured) status = driver_.check(driver_->cuGraphLaunch(side.graph, stream_), "launching a graph");
      for (std::size_t i = 0; i < many && status && !captured; ++i) status = side.group->stream_run(call, stream_);
      const Status ended = driver_.check(driver_->cuStreamSynchronize(stream_), "waiting for a stream");
      if (status) status = ended;
    }
    const auto took = std::chrono::steady_clock::now() - begin;
    if (status) status = side.group->stream_status();
    if (!status) return status;
    return slowest(group_, took, many, ns);
  }

  Communicator& group_;
  const sys::CudaDriver& driver_;
  const sys::cuda::Context context_;
  const int gpu_;
  std::size_t bytes_ = 0;
  sys::cuda::Address memory_ = 0;
  sys::cuda::Stream stream_ = nullptr;
};

double us_of(const Side& side) {
  return static_cast<double>(side.ns[side.ns.size() / 2]) / 1e3;
}

// Calls row(kind, captured, bytes) for each, once its sides were measured.
template <class Row>
Status measure_all(Bench& bench, std::vector<Side>& sides, std::size_t most, Row row) {
  std::size_t captures = kCaptures;
  for (const CollectiveKind kind : kMeasured)
    for (const std::size_t bytes : kSizes) {
      if (bytes > most) continue;
      if (++captures > kCaptures) {
        captures = 1;
        if (Status status = bench.renew(sides); !status) return status;
      }
      for (const bool captured : {true, false}) {
        if (Status status = bench.measure(sides, kind, bytes, captured); !status) return status;
        row(kind, captured, bytes);
      }
    }
  return {};
}

std::string row_text(CollectiveKind kind, bool captured, std::size_t bytes, const std::vector<Side>& sides) {
  std::string out = fmt::format("{:<15} {:>9} {:>10}", to_string(kind), captured ? "graph" : "launched", bytes);
  for (const Side& side : sides) out += fmt::format(" {:>10.2f}", us_of(side));
  return out;
}

}  // namespace

Result<std::string> measure_ways(Communicator& group, GpuCalls& gpu, std::size_t most_bytes, bool compare) {
  const auto refused = [](const Status& why) { return why.with_context("measure_gpu"); };
  const GpuGroup* const on = gpu.on_gpus();
  const NcclCalls* const nccl = gpu.by_nccl();
  if (on == nullptr) return refused({ErrorCode::invalid_argument, "call use_gpu() first, on every rank"});
  if (nccl->options().nccl == NcclUse::never)
    return refused(
        {ErrorCode::invalid_argument, "use_gpu() was called with NcclUse::never: there is nothing to choose"});
  if (group.size() == 1) return refused({ErrorCode::unsupported, "there is one rank"});
  if (!nccl->has_nccl()) return refused(nccl->has_nccl());
  const std::string path = nccl->table_path();
  const std::size_t most = std::clamp(most_bytes, kSizes.front(), kSizes.back());

  GpuOptions ours = nccl->options(), guarded = ours, bare = ours;
  ours.nccl = NcclUse::never;
  guarded.nccl = bare.nccl = NcclUse::always;
  guarded.guarded = true;
  bare.guarded = false;
  std::vector<Side> sides(kGpuWays);  // in that order
  sides[0].options = ours;
  sides[1].options = guarded;
  sides[2].options = bare;
  Bench bench(group, *on);
  if (Status status = bench.prepare(most); !status) return refused(status);
  WayTable table;
  std::string text = fmt::format("{}\n{:<15} {:>9} {:>10} {:>10} {:>10} {:>10}  taken\n", nccl->key(), "us", "",
                                 "bytes", "Fairway", "guarded", "unguarded");
  Status status = measure_all(bench, sides, most, [&](CollectiveKind kind, bool captured, std::size_t bytes) {
    WayRow row{kind, captured, bytes};
    for (std::size_t way = 0; way < kGpuWays; ++way)
      row.ns[way] = std::max<std::uint64_t>(1, sides[way].ns[sides[way].ns.size() / 2]);
    table.add(row);
    text += row_text(kind, captured, bytes, sides);
    text += fmt::format("  {}\n", row.is_faster(GpuWay::guarded) ? "NCCL guarded" : "Fairway");
  });
  if (!status) return refused(status);
  // That it was written is told to all: they read it next.
  if (group.rank() == 0)
    status = path.empty() ? way_file_path(nccl->key()).status() : write_way_file(path, table.text(nccl->key()));
  if (Status all = gpu.all_say(status); !all) return refused(all);
  text += fmt::format("kept in {}\n", path);
  if (!compare) return text;

  GpuOptions chosen = nccl->options();
  chosen.nccl = NcclUse::measured;
  sides.insert(sides.begin(), Side{chosen});
  text += fmt::format("\n{:<15} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7}  chosen\n", "us", "", "bytes", "chosen",
                      "Fairway", "guarded", "unguarded", "best/it");
  status = measure_all(bench, sides, most, [&](CollectiveKind kind, bool captured, std::size_t bytes) {
    const double best = std::min(us_of(sides[1]), us_of(sides[chosen.guarded ? 2 : 3]));
    const GpuWay way = chosen.guarded ? GpuWay::guarded : GpuWay::bare;
    text += row_text(kind, captured, bytes, sides);
    text += fmt::format(" {:>7.2f}  {}\n", best / us_of(sides[0]),
                        table.takes(way, kind, captured, bytes) ? "NCCL" : "Fairway");
  });
  if (!status) return refused(status);
  return text;
}

}  // namespace fairway::collectives
