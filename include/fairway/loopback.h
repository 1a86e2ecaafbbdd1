#pragma once

#include <memory>

#include "fairway/export.h"

namespace fairway {

// Joins engines of one process: engines with the same object in EngineOptions::loopback reach each other by memory
// copies, without a device or a system call. Opaque, shared by the engines that use it, thread-safe.
class Loopback;

// A new one. Engines with different ones do not see each other.
FAIRWAY_API std::shared_ptr<Loopback> make_loopback();

}  // namespace fairway
