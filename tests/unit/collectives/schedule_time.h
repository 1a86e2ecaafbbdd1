#pragma once

#include <cstdint>

#include "collectives/host/choose.h"
#include "collectives/host/schedule.h"

namespace fairway::collectives {

// All ranks of one collective in virtual time: the schedules that engines run, without their bytes. A message costs its
// sender and its receiver half of Costs::message and of its bytes each, and comes Costs::round later; a rank does one
// thing at a time; a message waits until the one that is kLeastRoom before it has been taken.
struct ScheduleTime {
  double nanoseconds = 0;      // until the last rank has ended
  std::uint64_t messages = 0;  // of all ranks
  bool ends = false;           // false: ranks wait for each other
};
[[nodiscard]] ScheduleTime time_of(const Shape& shape, const Costs& costs);

}  // namespace fairway::collectives
