#include "engine/mapped_regions.h"

#include <algorithm>
#include <atomic>

namespace fairway::engine {
namespace {

constexpr std::uint32_t kMostPutBlocks = 1024;

constexpr Time kAskAgain = 200 * kMicrosecond;  // drivers open memory within milliseconds

Status malformed(const char* why) {
  return {ErrorCode::invalid_argument, why};
}

Status no_such_mapping() {
  return {ErrorCode::not_found, "no such mapping, or it was unmapped"};
}

bool is_aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace

Result<transport::GpuAccess::Put> plan_put(const Mapping& mapping, const StreamPut& put) {
  const std::uint32_t ended =
      std::atomic_ref(*const_cast<std::uint32_t*>(mapping.ended)).load(std::memory_order_acquire);
  if (ended != 0) return Status(static_cast<ErrorCode>(ended), "the mapping has ended: unmap it");
  if (put.by > PutBy::copy_engine) return malformed("StreamPut::by is no value of PutBy");
  const bool signals = put.signal_offset != StreamPut::kNone;
  if (!includes(mapping.access, Access::write))
    return Status(ErrorCode::access_denied, "the region was not registered with Access::write");
  if (put.offset > mapping.size_bytes || put.length > mapping.size_bytes - put.offset)
    return Status(ErrorCode::out_of_range, "the bytes leave the mapping");
  if (put.length > 0 && put.from == nullptr) return malformed("a put of bytes needs an address to take them from");
  if (signals &&
      (mapping.size_bytes < sizeof(std::uint64_t) || put.signal_offset > mapping.size_bytes - sizeof(std::uint64_t)))
    return Status(ErrorCode::out_of_range, "the signal leaves the mapping");
  std::byte* const word = signals ? mapping.address + put.signal_offset : nullptr;
  if (!is_aligned(word, sizeof(std::uint64_t))) return malformed("a signal lies at a multiple of 8 bytes");
  if (put.blocks > kMostPutBlocks) return malformed("StreamPut::blocks is at most 1024");
  if (put.signal_by_stream && (!signals || put.signal_add || put.by != PutBy::copy_engine))
    return malformed(
        "StreamPut::signal_by_stream is for a signal behind PutBy::copy_engine with signal_add = false: a stream can "
        "store a word and cannot add to it");
  if (signals && put.signal_add && !mapping.atomics)
    return Status(ErrorCode::unsupported,
                  "the two GPUs have no atomics between them: set the signal (signal_add = false), by one side alone");
  transport::GpuAccess::Put work;
  work.gpu = mapping.gpu;
  work.to = mapping.address + put.offset;
  work.from = put.from;
  work.length = put.length;
  work.by = put.by;
  work.signal = reinterpret_cast<std::uint64_t*>(word);
  work.value = put.signal_value;
  work.add = put.signal_add;
  work.blocks = put.blocks;
  work.signal_by_stream = put.signal_by_stream;
  return work;
}

Status check_wait(const StreamWait& wait) {
  if (wait.word == nullptr || !is_aligned(wait.word, alignof(std::uint64_t)) ||
      !is_aligned(wait.count, alignof(std::uint64_t)))
    return malformed("StreamWait::word and StreamWait::count lie at multiples of 8 bytes");
  if (wait.outcome == nullptr || !is_aligned(wait.outcome, alignof(std::uint32_t)))
    return malformed("StreamWait::outcome is null: give it a 32-bit word, which says whether the signal came in time");
  return {};
}

// Polls until the mapping is open, since no event announces that.
Result<Mapping> MappedRegions::map_by(Timeout timeout,
                                      const std::function<Status(transport::Reach&, Mapping&, Status&)>& ask) {
  const Time until = waiting_.deadline(timeout);
  for (;;) {
    if (waiting_.closed()) return Status(ErrorCode::closed, "the engine is closed");
    transport::Reach reach = transport::Reach::no;
    Mapping made;
    Status why;
    if (Status unasked = ask(reach, made, why); !unasked) return unasked;
    if (reach == transport::Reach::yes) return made;
    if (reach == transport::Reach::no) return why;
    const Time now = waiting_.now();
    if (now >= until)
      return Status(ErrorCode::timed_out, "the driver still opens that memory, or the link to its owner is not up");
    waiting_.wait_for_notice(std::min(until, after(now, kAskAgain)));
  }
}

Result<Mapping> MappedRegions::map(const RemoteRegion& region, int gpu, Timeout timeout) {
  return map_by(timeout, [&](transport::Reach& reach, Mapping& made, Status& why) {
    return workers_.with_peer(region.peer, [&](Worker& worker, Peer& peer) {
      reach = worker.map(peer, region.id, gpu, made, why);
      if (!why) why = why.with_peer(peer.text());
    });
  });
}

Result<Mapping> MappedRegions::map(const Region& region, int gpu, Timeout timeout) {
  return map_by(timeout, [&](transport::Reach& reach, Mapping& made, Status& why) {
    if (const auto found = tables_.regions.find(region.id); !found) return found.status();
    workers_[0].call([&](Worker& worker) { reach = worker.map(region.id, gpu, made, why); });
    return Status();
  });
}

Status MappedRegions::unmap(MappingId mapping) {
  if (waiting_.closed()) return {ErrorCode::closed, "the engine is closed: nothing is mapped any more"};
  const auto entry = tables_.mappings.find(mapping);
  if (!entry || !tables_.mappings.remove(mapping)) return no_such_mapping();
  workers_[entry->worker].call([&](Worker& owner) { owner.unmap(*entry); });
  return {};
}

Status MappedRegions::stream_put(MappingId to, const StreamPut& put, void* stream) {
  if (waiting_.closed()) return {ErrorCode::closed, "the engine is closed"};
  const auto entry = tables_.mappings.find(to);
  if (!entry) return no_such_mapping();
  const auto work = plan_put(entry->mapping, put);
  if (!work) return work.status().with_peer(entry->name);
  return workers_[entry->worker].transports()[entry->transport]->gpu()->put(*work, stream);
}

Status MappedRegions::stream_wait_signal(const StreamWait& wait, void* stream) {
  if (waiting_.closed()) return {ErrorCode::closed, "the engine is closed"};
  if (Status status = check_wait(wait); !status) return status;
  std::uint16_t worker = 0;
  const std::uint32_t* ended = nullptr;
  if (wait.with) {
    const auto entry = tables_.mappings.find(wait.with);
    if (!entry) return no_such_mapping();
    worker = entry->worker;
    ended = entry->mapping.ended;
  }
  for (const auto& transport : workers_[worker].transports())
    if (transport::has(*transport, transport::DeviceInitiated::address))
      return transport->gpu()->wait(wait, ended, stream);
  return {ErrorCode::unsupported,
          "no transport in use here has streams that wait for signals: that needs the transport cuda"};
}

}  // namespace fairway::engine
