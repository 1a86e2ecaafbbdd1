#include "engine/values.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace fairway::engine {
namespace {

using std::chrono::microseconds;

constexpr microseconds kLongestSpin = std::chrono::seconds(1);
constexpr std::uint32_t kMostWorkers = 256;
constexpr std::uint32_t kMostEntries = 1u << 24;
constexpr std::uint64_t kLeastUnexpected = 2048;
constexpr std::chrono::milliseconds kShortestTimeout{10};
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(1);

Status refuse(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

// The enumeration's values are 0 to `last`.
template <class Enum>
Status check_enum(Enum value, Enum last, const char* name) {
  static_assert(std::is_unsigned_v<std::underlying_type_t<Enum>>);
  if (value <= last) return {};
  return refuse(std::string(name) + "(" + std::to_string(static_cast<unsigned>(value)) + ") is no value: the last is " +
                std::to_string(static_cast<unsigned>(last)));
}

}  // namespace

Status check_values(const Request& request) {
  const RequestOptions& options = request.options;
  if (request.operation <= Operation::compare_swap && options.notify.kind <= NotifyKind::signal &&
      options.priority <= Priority::urgent && options.deliver <= Deliver::to_poll && !options.queue &&
      options.notify.message.empty())
    return {};  // as most are
  if (Status s = check_enum(request.operation, Operation::compare_swap, "Operation"); !s) return s;
  if (Status s = check_enum(options.notify.kind, NotifyKind::signal, "NotifyKind"); !s) return s;
  if (Status s = check_enum(options.priority, Priority::urgent, "Priority"); !s) return s;
  if (Status s = check_enum(options.deliver, Deliver::to_callback, "Deliver"); !s) return s;
  if (options.deliver == Deliver::to_callback && options.callback == nullptr)
    return refuse("Deliver::to_callback without a callback");
  if (options.queue && options.deliver != Deliver::to_poll)
    return refuse("RequestOptions::queue is for Deliver::to_poll: other completions come another way");
  if (options.notify.message.size() > kMaxNotifyMessage)
    return refuse("a notification's message has at most 256 bytes, this one " +
                  std::to_string(options.notify.message.size()));
  if (!options.notify.message.empty() && options.notify.kind != NotifyKind::event)
    return refuse("only a notification of kind event carries a message");
  return {};
}

Status check_values(Access access, MemoryKind kind) {
  if (static_cast<unsigned>(access) > static_cast<unsigned>(Access::all))
    return refuse("Access(" + std::to_string(static_cast<unsigned>(access)) +
                  ") is no value: combine read, write and atomic");
  return check_enum(kind, MemoryKind::managed, "MemoryKind");
}

Status check_values(const EngineOptions& options) {
  const std::pair<std::uint64_t, const char*> counts[] = {{options.workers, "workers"},
                                                          {options.max_transfers, "max_transfers"},
                                                          {options.max_regions, "max_regions"},
                                                          {options.max_remote_regions, "max_remote_regions"},
                                                          {options.max_peers, "max_peers"},
                                                          {options.max_counters, "max_counters"},
                                                          {options.notifications_per_peer, "notifications_per_peer"}};
  for (const auto& [count, name] : counts)
    if (count == 0) return refuse(std::string("EngineOptions::") + name + " is 0");
  if (options.workers > kMostWorkers)
    return refuse("EngineOptions::workers is " + std::to_string(options.workers) + ", at most 256");
  if (options.max_transfers >= kMostEntries || options.max_regions >= kMostEntries ||
      options.max_remote_regions >= kMostEntries)
    return refuse("EngineOptions::max_transfers, max_regions and max_remote_regions are at most 2^24");
  if (options.unexpected_bytes_per_peer < kLeastUnexpected)
    return refuse("EngineOptions::unexpected_bytes_per_peer is at least 2048, the space of one small message");
  if (Status s = check_enum(options.progress, Progress::caller, "Progress"); !s) return s;
  if (Status s = check_enum(options.rdma.on_demand, OnDemand::always, "OnDemand"); !s) return s;
  if (options.spin < microseconds(0) || options.spin > kLongestSpin)
    return refuse("EngineOptions::spin is " + std::to_string(options.spin.count()) + " us: it is 0 to 1 s");
  if (options.peer_timeout < kShortestTimeout)
    return refuse("EngineOptions::peer_timeout is at least 10 ms: the scheduler may pause a live peer");
  if (options.peer_timeout > kLongestTimeout) return refuse("EngineOptions::peer_timeout is at most 1 hour");
  return {};
}

}  // namespace fairway::engine
