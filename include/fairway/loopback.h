#pragma once

#include <memory>

#include "fairway/export.h"

namespace fairway {

// Joins engines of one process: those whose EngineOptions::loopback is the same object reach each other by plain
// copies, with no device and no system call. An opaque resource, shared by the engines that use it; any thread.
class Loopback;

// A new meeting place. Engines with different ones do not see each other.
FAIRWAY_API std::shared_ptr<Loopback> make_loopback();

}  // namespace fairway
