#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fairway/options.h"
#include "fairway/status.h"

namespace fairway::nccl {

// What the environment says, read once per engine that is opened. docs/nccl.md has the table for users.
struct Settings {
  EngineOptions engine;
  std::vector<std::string> rails;  // interfaces and RDMA ports, each a device of NCCL's; empty: one device uses all
  bool gpu_memory = false;         // offered to NCCL where it can be moved
  std::uint32_t engines = 0;       // of each device; 0: as many as this machine has use for
  std::chrono::milliseconds connect_timeout{30000};

  // Whether processes of other hosts may reach this one.
  [[nodiscard]] bool beyond_this_host() const;
  // Whether FAIRWAY_LISTEN names a port, which only one engine can have.
  [[nodiscard]] bool has_own_port() const { return !engine.listen.ends_with(":0"); }
};

using Environment = std::function<const char*(const char* name)>;
// invalid_argument names the variable, what it says and what it may say.
Result<Settings> read_settings(const Environment& environment);
// What an engine says of its options ("EngineOptions::interfaces"), said of the variables that set them.
Status in_variables(const Status& status, const Settings& settings);

}  // namespace fairway::nccl
