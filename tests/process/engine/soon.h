#pragma once

#include <chrono>

#include "fairway/engine.h"

namespace fairway {

constexpr Timeout kSoon = std::chrono::seconds(20);   // for what should take no time at all
constexpr Timeout kServed = std::chrono::minutes(5);  // a child serves until its peer goes

inline Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kSoon);
  return completion ? completion->status : completion.status();
}

}  // namespace fairway
