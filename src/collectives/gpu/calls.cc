#include "collectives/gpu/calls.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "collectives/nccl/calls.h"
#include "collectives/state.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {
namespace {

constexpr Timeout kLookAround{10'000};  // how long a rank enqueues before it looks around

// What a rank tells the others of its attempt.
struct Attempt {
  std::int32_t code = 0;
  char text[252] = {};
};

std::uint64_t digest_of_call(const Collective& call) {
  Header header;
  header.count = call.count;
  header.root = call.root;
  header.kind = call.kind;
  header.type = call.type;
  header.reduction = call.reduction;
  header.algorithm = call.algorithm;
  return digest_of(header);
}

// The memory that a rank has for it.
struct Uses {
  std::uint64_t input = 0, output = 0;  // bytes
};
Uses uses_of(const Collective& call, int rank, int size) {
  const std::uint64_t width = width_of(call), one = call.count * width, all = one * static_cast<std::uint64_t>(size);
  const auto last = [width](const Blocks& blocks) {
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < blocks.counts.size(); ++i)
      if (blocks.counts[i] != 0) end = std::max<std::uint64_t>(end, (blocks.offsets[i] + blocks.counts[i]) * width);
    return end;
  };
  const bool here = rank == call.root;
  switch (call.kind) {
    case CollectiveKind::barrier: break;
    case CollectiveKind::all_reduce: return {one, one};
    case CollectiveKind::reduce: return {one, here ? one : 0};
    case CollectiveKind::broadcast: return {here ? one : 0, one};
    case CollectiveKind::all_gather: return {one, all};
    case CollectiveKind::gather: return {one, here ? all : 0};
    case CollectiveKind::scatter: return {here ? all : 0, one};
    case CollectiveKind::reduce_scatter: return {all, one};
    case CollectiveKind::all_to_all: return {all, all};
    case CollectiveKind::all_to_allv: return {last(call.send), last(call.receive)};
  }
  return {};
}

}  // namespace

Status GpuCalls::agree(const Status& own) {
  Attempt mine;
  mine.code = static_cast<std::int32_t>(own.code());
  const std::string text = own.message();
  std::memcpy(mine.text, text.data(), std::min(text.size(), sizeof mine.text - 1));
  std::vector<Attempt> all(static_cast<std::size_t>(size()));
  const Collective gather{
      .kind = CollectiveKind::all_gather, .input = &mine, .output = all.data(), .count = sizeof(Attempt)};
  if (Status status = parts_.group.run(gather); !status) return status;
  if (!own) return own;
  for (int other = 0; other < size(); ++other) {
    const Attempt& one = all[static_cast<std::size_t>(other)];
    if (one.code != 0) return Status(static_cast<ErrorCode>(one.code), one.text).with_context(name_of(other));
  }
  return {};
}

// Every rank says which GPU it has, then whether lines stay whole to all of theirs. Then each loads its kernels.
Status GpuCalls::agree_on_lines(GpuGroup& made, const GpuOptions& options, std::unique_ptr<GpuFurther>& further) {
  using BusId = std::array<char, 32>;
  BusId mine = {};
  const std::string id = made.bus_id();
  std::copy_n(id.begin(), std::min(id.size(), mine.size() - 2), mine.begin());
  mine.back() = options.graphs_in_turn ? 1 : 0;
  std::vector<BusId> ids(static_cast<std::size_t>(size()));
  Collective gather{.kind = CollectiveKind::all_gather, .input = &mine, .output = ids.data(), .count = sizeof mine};
  if (Status status = parts_.group.run(gather); !status) return status;
  for (std::size_t other = 0; other < ids.size(); ++other)
    if (ids[other].back() != mine.back())  // the same on each rank, as all have the same ids
      return {ErrorCode::invalid_argument,
              fmt::format("GpuOptions::graphs_in_turn: {} and this rank differ", name_of(static_cast<int>(other)))};
  bool good = true;
  for (std::size_t other = 0; other < ids.size(); ++other)
    if (static_cast<int>(other) != rank()) good = good && made.keeps_lines(ids[other].data());
  const std::uint8_t own = good ? 1 : 0;
  std::vector<std::uint8_t> all(ids.size());
  gather.input = &own;
  gather.output = all.data();
  gather.count = 1;
  if (Status status = parts_.group.run(gather); !status) return status;
  Status status = made.get_ready(std::all_of(all.begin(), all.end(), [](std::uint8_t each) { return each != 0; }));
  if (!status) return agree(status);
  auto loaded = GpuFurther::make(made, rank(), size());
  if (loaded) further = std::move(*loaded);
  return agree(loaded.status());
}

