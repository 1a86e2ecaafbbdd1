#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fairway/request.h"

namespace fairway::engine {

// Marks a native immediate that is an event and not a counter. With the second bit too, it is a whole event without a
// message: the bits below are the user's immediate. Without the second bit it triggers the event of the record with
// that number, modulo those bits.
inline constexpr std::uint32_t kEventBit = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kBareEventBit = std::uint32_t{1} << 30;
inline constexpr std::uint32_t kEventValue = kBareEventBit - 1;

// The target's side of events that travel with their write. The sender sends each event ahead by a record (it is
// armed), and the write's immediate, which comes after the bytes, triggers it. Record and immediate take different
// links and arrive in either order. An event is named by its record's number, so the record stream tells an immediate
// that is early (its record has not come) from one that is late (its event has ended). Owner: the peer's worker.
class ArmedEvents {
 public:
  enum class Heard : std::uint8_t { waits, deliver, given_up };
  // The record has arrived. deliver: its immediate came first, so deliver `notification` now; it was not moved from.
  // given_up: the word that its write failed came first.
  Heard hear(std::uint32_t number, Notification& notification);
  // The immediate has arrived, or the record that replaces one that could not be sent. `taken`: the event's own record
  // has been processed. Returns the event to deliver now, if any.
  std::optional<Notification> set_off(std::uint32_t number, bool taken);
  // The sender's write has failed. True: the event was waiting here, and is dropped.
  bool give_up(std::uint32_t number, bool taken);
  // The record with that number is no event. True: its immediate was here.
  bool take_early(std::uint32_t number);
  [[nodiscard]] std::uint32_t waiting() const { return static_cast<std::uint32_t>(waiting_.size()); }
  [[nodiscard]] std::size_t early() const { return early_.size(); }  // triggers that came before their record

 private:
  struct Early {  // a trigger that came before its record; the record follows unless the peer goes
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
