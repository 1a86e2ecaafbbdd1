#pragma once

#include <span>
#include <string>

#include "fairway/status.h"

#include "render/phrases.h"
#include "topology/assess.h"
#include "topology/machine.h"

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

// What `fairway topo nics`, `lint` and `diff` print with --json, as docs/schemas/fairway-topo-*.json have it.
// Unsupported in a build without JSON.

// The NICs for a memory, best first. `name`: what the memory is called.
Result<std::string> nic_choices_json(const topology::Machine& machine, topology::NodeRef memory,
                                     const std::string& name, std::span<const topology::NicChoice> choices,
                                     const ExpectRate& expect);
// Every port, whether it is a rail and why, and its counters of errors.
Result<std::string> rails_json(const topology::Machine& machine);
// `notes`: those of the machine, where they are asked for.
Result<std::string> findings_json(std::span<const topology::Finding> findings, std::span<const topology::Note> notes);
Result<std::string> differences_json(const std::string& a, const std::string& b,
                                     std::span<const topology::Difference> differences);

}  // namespace fairway::render