GpuCalls::GpuCalls(const Parts& parts) : parts_(parts) {}
GpuCalls::~GpuCalls() = default;

Status GpuCalls::open_nccl(const GpuGroup& on, const GpuOptions& options) {
  NcclCalls::Ranks ranks;
  ranks.rank = rank();
  ranks.size = size();
  ranks.timeout = parts_.options.timeout;
  ranks.run = [this](const Collective& call) { return parts_.group.run(call); };
  ranks.agree = [this](const Status& own) { return agree(own); };
  ranks.name = [this](int member) { return name_of(member); };
  auto made = NcclCalls::open(ranks, on, options);
  if (made) by_nccl_ = std::move(*made);
  return made.status();
}

Status GpuCalls::use_gpu(int number, const GpuOptions& options) {
  if (Status status = parts_.group.may_start(); !status) return status;
  if (on_gpus_)  // the ranks agree here too: who returned alone would answer the others' next operation
    return agree(
        on_gpus_->device() == number
            ? Status()
            : Status(ErrorCode::invalid_argument, fmt::format("this rank uses GPU {} already", on_gpus_->device())));
  const std::string name = fmt::format("collectives/{}/gpu{}", parts_.options.name, attempts_++);
  Status own;
  std::unique_ptr<GpuGroup> made;
  if (auto opened = GpuGroup::open(parts_.engine, number, rank(), size(), name, options.messages,
                                   options.graphs_in_turn, parts_.progress.told());
      opened) {
    made = std::move(*opened);
  } else {
    own = opened.status();
  }
  if (Status status = agree(own); !status) return status;
  own = made->meet(parts_.lanes.members(), name, after(Clock::now(), parts_.options.timeout));
  if (Status status = agree(own); !status) return status;
  std::unique_ptr<GpuFurther> further;  // goes before what it stands on
  if (Status status = agree_on_lines(*made, options, further); !status) return status;
  if (Status status = open_nccl(*made, options); !status) return status;
  on_gpus_ = std::move(made);
  further_ = std::move(further);
  stop_.store(on_gpus_->stop_word(), std::memory_order_release);
  return {};
}

// What copies need is made with the first window.
Status GpuCalls::begin_window(void* memory, std::uint64_t size_bytes, const std::string& name) {
  if (!windows_) {
    reads_ = std::make_unique<GpuReads>(*on_gpus_);
    windows_ = std::make_unique<GpuWindows>(parts_.engine, on_gpus_->device(), rank(), size());
  }
  const sys::CudaPointer pointer = sys::look_at(*on_gpus_->driver(), memory);
  if (memory != nullptr && (pointer.kind != MemoryKind::device || pointer.device != on_gpus_->device()))
    return {ErrorCode::invalid_argument,
            fmt::format("memory: a window is memory of GPU {}, which this rank uses", on_gpus_->device())};
  return windows_->begin(memory, size_bytes, name);
}

