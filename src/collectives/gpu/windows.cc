#include "collectives/gpu/windows.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "collectives/gpu/device/elements.h"
#include "collectives/host/lanes.h"
#include "collectives/state.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {

struct GpuWindows::Shown {
  Shown(Engine& engine_in, const Region& own_in, int size)
      : engine(engine_in), own(own_in), bytes(own_in.size_bytes), mappings(static_cast<std::size_t>(size)) {}
  ~Shown() {
    constexpr Timeout kTakingBack{1'000'000};
    if (!engine.is_open()) return;
    unmap();
    if (own.id) (void)engine.deregister(own, kTakingBack);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  void unmap() {
    for (Mapping& mapping : mappings)
      if (mapping.id) (void)engine.unmap(std::exchange(mapping, {}).id);
  }

  Engine& engine;
  Region own;
  std::uint64_t bytes;            // that every rank has
  std::vector<Mapping> mappings;  // of the others', by rank
};

GpuWindows::GpuWindows(Engine& engine, int device, int rank, int size)
    : engine_(engine), device_(device), rank_(rank), size_(size) {}
GpuWindows::~GpuWindows() = default;

Status GpuWindows::begin(void* memory, std::uint64_t size_bytes, const std::string& name) {
  const auto region = engine_.register_memory(memory, size_bytes, Access::read);
  if (!region) return region.status();
  begun_ = std::make_unique<Shown>(engine_, *region, size_);
  return engine_.publish(name, *region);
}

Status GpuWindows::meet(const std::vector<Member>& members, const std::string& name, Time deadline) {
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const auto remote = engine_.lookup(members[rank].peer, name, until(deadline));
    const auto mapping = remote ? engine_.map(*remote, device_, until(deadline)) : Result<Mapping>(remote.status());
    if (!mapping) return mapping.status().with_context(members[rank].name);
    begun_->mappings[rank] = *mapping;
    begun_->bytes = std::min(begun_->bytes, mapping->size_bytes);
  }
  return {};
}

WindowId GpuWindows::keep() {
  shown_.push_back(std::move(begun_));
  return {shown_.size()};
}

void GpuWindows::drop() {
  begun_.reset();
}

GpuWindows::Shown* GpuWindows::at(WindowId window) const {
  return window.number == 0 || window.number > shown_.size() ? nullptr : shown_[window.number - 1].get();
}

Status GpuWindows::forget(WindowId window) {
  Shown* const shown = at(window);
  if (shown == nullptr) return {ErrorCode::not_found, fmt::format("there is no window {}", window.number)};
  shown->unmap();
  return {};
}

Status GpuWindows::end(WindowId window, Timeout timeout) {
  std::unique_ptr<Shown> ends = std::move(shown_[window.number - 1]);
  const Status status = engine_.deregister(ends->own, timeout);
  if (status.code() == ErrorCode::not_fenced)
    ending_.push_back(std::move(ends));  // asked once more at the communicator's end
  else
    ends->own = {};
  return status;
}

std::optional<GpuWindows::Place> GpuWindows::find(const void* memory, std::uint64_t size_bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    if (!shown_[i]) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(shown_[i]->own.address);
    const std::uint64_t bytes = shown_[i]->bytes;
    if (at < begin || at - begin > bytes || size_bytes > bytes - (at - begin)) continue;
    Place place{{i + 1}, at - begin};
    for (std::size_t rank = 0; rank < shown_[i]->mappings.size(); ++rank)
      if (static_cast<int>(rank) != rank_)
        place.others[rank] = reinterpret_cast<const unsigned char*>(shown_[i]->mappings[rank].address) + place.offset;
    return place;
  }
  return {};
}

using sys::CurrentContext;
using sys::cuda::Address;
using sys::cuda::Stream;

// An operation that is being enqueued. After a failure nothing more is.
struct GpuReads::Job {
  GpuGroup& on;
  const Collective& call;
  const Plan& plan;
  gpu::ReadCall made;
  const Stream stream;
  Status status = {};
  bool is_first = true;

  [[nodiscard]] const sys::CudaDriver& cu() const { return *on.driver(); }
  [[nodiscard]] unsigned rank() const { return made.call.rank; }
  [[nodiscard]] unsigned size() const { return made.call.size; }
  [[nodiscard]] std::uint64_t block() const { return call.count * width_of(call); }

