#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fairway/request.h"

namespace fairway::engine {

// Notifications that do not wait for their bytes to be acknowledged: the sender hands the target the notification by a
// record (armed), and the write's immediate, which comes after its bytes, sets it off. Record and immediate may come in
// either order, over different links. docs/wire-format-engine.md has the records.
//
// An event is named by a slot, fewer than the credits that the target granted, and the slot's generation, so that an
// immediate that comes late, of an event that was given up, is told from that of the slot's next one.
struct EventName {
  static constexpr std::uint32_t kBit = std::uint32_t{1} << 31;  // of an immediate that is no counter's
  static constexpr std::uint32_t kSlots = std::uint32_t{1} << 15;
  static constexpr std::uint32_t slot(std::uint32_t name) { return name & (kSlots - 1); }
  static constexpr std::uint16_t generation(std::uint32_t name) { return static_cast<std::uint16_t>(name >> 15); }
  static constexpr std::uint32_t make(std::uint32_t slot, std::uint16_t generation) {
    return std::uint32_t{generation} << 15 | slot;
  }
};
inline constexpr std::uint32_t kNoEvent = ~std::uint32_t{0};

// The sender's names. Owner: the peer's worker.
class EventNames {
 public:
  std::uint32_t take(std::uint32_t credits);  // kNoEvent: all are in use
  void free(std::uint32_t name);              // the target is through with it

 private:
  std::vector<std::uint16_t> generations_;  // by slot
  std::vector<std::uint32_t> free_;
};

// The target's. Owner: the peer's worker. What it returns is to be delivered now.
class ArmedEvents {
 public:
  // A record came. False: a lie.
  bool hear(std::uint32_t name, Notification&& notification, std::optional<Notification>& deliver);
  // The immediate came, or the record that stands for one that could not be sent.
  std::optional<Notification> set_off(std::uint32_t name);
  bool give_up(std::uint32_t name);                                 // true: it had waited
  [[nodiscard]] std::uint32_t waiting() const { return waiting_; }  // armed, and not set off

 private:
  enum class State : std::uint8_t { idle, armed, set_off };  // of the generation
  struct Slot {
    std::uint16_t generation = 0;
    State state = State::idle;
    Notification notification;
  };
  Slot& at(std::uint32_t name);
  static bool is_newer(std::uint32_t name, const Slot& slot) {
    return static_cast<std::int16_t>(EventName::generation(name) - slot.generation) > 0;
  }
  std::vector<Slot> slots_;  // grows with use
  std::uint32_t waiting_ = 0;
};

}  // namespace fairway::engine
