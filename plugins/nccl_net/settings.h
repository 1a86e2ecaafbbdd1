#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fairway/options.h"
#include "fairway/status.h"

#include "nccl_net/own_address.h"

namespace fairway::nccl {

// The plugin's environment variables, read once per engine. docs/nccl.md has the table for users.
struct Settings {
  EngineOptions engine;
  std::vector<std::string> rails;  // interfaces and RDMA ports, each a device for NCCL; empty: one device uses all
  bool gpu_memory = false;         // offered to NCCL where a transport can move it
  std::uint32_t engines = 0;       // per device; 0: as many as this machine can use
  std::string why_there;           // why engine.listen is what it is, where own_address() chose it; else empty
  std::chrono::milliseconds connect_timeout{30000};

  // Whether processes on other hosts can reach this one.
  [[nodiscard]] bool beyond_this_host() const;
  // Whether FAIRWAY_LISTEN names a port, which only one engine can have.
  [[nodiscard]] bool has_own_port() const { return !engine.listen.ends_with(":0"); }
};

// `host` is asked when FAIRWAY_LISTEN leaves the address open.
// Error: invalid_argument names the variable, its value and the values it accepts.
Result<Settings> read_settings(const Environment& environment, const std::function<HostNetwork()>& host = this_host);
// Rewrites an engine's message about its options ("EngineOptions::interfaces") in terms of the variables that set them.
Status in_variables(const Status& status, const Settings& settings);

}  // namespace fairway::nccl
