#pragma once

#include "fairway/memory.h"
#include "fairway/options.h"
#include "fairway/request.h"
#include "fairway/status.h"

// Checks that enumerations from callers hold one of their values, since other languages can pass any number. Pure; does
// not check peers, regions or arrays. The error, invalid_argument, names the field.
namespace fairway::engine {

Status check_values(const Request& request);
Status check_values(Access access, MemoryKind kind);
Status check_values(const EngineOptions& options);

}  // namespace fairway::engine
