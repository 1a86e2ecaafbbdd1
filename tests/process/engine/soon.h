#pragma once

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "fairway/engine.h"

namespace fairway {

constexpr Timeout kSoon = std::chrono::seconds(20);   // for what should take no time at all
constexpr Timeout kServed = std::chrono::minutes(5);  // a child serves until its peer goes

// Over that transport; fabric_P: over libfabric's provider P.
inline EngineOptions linked_by(const std::string& name, const std::string& transport) {
  EngineOptions options;
  options.name = name;
  const bool fabric = transport.starts_with("fabric_");
  options.transports = {fabric ? "fabric" : transport};
  if (fabric) options.providers = {transport.substr(7)};
  options.peer_timeout = std::chrono::milliseconds(1000);
  return options;
}

inline Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kSoon);
  return completion ? completion->status : completion.status();
}

// To be asserted: says why not.
inline testing::AssertionResult ends_well(Engine& engine, const Result<TransferId>& id) {
  const Status status = finish(engine, id);
  return status ? testing::AssertionSuccess() : testing::AssertionFailure() << status.to_string();
}

}  // namespace fairway
