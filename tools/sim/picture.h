#pragma once

#include <string>

#include "sim/group_measure.h"

namespace fairway::tool {

// Ranks below each other, time to the right: a line for each message from when it leaves its rank to when it is there.
// An SVG document.
std::string picture_of(const sim::FollowedCall& followed, const sim::GroupMessages& run);

}  // namespace fairway::tool
