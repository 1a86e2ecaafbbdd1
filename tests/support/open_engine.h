#pragma once

#include <cstdlib>

#include "fairway/engine.h"

#include "engine/open.h"

namespace fairway {

// Opens an engine as Engine::open does. With FAIRWAY_TEST_ORDINARY_WAY in the environment it does nothing within its
// calls: what the short path would have done goes the ordinary way (fairway_test_ordinary in cmake/fairway_test.cmake).
inline Result<Engine> open_engine(const EngineOptions& options) {
  return EngineAccess::open(options, std::getenv("FAIRWAY_TEST_ORDINARY_WAY") == nullptr);
}

}  // namespace fairway
