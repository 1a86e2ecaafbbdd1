#pragma once

#include <cstdint>

// What the kernel knows of the way that a connection takes.
namespace fairway::sys {

std::uint64_t unacknowledged_bytes(int socket);
// As Channel::swallowed_segment.
std::uint32_t swallowed_segment(int socket);
// For a socket before connect(): the longest segment in both directions, since the peer is told.
void limit_segments(int socket, std::uint32_t most_bytes);

}  // namespace fairway::sys
