#pragma once

#include <span>
#include <string>

#include "fairway/status.h"

#include "render/expected.h"
#include "topology/assess.h"

// What `fairway topo nics`, `lint` and `diff` print with --json, as docs/schemas/fairway-topo-*.json have it.
// Unsupported in a build without JSON.
namespace fairway::render {

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
