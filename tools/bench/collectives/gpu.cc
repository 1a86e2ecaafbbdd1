#include "gpu.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace fairway::tool::bench {
namespace {

using namespace sys::cuda;
using Clock = std::chrono::steady_clock;

constexpr int kCaptures = 5;  // that have, beside the stream, most of a communicator's scratch memory

std::uint64_t calls_of_graph(const CollectiveWork& work) {
  return work.bytes <= (1U << 20) ? 50 : work.bytes <= (64U << 20) ? 10 : 3;
}

}  // namespace

std::vector<int> usual_gpu_ranks() {
  const int gpus = gpu_count();
  std::vector<int> all{2};
  for (int ranks = 4; ranks <= std::min(gpus, kMostGpuRanks); ranks *= 2) all.push_back(ranks);
  return all;
}

Status have_gpus(const std::vector<int>& ranks) {
  const auto driver = sys::CudaDriver::open();
  if (!driver)
    return {driver.status().code(),
            fmt::format("--memory gpu: {}; --memory host needs no GPU", driver.status().message())};
  const int most = *std::ranges::max_element(ranks), gpus = (*driver)->devices();
  if (most <= gpus) return {};
  return {ErrorCode::unsupported,
          fmt::format("--memory gpu: {} ranks need a GPU each, and there {} {} here (CUDA_VISIBLE_DEVICES may hide "
                      "some): take --ranks up to {}",
                      most, gpus == 1 ? "is" : "are", gpus, gpus)};
}

std::uint64_t rounds_of_graphs(const CollectiveWork& work, std::uint64_t rounds) {
  const std::uint64_t calls = calls_of_graph(work);
  return std::max<std::uint64_t>(1, rounds / calls) * calls;
}

// Copy engines take more time for an allocation that is no multiple of 2 MiB (docs/GOTCHAS.md).
Result<std::byte*> GpuRoom::of(Gpu& gpu, int device, std::uint64_t bytes) {
  constexpr std::uint64_t kWhole = 2 << 20;
  const std::uint64_t whole = std::max<std::uint64_t>(1, (bytes + kWhole - 1) / kWhole) * kWhole;
  if (whole > bytes_) {
    auto made = gpu.allocate(Gpu::Kind::device, device, whole);
    if (!made) return made.status();
    all_.push_back(std::move(*made));
    bytes_ = whole;
  }
  return all_.back().get();
}

Result<std::unique_ptr<GpuRank>> GpuRank::open(Communicator& world, const GpuPlace& place) {
  auto gpu = Gpu::open();
  if (!gpu) return gpu.status();
  std::unique_ptr<GpuRank> made(new GpuRank(world, place, *gpu));
  if (Status status = (*gpu)->on(world.rank(), [&] { return made->prepare(); }); !status) return status;
  return made;
}

GpuRank::~GpuRank() {
  (void)gpu_->on(world_.rank(), [&] {
    nccl_.reset();
    if (stream_ != nullptr) gpu_->driver()->cuStreamDestroy_v2(stream_);
    group_.reset();
    return Status();
  });
}

Status GpuRank::prepare() {
  const sys::CudaDriver& cu = gpu_->driver();
  if (place_.graph && (cu->cuStreamBeginCapture_v2 == nullptr || cu->cuGraphInstantiateWithFlags == nullptr))
    return {ErrorCode::unsupported, "--graph: this driver has no graphs; take a newer one, or leave out --graph"};
  Status status = cu.check(cu->cuStreamCreateWithPriority(&stream_, kStreamNonBlocking, 0), "a stream");
  if (status) status = renew();
  if (!status || !place_.nccl) return status;
  auto nccl = NcclRank::open(world_, place_.nccl_library);
  if (nccl) nccl_ = std::move(*nccl);
  return nccl.status();
}

// Another communicator of the same ranks.
Status GpuRank::renew() {
  group_.reset();
  captures_ = 0;
  auto made = world_.split(0);
  if (!made) return made.status();
  group_.emplace(std::move(*made));
  return group_->use_gpu(world_.rank(), {.nccl = NcclUse::never, .messages = true});
}

Result<Collective> GpuRank::put(CollectiveMemory& memory) {
  std::byte* there[2] = {};
  const std::span<std::byte> here[] = {memory.input(), memory.output()};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto room = (i == 0 ? input_ : output_).of(*gpu_, world_.rank(), here[i].size());
    if (!room) return room.status();
    there[i] = *room;
    if (here[i].empty()) continue;
    if (Status status = gpu_->copy(world_.rank(), there[i], here[i].data(), here[i].size()); !status) return status;
  }
  return memory.call_on(there[0], there[1]);
}

Status GpuRank::bring_back(CollectiveMemory& memory, const Collective& call) {
  const std::span<std::byte> here = memory.output();
  if (here.empty()) return {};
  return gpu_->copy(world_.rank(), here.data(), static_cast<const std::byte*>(call.output), here.size());
}

