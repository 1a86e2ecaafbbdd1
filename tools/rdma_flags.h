#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "fairway/options.h"

namespace fairway::tool {

// A group of options, one for each field of RdmaOptions. `options` outlives the command.
void add_rdma_flags(CLI::App& command, RdmaOptions& options);
// The same as arguments, for another process of this tool.
std::vector<std::string> words_of(const RdmaOptions& options);
// An engine's message about its options ("EngineOptions::rdma.devices") with the command's own ("--rdma-device").
std::string in_flags(std::string message, const CLI::App& command);

}  // namespace fairway::tool
