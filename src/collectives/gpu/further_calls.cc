#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "collectives/gpu/calls.h"
#include "collectives/gpu/device/call.h"
#include "collectives/state.h"
#include "sys/cuda.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {
namespace {

// In the order of DataType, behind the one that moves bytes; behind all the one of messages.
constexpr const char* kFurtherNames[] = {"move", "i8",  "u8",   "i16", "u16", "i32",    "u32",    "i64",
                                         "u64",  "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "messages"};

constexpr std::uint32_t kFewSources = 2;  // of a pair's messages: so many cost no events
constexpr auto kMessage = static_cast<CollectiveKind>(gpu::kMessageKind);

// What each rank has for, and gets from, this one.
void fill_blocks(const Collective& call, unsigned rank, unsigned size, gpu::FurtherCall& made) {
  const std::uint64_t width = width_of(call), bytes = call.count * width;
  const auto root = static_cast<unsigned>(call.root);
  for (unsigned other = 0; other < size; ++other) {
    if (call.kind == CollectiveKind::all_to_allv) {
      made.sends[other] = call.send.counts[other] * width;
      made.takes[other] = call.receive.counts[other] * width;
      if (made.sends[other] != 0) made.send_at[other] = call.send.offsets[other] * width;
      if (made.takes[other] != 0) made.take_at[other] = call.receive.offsets[other] * width;
      continue;
    }
    const bool gathers = call.kind == CollectiveKind::gather, here = rank == root;
    if (gathers ? other == root : here) made.sends[other] = bytes;
    if (gathers ? here : other == root) made.takes[other] = bytes;
    if (gathers && here) made.take_at[other] = other * bytes;
    if (!gathers && here) made.send_at[other] = other * bytes;
  }
  made.sized = call.kind == CollectiveKind::all_to_allv ? 1 : 0;
}

// `nth`: of its source. Ranks that do not agree whose place it is by now find it out.
std::uint64_t digest_of_message(unsigned from, unsigned to, std::uint64_t bytes, std::uint64_t nth) {
  Header header;
  header.kind = kMessage;
  header.count = bytes;
  header.operation = nth;
  header.root = static_cast<std::int32_t>(from * gpu::kMostRanks + to);
  return digest_of(header);
}

}  // namespace

Result<std::unique_ptr<GpuFurther>> GpuFurther::make(GpuGroup& on, int rank, int size) {
  std::unique_ptr<GpuFurther> made(new GpuFurther(on, rank, size));
  if (Status status = made->load(); !status) return status;
  return made;
}

Status GpuFurther::load() {
  const sys::CudaDriver& cu = *on_.driver();
  const sys::CurrentContext current(cu, on_.context());
  sys::cuda::Module module = nullptr;
  if (Status status =
          cu.check(sys::load_once(cu, on_.context(), gpu::further_kernels(), &module), "loading the further kernels");
      !status)
    return status;
  std::vector<std::string> names;
  for (const char* const name : kFurtherNames)
    names.push_back(fmt::format("fairway_further_{}_{}", on_.by_lines() ? "lines" : "units", name));
  return on_.load(module, names, kernels_);
}

GpuFurther::GpuFurther(GpuGroup& on, int rank, int size)
    : on_(on),
      rank_(rank),
      size_(size),
      sends_(static_cast<std::size_t>(size),
             GpuPlaces(on.driver(), gpu::Places(gpu::Layout::kMessagePlaces, kFewSources),
                       "messages from one rank to another go on")),
      receives_(sends_) {}

GpuFurther::~GpuFurther() {
  std::vector<sys::cuda::Event> events;
  for (const auto* const all : {&sends_, &receives_})
    for (const GpuPlaces& places : *all) events.insert(events.end(), places.events().begin(), places.events().end());
  on_.destroy(std::move(events));
}

Status GpuFurther::launch(const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout,
                          void* stream) {
  const auto filled = on_.call_of(call, digest, number, timeout, stream);
  if (!filled) return filled.status();
  gpu::FurtherCall made = {};
  made.call = *filled;
  made.factor = is_premul(call) ? call.factor : 1;
  made.sizes_at = on_.layout().sizes_of(filled->place);
  if (size_ == 1 && made.factor == 1 && gpu::combines(filled->work)) {  // nothing is rounded: as on hosts, a copy
    made.call.work = gpu::Work::blocks;
    made.sends[0] = made.takes[0] = call.count * width_of(call);
  } else if (filled->work == gpu::Work::blocks) {
    fill_blocks(call, filled->rank, filled->size, made);
  }
  const bool moves = made.call.work == gpu::Work::blocks;
  const gpu::Route route = gpu::further_route_of(on_.layout(), filled->place, filled->work, call.count * width_of(call),
                                                 made.sized != 0, call.algorithm, on_.by_lines());
  made.call.lines = route.lines;
  made.call.area_lines = route.area_lines;
  made.call.area = on_.layout().area;
  made.call.blocks = route.blocks;
  made.call.wants_area = route.wants_area ? 1 : 0;
  made.call.way = route.way;
  made.call.part_bytes = route.part_bytes;
  const sys::cuda::Function kernel = kernels_[moves ? 0 : static_cast<std::size_t>(call.type) + 1];
  return on_.start(kernel, route.blocks, route.threads, stream, &made);
}

Result<gpu::MessageCall> GpuFurther::message_of(const StreamMessage& message, std::uint64_t number, Timeout timeout,
                                                const Source& source, sys::cuda::Stream stream, unsigned& threads) {
  const auto own = static_cast<unsigned>(rank_), peer = static_cast<unsigned>(message.peer);
  const unsigned from = message.receives ? peer : own, to = message.receives ? own : peer;
  const auto found = places_of(message).place_of(source, stream);
  if (!found) return found.status();
  const std::uint32_t place = found->at, id = gpu::Layout::message_id(from, to, place);
  const gpu::Layout& layout = on_.layout();
  Collective call{.kind = kMessage, .count = message.size_bytes};
  call.input = message.receives ? nullptr : message.data;
  call.output = message.receives ? message.data : nullptr;
  gpu::MessageCall made = {};
  made.call = on_.call_at(gpu::Layout::told_of(own, from, to, place), call,
                          digest_of_message(from, to, message.size_bytes, found->nth), number, timeout);
  const gpu::Route route =
      gpu::message_route_of(layout.size, layout.message_of(from, to, place), message.size_bytes, on_.by_lines());
  made.call.place = gpu::Layout::kPlaces + id;
  made.call.place_at = layout.head_of(id);
  made.call.lines = route.lines;
  made.call.blocks = route.blocks;
  made.heard_at = layout.heard_of(from, to, place);
  made.peer = peer;
  made.sends = message.receives ? 0 : 1;
  threads = std::max(threads, route.threads);
  return made;
}

Status GpuFurther::start_messages(gpu::MessagesCall& all, unsigned threads, void* stream) {
  unsigned blocks = 0;
  for (unsigned i = 0; i < all.count; ++i) blocks += all.each[i].call.blocks;
  return on_.start(kernels_.back(), blocks, threads, stream, &all);
}

// A kernel's messages wait for nothing of each other, so none that this rank has ahead may wait for what comes behind.
// If they are more than a kernel has room for, it takes those of half the ranks: of two kernels in a row both ranks of
// a message are in the same one, since that follows from the sum of their numbers; and so both are for the same of
// several between two ranks. A rank whose messages are one kernel is only earlier with those of the second half.
Status GpuFurther::enqueue_messages(std::span<const StreamMessage> group, std::uint64_t number, Timeout timeout,
                                    const Source& source, sys::cuda::Stream stream) {
  std::vector<StreamMessage> left(group.begin(), group.end());
  std::vector<std::pair<gpu::MessagesCall, unsigned>> kernels;  // with their threads: none is started if one is refused
  while (!left.empty()) {
    std::vector<StreamMessage> later, now;
    for (const StreamMessage& one : left) {
      const bool again = std::any_of(now.begin(), now.end(), [&](const StreamMessage& other) {
        return other.peer == one.peer && other.receives == one.receives;
      });
      (again ? later : now).push_back(one);
    }
    const int kernels_of_now = now.size() <= gpu::messages_at_once(static_cast<std::uint32_t>(size_)) ? 1 : 2;
    for (int half = 0; half < kernels_of_now; ++half) {
      gpu::MessagesCall all = {};
      unsigned threads = gpu::kRowLanes;
      for (const StreamMessage& one : now) {
        if ((one.peer + rank_) % size_ * kernels_of_now / size_ != half) continue;
        const auto made = message_of(one, number, timeout, source, stream, threads);
        if (!made) return made.status();
        all.each[all.count++] = *made;
      }
      if (all.count != 0) kernels.emplace_back(all, threads);
    }
    left = std::move(later);
  }
  for (auto& [all, threads] : kernels)
    if (Status status = start_messages(all, threads, stream); !status) return status;
  return {};
}

Status GpuFurther::launch_messages(std::span<const StreamMessage> group, std::uint64_t number, Timeout timeout,
                                   void* stream) {
  const auto source = on_.source_of(stream);
  if (!source) return source.status();
  const sys::CurrentContext current(*on_.driver(), on_.context());
  const auto on = static_cast<sys::cuda::Stream>(stream);
  Status status = enqueue_messages(group, number, timeout, *source, on);
  for (const StreamMessage& one : group)  // also of what was refused: it may have taken places
    if (GpuPlaces& places = places_of(one); places.need_ends())
      if (Status ends = places.ends_at(*source, on); status) status = std::move(ends);
  return status;
}

}  // namespace fairway::collectives
