#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/event_queue.h"
#include "transport/janitor.h"
#include "transport/planned_links.h"

// For transports whose peers reach memory by one key per device (rkey, fi_mr key).
namespace fairway::transport {

// A peer's region, as it was imported.
template <class Key>
struct KeyedMemory {
  std::uint64_t size_bytes = 0;
  Access access = Access::none;
  std::vector<std::optional<Key>> keys;  // by the owner's device; none: not registered with that device

  [[nodiscard]] const Key* at(std::uint8_t device) const {
    return device < keys.size() && keys[device] ? &*keys[device] : nullptr;
  }
};

// `decode` parses one key; `name` is the transport's, for error texts.
template <class Key, class Decode>
Status decode_keys(const RemoteMemory& memory, std::span<const KeyBytes> keys, const std::string& name, Decode decode,
                   KeyedMemory<Key>& out) {
  out.size_bytes = memory.size_bytes;
  out.access = memory.access;
  for (const KeyBytes& bytes : keys) {
    auto& key = out.keys.emplace_back();
    if (bytes.empty()) continue;
    auto decoded = decode(bytes);
    if (!decoded) return decoded.status();
    std::uint64_t end = 0;
    if (__builtin_add_overflow(decoded->address, memory.size_bytes, &end))
      return {ErrorCode::protocol_error, name + ": malformed key: the region ends beyond the address space"};
    key = std::move(*decoded);
  }
  return {};
}

// The devices that refused a memory which others of their transport accepted.
using Refusals = std::vector<std::pair<DeviceIndex, Status>>;

// Whether both regions are registered with the link's devices; if not, *why says so. Null: unknown; post() will refuse
// it.
template <class Registration, class Key>
Reach reach_by_keys(const PlannedLinks::Link& link, const Registration* local, const KeyedMemory<Key>* remote,
                    std::string* why) {
  std::string missing;
  if (local != nullptr && !local->is_at(link.device)) {
    missing = "its device does not have this memory";
    for (const auto& [device, refusal] : local->refused)
      if (device == link.device) missing = "its device refused this memory: " + refusal.message();
  } else if (remote != nullptr && remote->at(link.peer_device) == nullptr) {
    missing = "the peer's device at its other end refused the peer's memory";
  }
  if (missing.empty()) return Reach::yes;
  if (why != nullptr) *why = std::move(missing);
  return Reach::no;
}

// Whether every block of the slice lies in the peer's region and, if it has local memory, in that. Requests have at
// most `most` bytes.
ErrorCode check_blocks(const Command& command, std::uint64_t remote_size, std::uint32_t most_blocks,
                       std::uint64_t most);

// Ends registrations; those that take milliseconds, too long for a step, on the janitor. What a driver refuses to end
// is kept, and tried again when its handle is ended again. Owner: the transport's worker.
class SlowDeregistrations {
 public:
  struct Ending {
    std::uint64_t handle = 0;
    std::function<Status()> end;  // ends all that the driver lets it; may be called again if not ok. Empty: nothing
    Status held;                  // not ok: who may touch the memory although the registrations have ended
    bool slow = false;
  };
  // Ends it now or, if it is slow, on the janitor, which then wakes the task. Adds the event `deregistered`, here or in
  // report().
  void end(Ending ending, Janitor& janitor, Task* task, EventQueue& events);
  void report(EventQueue& events);
  void try_again();  // what was kept
  // Whether any is under way, or kept.
  [[nodiscard]] bool any() const { return under_way_ != 0 || !kept_.empty(); }

 private:
  static void run(Ending& ending);
  void tell(Ending ending, EventQueue& events);

  std::size_t under_way_ = 0;
  std::map<std::uint64_t, Ending> kept_;  // by handle
  std::mutex mutex_;                      // guards over_
  std::vector<Ending> over_;
};

}  // namespace fairway::transport