Status GpuRank::enqueue(const CollectiveOrder& order, const Collective& call, std::uint64_t bytes) {
  if (order.work.messages) return exchange(order.by_nccl, call, bytes);
  return order.by_nccl ? nccl_->enqueue(call, stream_) : group_->stream_run(call, stream_);
}

// To the next rank, and from the one before. A rank alone copies.
Status GpuRank::exchange(bool by_nccl, const Collective& call, std::uint64_t bytes) {
  const int ranks = world_.size(), next = (world_.rank() + 1) % ranks, before = (world_.rank() + ranks - 1) % ranks;
  const StreamMessage both[] = {{const_cast<void*>(call.input), bytes, next, false},
                                {call.output, bytes, before, true}};
  if (by_nccl) return nccl_->enqueue(both, stream_);
  if (ranks > 1) return group_->stream_messages(both, stream_);
  const sys::CudaDriver& cu = gpu_->driver();
  return cu.check(
      cu->cuMemcpyAsync(reinterpret_cast<Address>(call.output), reinterpret_cast<Address>(call.input), bytes, stream_),
      "a copy");
}

Status GpuRank::settle() {
  const sys::CudaDriver& cu = gpu_->driver();
  const Status ended = cu.check(cu->cuStreamSynchronize(stream_), "waiting for a stream");
  const Status status = group_->stream_status();
  return status ? ended : status;
}

Result<std::shared_ptr<ReadyGraph>> GpuRank::capture(std::uint64_t calls, const std::function<Status()>& once) {
  const sys::CudaDriver& cu = gpu_->driver();
  Status status = cu.check(cu->cuStreamBeginCapture_v2(stream_, kCaptureOfThread), "a capture");
  if (!status) return status;
  for (std::uint64_t i = 0; i < calls && status; ++i) status = once();
  Graph captured = nullptr;
  const Status ended = cu.check(cu->cuStreamEndCapture(stream_, &captured), "ending a capture");
  if (status) status = ended;
  ReadyGraph graph = nullptr;
  if (status) status = cu.check(cu->cuGraphInstantiateWithFlags(&graph, captured, 0), "making a graph");
  if (captured != nullptr) cu->cuGraphDestroy(captured);
  if (!status) return status;
  return std::shared_ptr<ReadyGraph>(new ReadyGraph(graph), [&cu](ReadyGraph* made) {
    cu->cuGraphExecDestroy(*made);
    delete made;
  });
}

// Microseconds of a round.
Result<double> GpuRank::time(const CollectiveOrder& order, const std::function<Status()>& once) {
  const sys::CudaDriver& cu = gpu_->driver();
  std::uint64_t launches = order.rounds;
  std::function<Status()> launch = once;
  std::shared_ptr<ReadyGraph> graph;
  if (place_.graph) {
    if (Status status = once(); !status) return status;  // NCCL connects ranks at the first call
    if (Status status = settle(); !status) return status;
    const std::uint64_t calls = calls_of_graph(order.work);
    auto made = capture(calls, once);
    if (!made) return made.status();
    graph = *made;
    launches = std::max<std::uint64_t>(1, order.rounds / calls);
    launch = [&] { return cu.check(cu->cuGraphLaunch(*graph, stream_), "launching a graph"); };
  }
  const auto loop = [&](std::uint64_t many) {
    for (std::uint64_t i = 0; i < many; ++i)
      if (Status status = launch(); !status) return status;
    return settle();
  };
  if (Status status = loop(std::max<std::uint64_t>(1, launches / 10)); !status) return status;  // warm
  if (Status status = world_.run({}); !status) return status;
  const auto start = Clock::now();
  if (Status status = loop(launches); !status) return status;
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  return us / static_cast<double>(place_.graph ? launches * calls_of_graph(order.work) : launches);
}

Result<Timed> GpuRank::run(const CollectiveOrder& order) {
  if (place_.graph && !order.by_nccl && captures_ == kCaptures)
    if (Status status = renew(); !status) return status;
  captures_ += place_.graph && !order.by_nccl ? 1 : 0;
  CollectiveMemory memory(order.work, world_.rank());
  const auto call = put(memory);
  if (!call) return call.status();
  Timed timed;
  timed.algorithm = order.work.messages                            ? "messages"
                    : order.work.algorithm == Algorithm::automatic ? "kernels"
                                                                   : to_string(order.work.algorithm);
  const Status status = gpu_->on(world_.rank(), [&] {
    const auto us = time(order, [&] { return enqueue(order, *call, memory.size_bytes()); });
    if (us) timed.us = *us;
    return us.status();
  });
  if (!status) return status;
  if (Status back = bring_back(memory, *call); !back) return back;
  timed.wrong = memory.wrong();
  return timed;
}

}  // namespace fairway::tool::bench
