#include "doctor/link_facts.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "doctor/netlink.h"
#include "topology/file.h"
#include "topology/text.h"

// Facts from the NICs' drivers by ioctl, netlink and debugfs.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

}  // namespace

// mlx5's names; other drivers share some.
bool is_statistic_of_interest(const std::string& name) {
  static const std::set<std::string> kNames = {"rx_discards_phy",
                                               "tx_discards_phy",
                                               "rx_out_of_buffer",
                                               "rx_crc_errors_phy",
                                               "rx_symbol_err_phy",
                                               "rx_corrected_bits_phy",
                                               "link_down_events_phy",
                                               "tx_pause_storm_warning_events",
                                               "tx_pause_storm_error_events",
                                               "rx_missed_errors",
                                               "rx_dropped"};
  return kNames.contains(name);
}

namespace {

void read_interface(const std::string& name, Facts& facts) {
  const auto prefix = fmt::format("net.{}.", name);
  if (const auto statistics = ethtool_statistics(name)) {
    for (const auto& [key, value] : *statistics) {
      if (is_statistic_of_interest(key)) facts.set(prefix + "stat." + key, std::to_string(value), "ethtool -S " + name);
    }
  } else {
    facts.miss(prefix + "stat", statistics.status().message());
  }
  if (const auto modes = link_modes(name)) {
    const auto where = "ethtool " + name;
    if (modes->supported_gbps > 0)
      facts.set(prefix + "supported_gbps", fmt::format("{:g}", modes->supported_gbps), where);
    if (modes->partner_gbps > 0) facts.set(prefix + "partner_gbps", fmt::format("{:g}", modes->partner_gbps), where);
    if (modes->half_duplex) facts.set(prefix + "duplex", "half", where);
    if (modes->negotiates) facts.set(prefix + "autoneg", *modes->negotiates ? "on" : "off", where);
    if (modes->supported_gbps <= 0) facts.miss(prefix + "supported_gbps", "its driver names no link modes");
  } else {
    facts.miss(prefix + "supported_gbps", modes.status().message());
  }
  if (const auto pfc = lossless_priorities(name)) {
    std::string map;
    for (const bool on : *pfc) map += on ? '1' : '0';
    facts.set(prefix + "pfc", map, "dcb pfc show dev " + name);
  } else {
    facts.miss(prefix + "pfc", pfc.status().message());
  }
}

// How mlx5 spreads queue pairs over the ports of a bond: root's alone.
void read_lag(const std::string& root, const std::string& bus_id, Facts& facts) {
  const auto folder = "/sys/kernel/debug/mlx5/" + bus_id + "/lag";
  for (const char* name : {"state", "type", "port_sel_mode"}) {
    const auto content = topology::read_file(root + folder + "/" + name, 4096);
    const auto key = fmt::format("lag.{}.{}", bus_id, name);
    if (content) {
      facts.set(key, text::quote(text::trim(*content), 60), folder + "/" + name);
    } else {
      facts.miss(key, content.status().message());
    }
  }
}

}  // namespace

void read_link_facts(const topology::Machine& machine, Facts& facts) {
  for (const auto& interface : machine.interfaces) {
    if (interface.kind == topology::InterfaceKind::physical) read_interface(interface.name, facts);
  }
  for (const auto& nic : machine.nics) {
    for (const auto function : nic.functions) read_lag("", machine.pci[function.index].bus_id.to_string(), facts);
  }
  const auto parameters = device_parameters();
  if (!parameters) return facts.miss("devlink", parameters.status().message());
  for (const auto& one : *parameters) {
    if (!one.device.starts_with("pci/")) continue;
    facts.set(fmt::format("devlink.{}.{}", one.device.substr(4), one.name), text::quote(one.value, 60),
              fmt::format("devlink dev param show {} name {}", one.device, one.name));
  }
}

}  // namespace fairway::doctor
