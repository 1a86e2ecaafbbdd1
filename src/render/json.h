#pragma once

#include <string>

#include "fairway/status.h"

#include "render/expected.h"
#include "topology/fabric.h"

namespace fairway::render {

// `fairway topo --json`: {"format": "fairway-topology", "version": 2, "machine": <the snapshot>, and what is
// derived from it: "edges", "matrix" with classes and expected rates, "rails", "findings"}. Unsupported in a build
// without JSON.
inline constexpr int kReportVersion = 2;
// What every report says in such a build.
inline Status no_json() {
  return {ErrorCode::unsupported, "this build has no JSON (nlohmann-json was not found)"};
}
Result<std::string> json_report(const topology::Machine& machine, const ExpectRate& expect);
Result<std::string> json_report(const topology::Fabric& fabric);

}  // namespace fairway::render
