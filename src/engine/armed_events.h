#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fairway/request.h"

namespace fairway::engine {

// An immediate with this bit is no counter's. With the second bit too, it is an event that has no message, whole: the
// bits below are the user's immediate. Without, it sets off the event of the record with that number, modulo those
// bits.
inline constexpr std::uint32_t kEventBit = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kBareEventBit = std::uint32_t{1} << 30;
inline constexpr std::uint32_t kEventValue = kBareEventBit - 1;

// At the target, the notifications that do not wait for their bytes to be acknowledged: the sender hands each over by a
// record (armed), and the write's immediate, which comes after its bytes, sets it off. They come over different links,
// in either order. Events are named by their record's number, so that the stream of records tells an immediate that is
// early (its record was not taken yet) from one that is late (the event has ended). Owner: the peer's worker.
class ArmedEvents {
 public:
  enum class Heard : std::uint8_t { waits, deliver, given_up };
  // The record was taken. `deliver`: its immediate was faster; the notification is left as it was.
  Heard hear(std::uint32_t number, Notification& notification);
  // The immediate, or the record that stands for one that could not be sent; `taken`: the event's own record was. What
  // it returns is to be delivered now.
  std::optional<Notification> set_off(std::uint32_t number, bool taken);
  // The sender's write has failed. True: the event had waited, and is gone.
  bool give_up(std::uint32_t number, bool taken);
  [[nodiscard]] std::uint32_t waiting() const { return static_cast<std::uint32_t>(waiting_.size()); }
  [[nodiscard]] std::size_t early() const { return early_.size(); }  // signs whose record is to come

 private:
  struct Early {  // a sign before its record: which will come, or the peer goes
    std::uint32_t number;
    bool set_off;
    bool operator==(const Early&) const = default;
  };
  std::optional<Notification> take(std::uint32_t number);
  void keep(Early early);
  std::vector<std::uint32_t> numbers_;  // of waiting_
  std::vector<Notification> waiting_;
  std::vector<Early> early_;
};

}  // namespace fairway::engine