Result<WindowId> GpuCalls::register_window(void* memory, std::uint64_t size_bytes) {
  if (Status status = parts_.group.may_start(); !status) return status;
  if (!on_gpus_) return Status(ErrorCode::invalid_argument, "call use_gpu() first, on every rank");
  const std::string name = fmt::format("collectives/{}/window{}", parts_.options.name, attempts_++);
  Status status = agree(begin_window(memory, size_bytes, name));
  if (status) status = agree(windows_->meet(parts_.lanes.members(), name, after(Clock::now(), parts_.options.timeout)));
  if (status) return windows_->keep();
  if (windows_) windows_->drop();
  return status;
}

Status GpuCalls::deregister_window(WindowId window) {
  if (Status status = parts_.group.may_start(); !status) return status;
  if (!windows_) return {ErrorCode::not_found, "this communicator has no windows"};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size()));
  const Collective gather{
      .kind = CollectiveKind::all_gather, .input = &window.number, .output = all.data(), .count = sizeof window.number};
  if (Status status = parts_.group.run(gather); !status) return status;
  for (int other = 0; other < size(); ++other)
    if (const std::uint64_t theirs = all[static_cast<std::size_t>(other)]; theirs != window.number)
      return {ErrorCode::invalid_argument,
              fmt::format("window {}: {} ends window {}", window.number, name_of(other), theirs)};
  if (Status status = windows_->forget(window); !status) return status;  // all ranks have the same ones
  if (Status status = agree({}); !status) return status;
  return agree(windows_->end(window, parts_.options.timeout));
}

// Of an operation or a message.
Status GpuCalls::may_enqueue() {
  if (Status open = parts_.group.may_start(); !open) return open;
  if (on_gpus_ && (on_gpus_->failure() || by_nccl_->failure())) return status();
  if (const Time now = coarse_now(); now - looked_ >= kLookAround) {  // others' alarms
    looked_ = now;
    if (Status heard = parts_.group.heard(); !heard) return heard;
  }
  return on_gpus_ ? Status() : Status(ErrorCode::invalid_argument, "call use_gpu() first, on every rank");
}

// Whether it is well formed, can run on GPUs, and has memory that they reach.
Status GpuCalls::check_call(const Collective& call) const {
  Collective asked = call;
  asked.algorithm = Algorithm::automatic;  // check() knows those of hosts
  if (Status status = check(asked, rank(), size()); !status) return status;
  if (gpu::combines(gpu::work_of(call.kind)) && call.reduction == Reduction::custom)
    return {ErrorCode::unsupported, "on GPUs there is no custom reduction: run it on host memory"};
  if (call.algorithm != Algorithm::automatic &&
      (call.kind != CollectiveKind::all_reduce ||
       (call.algorithm != Algorithm::one_shot && call.algorithm != Algorithm::direct)))
    return {ErrorCode::invalid_argument, "algorithm: on GPUs all_reduce has one_shot and direct, others none"};
  const Uses uses = uses_of(call, rank(), size());
  if (uses.input != 0)
    if (Status status = on_gpus_->check_memory(call.input, uses.input, "input"); !status) return status;
  const bool in_place = call.output == call.input && uses.output <= uses.input;
  return uses.output != 0 && !in_place ? on_gpus_->check_memory(call.output, uses.output, "output") : Status();
}

// Where all places are taken, those are given back whose graphs no rank has any more. Every rank comes here at the same
// call, as all have given the same places to the same calls.
Status GpuCalls::make_room(void* stream) {
  const auto lacks = on_gpus_->lacks_place(stream);
  if (!lacks || !*lacks) return lacks.status();
  const gpu::Places::Set own = on_gpus_->places_over();
  std::vector<gpu::Places::Set> all(static_cast<std::size_t>(size()));
  const Collective gather{.kind = CollectiveKind::all_gather, .input = &own, .output = all.data(), .count = sizeof own};
  if (Status status = parts_.group.run(gather); !status) return status;
  gpu::Places::Set everywhere = own;
  for (const gpu::Places::Set& one : all)
    for (std::size_t i = 0; i < one.size(); ++i) everywhere[i] &= one[i];
  on_gpus_->give_back(everywhere);
  return {};
}

