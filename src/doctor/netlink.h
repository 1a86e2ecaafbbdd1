#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

// What the kernel tells of interfaces and devices by ioctl and netlink. None of it needs root. Blocks for a system call
// each; any thread.
namespace fairway::doctor {

// The driver's statistics of an interface, as `ethtool -S` prints them (SIOCETHTOOL, ETHTOOL_GSTATS).
Result<std::map<std::string, std::uint64_t>> ethtool_statistics(const std::string& interface);

// What the two ends of an interface's link can do, as `ethtool` prints it (ETHTOOL_GLINKSETTINGS). 0: not known.
struct LinkModes {
  double supported_gbps = 0;  // the fastest mode
  double partner_gbps = 0;    // the fastest that the other end advertises
  bool half_duplex = false;
  std::optional<bool> negotiates;  // autonegotiation
};
Result<LinkModes> link_modes(const std::string& interface);

// Which of the eight priorities PFC pauses, as `dcb pfc show` prints it (RTM_GETDCB).
Result<std::array<bool, 8>> lossless_priorities(const std::string& interface);

// A parameter of a device, as `devlink dev param show` prints it.
struct DeviceParameter {
  std::string device;  // "pci/0000:1a:00.0"
  std::string name;    // "enable_roce"
  std::string value;   // a number, "true", "false", or text
  friend bool operator==(const DeviceParameter&, const DeviceParameter&) = default;
};
Result<std::vector<DeviceParameter>> device_parameters();

// The parts that read what came, for tests: nothing that is cut short or nonsense is followed.
LinkModes parse_link_modes(std::string_view settings);  // a struct ethtool_link_settings with its bits behind it
std::vector<DeviceParameter> parse_device_parameters(std::string_view message);
Result<std::array<bool, 8>> parse_lossless_priorities(std::string_view message);

// Whether one of ethtool's statistics says what a port dropped or lost.
bool is_statistic_of_interest(const std::string& name);

}  // namespace fairway::doctor
