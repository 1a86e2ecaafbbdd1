#pragma once

#include "fairway/memory.h"
#include "fairway/options.h"
#include "fairway/request.h"
#include "fairway/status.h"

// Whether what a caller gave is a value at all: an enumeration holds any number, and from other languages any number
// comes. Pure; says nothing of peers, regions or arrays. What is none is refused by its name, with invalid_argument.
namespace fairway::engine {

Status check_values(const Request& request);
Status check_values(Access access, MemoryKind kind);
Status check_values(const EngineOptions& options);

}  // namespace fairway::engine