Status GpuCalls::run(const Collective& call, void* stream) {
  if (Status status = may_enqueue(); !status) return status;
  const auto refused = [&](const Status& why) { return why.with_context(to_string(call.kind)); };
  if (Status status = check_call(call); !status) return refused(status);
  if (Status status = make_room(stream); !status) return refused(status);
  if (Status status = launch(call, timeout_of(call.timeout), stream); !status) return refused(status);
  ++parts_.started;
  return on_gpus_->ends_at(stream);
}

Status GpuCalls::run_messages(std::span<const StreamMessage> group, void* stream, std::optional<Timeout> timeout) {
  if (Status status = may_enqueue(); !status) return status;
  const auto refused = [](const Status& why) { return why.with_context("stream_messages"); };
  if (!by_nccl_->options().messages)
    return refused({ErrorCode::invalid_argument, "call use_gpu() with GpuOptions::messages on every rank"});
  for (const StreamMessage& message : group) {
    if (message.peer < 0 || message.peer >= size() || message.peer == rank())
      return refused(
          {ErrorCode::invalid_argument, fmt::format("peer {} is no other rank of 0 to {}", message.peer, size() - 1)});
    if (message.size_bytes == 0) continue;
    if (Status status = on_gpus_->check_memory(message.data, message.size_bytes, "data"); !status)
      return refused(status);
  }
  // Other ranks do not count them, so it is as of the next operation that one fails.
  return refused(further_->launch_messages(group, parts_.started + 1, timeout_of(timeout), stream));
}

Status GpuCalls::launch(const Collective& call, Timeout timeout, void* stream) {
  const std::uint64_t digest = digest_of_call(call), number = parts_.started + 1;
  if (const auto plan = reading_plan(call)) return reads_->enqueue(call, *plan, digest, number, timeout, stream);
  bool captured = false;
  if (by_nccl_->may_take(call)) {
    const auto source = on_gpus_->source_of(stream);
    if (!source) return source.status();
    captured = source->capture != 0;
    if (by_nccl_->takes(call, captured))
      return by_nccl_->enqueue(*on_gpus_, call, digest, number, timeout, stream, captured);
  }
  if (gpu::is_further(call)) return further_->launch(call, digest, number, timeout, stream);
  if (meets_first(call)) {
    const Status met = on_gpus_->launch(call, digest, number, timeout, stream, GpuGroup::Part::meeting);
    if (!met) return met;
  }
  return on_gpus_->launch(call, digest, number, timeout, stream);
}

bool GpuCalls::meets_first(const Collective& call) const {
  const std::uint64_t from = by_nccl_->options().meet_from;
  return from != 0 && size() > 1 && !gpu::is_further(call) && bytes_of_all(call, size()) >= from;
}

std::optional<GpuReads::Plan> GpuCalls::reading_plan(const Collective& call) const {
  if (!reads_ || by_nccl_->options().nccl == NcclUse::always) return {};
  return GpuReads::plan(call, *windows_, rank(), size(), by_nccl_->options().windows_from);
}

std::string GpuCalls::explain(const Collective& call, bool captured) const {
  if (gpu::combines(gpu::work_of(call.kind)) && call.reduction == Reduction::custom)
    return fmt::format("{} (custom): it does not run on GPUs", to_string(call.kind));
  if (const auto plan = reading_plan(call))
    return fmt::format("{} of {} bytes: by Fairway, which reads it in window {}", to_string(call.kind),
                       bytes_of_all(call, size()), plan->first.window.number);
  if (!by_nccl_) return "use_gpu() was not called";
  const std::string said = by_nccl_->explain(call, captured);
  return meets_first(call) && !by_nccl_->takes(call, captured) ? said + "; first one warp waits for the others" : said;
}

void GpuCalls::stop() {
  if (std::uint32_t* const word = stop_.load(std::memory_order_acquire); word != nullptr) tell(*word, 1);
}

}  // namespace fairway::collectives
