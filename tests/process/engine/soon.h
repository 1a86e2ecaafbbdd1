#pragma once

#include <chrono>

#include "fairway/engine.h"

namespace fairway {

constexpr Timeout kSoon = std::chrono::seconds(20);  // for what should take no time at all

}  // namespace fairway