  // A kernel that meets the others; one that combines does so behind that, and meets them again.
  void meet(bool combines, bool ends) {
    made.call.blocks = combines ? plan.route.blocks : 1;
    made.ends = ends ? 1 : 0;
    if (status) status = on.start_reader(made, call.type, combines, is_first, stream);
    is_first = false;
  }
  void copy(void* to, const void* from, std::uint64_t bytes, Stream by) {
    if (!status || bytes == 0 || to == from) return;
    status = cu().check(cu()->cuMemcpyAsync(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes, by),
                        "copying between GPUs");
  }
  void check(int result) {
    if (status) status = cu().check(result, "a stream beside the caller's");
  }
  // one(rank), from the next rank on, so that not all read from one.
  template <class One>
  void each_other(One one) const {
    for (unsigned k = 1; k < size(); ++k) one((rank() + k) % size());
  }
};

// A capture goes on meanwhile: the driver allows that.
Status GpuReads::make(Beside& each) const {
  if (each.joined != nullptr) return {};
  const sys::CudaDriver& cu = *on_.driver();
  constexpr unsigned kNoTiming = 2;
  Status status;
  if (each.stream == nullptr)
    status = cu.check(cu->cuStreamCreateWithPriority(&each.stream, sys::cuda::kStreamNonBlocking, 0),
                      "making a stream for copies");
  if (status && each.forked == nullptr)
    status = cu.check(cu->cuEventCreate(&each.forked, kNoTiming), "making an event");
  if (status) status = cu.check(cu->cuEventCreate(&each.joined, kNoTiming), "making an event");
  return status;
}

GpuReads::~GpuReads() {
  const sys::CudaDriver& cu = *on_.driver();
  const CurrentContext current(cu, on_.context());
  for (const Beside& each : beside_) {
    if (each.forked != nullptr) cu->cuEventDestroy_v2(each.forked);
    if (each.joined != nullptr) cu->cuEventDestroy_v2(each.joined);
    if (each.stream != nullptr) cu->cuStreamDestroy_v2(each.stream);
  }
}

std::optional<GpuReads::Plan> GpuReads::plan(const Collective& call, const GpuWindows& windows, int rank, int size,
                                             std::uint64_t from) {
  if (call.algorithm != Algorithm::automatic || gpu::is_further(call)) return {};
  const gpu::Work work = gpu::work_of(call.kind);
  const std::uint64_t block = call.count * width_of(call), all = block * static_cast<std::uint64_t>(size);
  const auto route = gpu::read_route_of(static_cast<std::uint32_t>(size), work, block, from);
  const bool in_place = lies_in_place(call, rank, size);
  if (!route || (work == gpu::Work::to_each && in_place)) return {};  // what others read would be overwritten
  const bool shows_output = work == gpu::Work::from_root || (work == gpu::Work::to_all && in_place);
  const auto first = windows.find(shows_output ? call.output : call.input,
                                  gpu::is_to_each(work) || (shows_output && work == gpu::Work::to_all) ? all : block);
  const auto second = work == gpu::Work::reduce_to_all ? windows.find(call.output, block) : first;
  if (!first || !second) return {};
  Plan plan{*route, *first, *second, 0};
  if (work == gpu::Work::to_all && in_place) plan.step = block;
  return plan;
}

Status GpuReads::enqueue(const Collective& call, const Plan& plan, std::uint64_t digest, std::uint64_t number,
                         Timeout timeout, void* stream) {
  // Ranks whose memory lies in different places have called different things.
  for (const std::uint64_t each :
       {plan.first.window.number, plan.first.offset, plan.second.window.number, plan.second.offset, plan.step}) {
    digest = (digest ^ each) * 0x9E3779B97F4A7C15;
    digest ^= digest >> 32;
  }
  auto made = on_.reading_call(call, digest, number, timeout, stream);
  if (!made) return made.status();
  made->call.part_bytes = plan.route.part_bytes;
  std::copy(plan.first.others.begin(), plan.first.others.end(), made->inputs);
  const CurrentContext current(*on_.driver(), on_.context());
  Job job{on_, call, plan, *made, static_cast<Stream>(stream)};
  switch (made->call.work) {
    case gpu::Work::to_all:
    case gpu::Work::to_each: gather(job); break;
    case gpu::Work::from_root: broadcast(job); break;
    default: reduce(job);
  }
  return job.status;
}

