#include <atomic>
#include <functional>

#include "engine/state.h"

// Regions that kernels and streams of the user's reach by themselves.
namespace fairway {
namespace {

constexpr Time kAskAgain = 200 * kMicrosecond;  // drivers open memory within milliseconds

Status refuse(const char* why) {
  return {ErrorCode::invalid_argument, why};
}

Status no_such() {
  return {ErrorCode::not_found, "no such mapping, or it was unmapped"};
}

}  // namespace

// Asks until the way is open, which wakes nobody.
Result<Mapping> Engine::State::map_by(Timeout timeout,
                                      const std::function<Status(transport::Reach&, Mapping&, Status&)>& ask) {
  const Time until = deadline(timeout);
  for (;;) {
    if (closed()) return Status(ErrorCode::closed, "the engine is closed");
    transport::Reach reach = transport::Reach::no;
    Mapping made;
    Status why;
    if (Status unasked = ask(reach, made, why); !unasked) return unasked;
    if (reach == transport::Reach::yes) return made;
    if (reach == transport::Reach::no) return why;
    const Time now = runtime.clock.now();
    if (now >= until)
      return Status(ErrorCode::timed_out, "the driver still opens that memory, or the link to its owner is not up");
    wait(notices, notices.load(std::memory_order_acquire), std::min(until, after(now, kAskAgain)));
  }
}

Result<Mapping> Engine::map(const RemoteRegion& region, int gpu, Timeout timeout) {
  return state_->map_by(timeout, [&](transport::Reach& reach, Mapping& made, Status& why) {
    return state_->with_peer(region.peer, [&](engine::Worker& worker, engine::Peer& peer) {
      reach = worker.map(peer, region.id, gpu, made, why);
      if (!why) why = why.with_peer(peer.text());
    });
  });
}

Result<Mapping> Engine::map(const Region& region, int gpu, Timeout timeout) {
  return state_->map_by(timeout, [&](transport::Reach& reach, Mapping& made, Status& why) {
    if (const auto found = state_->regions.find(region.id); !found) return found.status();
    state_->workers.front()->call([&](engine::Worker& worker) { reach = worker.map(region.id, gpu, made, why); });
    return Status();
  });
}

Status Engine::unmap(MappingId mapping) {
  State& state = *state_;
  if (state.closed()) return {ErrorCode::closed, "the engine is closed: nothing is mapped any more"};
  const auto entry = state.mappings.find(mapping);
  if (!entry || !state.mappings.remove(mapping)) return no_such();
  state.workers[entry->worker]->call([&](engine::Worker& owner) { owner.unmap(*entry); });
  return {};
}

Status Engine::stream_put(MappingId to, const StreamPut& put, void* stream) {
  State& state = *state_;
  if (state.closed()) return {ErrorCode::closed, "the engine is closed"};
  const auto entry = state.mappings.find(to);
  if (!entry) return no_such();
  const Mapping& mapping = entry->mapping;
  const std::uint32_t ended =
      std::atomic_ref(*const_cast<std::uint32_t*>(mapping.ended)).load(std::memory_order_acquire);
  if (ended != 0)
    return Status(static_cast<ErrorCode>(ended), "the mapping has ended: unmap it").with_peer(entry->name);
  if (put.by > PutBy::copy_engine) return refuse("StreamPut::by is no value of PutBy");
  const bool signals = put.signal_offset != StreamPut::kNone;
  if (!includes(mapping.access, Access::write))
    return {ErrorCode::access_denied, "the region was not registered with Access::write"};
  if (put.offset > mapping.size_bytes || put.length > mapping.size_bytes - put.offset)
    return {ErrorCode::out_of_range, "the bytes leave the mapping"};
  if (put.length > 0 && put.from == nullptr) return refuse("a put of bytes needs an address to take them from");
  if (signals &&
      (mapping.size_bytes < sizeof(std::uint64_t) || put.signal_offset > mapping.size_bytes - sizeof(std::uint64_t)))
    return {ErrorCode::out_of_range, "the signal leaves the mapping"};
  std::byte* word = signals ? mapping.address + put.signal_offset : nullptr;
  if (reinterpret_cast<std::uintptr_t>(word) % sizeof(std::uint64_t) != 0)
    return refuse("a signal lies at a multiple of 8 bytes");
  if (signals && put.signal_add && !mapping.atomics)
    return {ErrorCode::unsupported,
            "the two GPUs have no atomics between them: set the signal (signal_add = false), by one side alone"};
  transport::GpuAccess::Put work;
  work.gpu = mapping.gpu;
  work.to = mapping.address + put.offset;
  work.from = put.from;
  work.length = put.length;
  work.by = put.by;
  work.signal = reinterpret_cast<std::uint64_t*>(word);
  work.value = put.signal_value;
  work.add = put.signal_add;
  return state.workers[entry->worker]->transports()[entry->transport]->gpu()->put(work, stream);
}

Status Engine::stream_wait_signal(const StreamWait& wait, void* stream) {
  State& state = *state_;
  if (state.closed()) return {ErrorCode::closed, "the engine is closed"};
  if (wait.word == nullptr || reinterpret_cast<std::uintptr_t>(wait.word) % alignof(std::uint64_t) != 0 ||
      reinterpret_cast<std::uintptr_t>(wait.count) % alignof(std::uint64_t) != 0)
    return refuse("a stream waits for a word at a multiple of 8 bytes, and so does its count lie");
  if (wait.outcome == nullptr || reinterpret_cast<std::uintptr_t>(wait.outcome) % alignof(std::uint32_t) != 0)
    return refuse("a stream's wait has a deadline: give it a 32-bit word to say whether the signal came (outcome)");
  std::uint16_t worker = 0;
  const std::uint32_t* ended = nullptr;
  if (wait.with) {
    const auto entry = state.mappings.find(wait.with);
    if (!entry) return no_such();
    worker = entry->worker;
    ended = entry->mapping.ended;
  }
  for (const auto& transport : state.workers[worker]->transports())
    if (transport::has(*transport, transport::DeviceInitiated::address))
      return transport->gpu()->wait(wait, ended, stream);
  return {ErrorCode::unsupported,
          "no transport in use here has streams that wait for signals: that needs the transport cuda"};
}

}  // namespace fairway
