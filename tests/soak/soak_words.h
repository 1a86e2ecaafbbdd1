#pragma once

#include <string>

#include "soak_play.h"

// How the processes of a soak say to each other how steps ended: a line each, behind the line of what they are told,
// and a last one that is kEnd alone.
namespace fairway::tool::soak {

inline constexpr const char* kEnd = ".";

struct Said {
  unsigned step = 0;
  Ended ended;
};
std::string line_of(const Said& said);  // with its newline
Said said_of(const std::string& line);

// What a process holds of the system.
struct Held {
  std::uint64_t descriptors = 0, threads = 0, memory_bytes = 0;
};

}  // namespace fairway::tool::soak