// Each reads the others' blocks, beside a copy of its own.
void GpuReads::gather(Job& job) {
  const bool to_each = job.made.call.work == gpu::Work::to_each;
  const std::uint64_t block = job.block();
  auto* const output = static_cast<unsigned char*>(job.call.output);
  const auto* const input = static_cast<const unsigned char*>(job.call.input) + (to_each ? job.rank() * block : 0);
  Beside& beside = beside_[job.made.call.place];
  const bool keeps = input != output + job.rank() * block;
  if (keeps) job.status = make(beside);
  if (!job.status) return;
  job.meet(false, false);
  if (keeps) {
    job.check(job.cu()->cuEventRecord(beside.forked, job.stream));
    job.check(job.cu()->cuStreamWaitEvent(beside.stream, beside.forked, 0));
    job.copy(output + job.rank() * block, input, block, beside.stream);
    job.check(job.cu()->cuEventRecord(beside.joined, beside.stream));
  }
  job.each_other([&](unsigned from) {
    const std::uint64_t at = to_each ? job.rank() * block : from * job.plan.step;
    job.copy(output + from * block, job.plan.first.others[from] + at, block, job.stream);
  });
  if (keeps) job.check(job.cu()->cuStreamWaitEvent(job.stream, beside.joined, 0));
  job.meet(false, true);
}

// Each combines its block, or a part: then all read the parts.
void GpuReads::reduce(Job& job) {
  const bool is_sum = job.made.call.work == gpu::Work::reduce_to_all;
  job.meet(true, !is_sum);
  if (!is_sum) return;
  job.each_other([&](unsigned from) {
    const gpu::Range part = gpu::nth_part(job.block(), job.plan.route.part_bytes, from);
    job.copy(static_cast<unsigned char*>(job.call.output) + part.begin, job.plan.second.others[from] + part.begin,
             part.bytes, job.stream);
  });
  job.meet(false, true);
}

// In chunks, from the root's output, into which it copies the next one while this one is read. Among more than two a
// rank reads a part of a chunk from the root, while it reads the other parts of the chunk before from those who have
// them.
void GpuReads::broadcast(Job& job) {
  const auto root = static_cast<unsigned>(job.call.root), parts = job.size() - 1;
  auto* const output = static_cast<unsigned char*>(job.call.output);
  const bool is_root = job.rank() == root;
  const auto chunk_of = [&](std::uint32_t nth) { return gpu::nth_part(job.block(), job.plan.route.part_bytes, nth); };
  // The part of a chunk that rank `of` reads first, from `from`.
  const auto read_part = [&](std::uint32_t nth, unsigned of, unsigned from) {
    const gpu::Range chunk = chunk_of(nth);
    const std::uint64_t each = (chunk.bytes + parts * 128ULL - 1) / (parts * 128ULL) * 128;
    const gpu::Range part = gpu::nth_part(chunk.bytes, each, (of + parts - root) % job.size());
    const std::uint64_t at = chunk.begin + part.begin;
    job.copy(output + at, job.plan.first.others[from] + at, part.bytes, job.stream);
  };
  const std::uint32_t chunks = job.plan.route.chunks, steps = parts == 1 ? chunks : chunks + 1;
  for (std::uint32_t nth = 0; nth < steps; ++nth) {
    if (is_root) {
      const gpu::Range chunk = chunk_of(nth);
      job.copy(output + chunk.begin, static_cast<const unsigned char*>(job.call.input) + chunk.begin, chunk.bytes,
               job.stream);
    }
    job.meet(false, false);
    if (is_root) continue;
    job.each_other([&](unsigned from) {
      if (from == root && nth < chunks) read_part(nth, job.rank(), root);
      if (from != root && nth > 0) read_part(nth - 1, from, from);
    });
  }
  job.meet(false, true);
}

}  // namespace fairway::collectives
