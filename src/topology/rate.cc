#include <algorithm>

#include "topology/host.h"
#include "topology/machine.h"
#include "topology/network.h"
#include "topology/pci_ids.h"
#include "topology/text.h"

namespace fairway::topology {

double pcie_gbs(double speed_gts, std::uint32_t width) {
  const double coding = speed_gts <= 5.0 ? 8.0 / 10.0 : 128.0 / 130.0;
  return speed_gts * coding * width / 8.0;
}

namespace {

Fact<double> product(const Fact<double>& speed, const Fact<std::uint32_t>& width) {
  if (!speed || !width || *speed <= 0 || *width == 0) return {};
  return {pcie_gbs(*speed, *width), speed.source};
}

bool is_one_leg_mode(const Bond& bond) {
  const auto mode = bond.mode.value_or("");
  return mode == "active-backup" || mode == "broadcast";
}

}  // namespace

bool claims_least(const PciDevice& device) {
  const auto vendor = device.vendor_id.value_or(0);
  const bool emulated = device.kind != PciKind::endpoint || vendor == kVendorVirtio || vendor == kVendorQemu;
  return emulated && device.link.speed_gts.value_or(0) == 2.5 && device.link.width.value_or(0) == 1;
}

Fact<double> current_gbs(const PcieLink& link) {
  const auto computed = product(link.speed_gts, link.width);
  if (computed) return computed;
  // hwloc writes 0 if it could not read the link.
  return link.gbs.value_or(0) > 0 ? link.gbs : Fact<double>{};
}

Fact<double> max_gbs(const PcieLink& link) {
  return product(link.max_speed_gts, link.max_width);
}

std::vector<const BondLeg*> carrying_legs(const Machine& machine, const Bond& bond) {
  std::vector<const BondLeg*> legs;
  for (const auto& leg : bond.legs) {
    if (leg.up.known() && !*leg.up) continue;
    if (bond.active_aggregator && leg.aggregator && *leg.aggregator != *bond.active_aggregator) continue;
    legs.push_back(&leg);
  }
  if (!is_one_leg_mode(bond) || legs.size() < 2) return legs;
  // Of active-backup the active leg counts, not the first that is up.
  const auto active = std::find_if(legs.begin(), legs.end(), [&](const BondLeg* leg) {
    return leg->interface.index < machine.interfaces.size() &&
           machine.interfaces[leg->interface.index].name == bond.active_leg.value_or("");
  });
  return {active == legs.end() ? legs.front() : *active};
}

Fact<double> bond_capacity_gbps(const Machine& machine, const Bond& bond) {
  const auto legs = carrying_legs(machine, bond);
  Fact<double> sum;
  for (const auto* leg : legs) {
    if (!leg->speed_gbps) return {};
    sum.set(sum.value_or(0) + *leg->speed_gbps, leg->speed_gbps.source);
  }
  return sum;
}

Fact<double> bond_one_flow_gbps(const Machine& machine, const Bond& bond) {
  if (bond.mode.value_or("") == "balance-rr") return bond_capacity_gbps(machine, bond);
  Fact<double> slowest;
  for (const auto* leg : carrying_legs(machine, bond)) {
    if (!leg->speed_gbps) return {};
    if (!slowest || *leg->speed_gbps < *slowest) slowest = leg->speed_gbps;
  }
  return slowest;
}

std::optional<std::uint32_t> roce_mtu(std::uint32_t interface_mtu) {
  for (const std::uint32_t mtu : {4096U, 2048U, 1024U, 512U, 256U}) {
    if (interface_mtu >= mtu + 96) return mtu;
  }
  return {};
}

std::optional<PortRate> parse_port_rate(std::string_view input) {
  const auto parts = text::words(input);
  if (parts.size() < 2 || !text::starts_with_nocase(parts[1], "Gb/s")) return {};
  const auto gbps = text::to_double(parts[0]);
  if (!gbps || *gbps < 0 || *gbps > 1e5) return {};
  PortRate rate;
  rate.gbps = *gbps;
  const auto open = input.find('(');
  const auto close = input.find(')', open == input.npos ? 0 : open);
  if (open != input.npos && close != input.npos) {
    const auto inside = text::words(input.substr(open + 1, close - open - 1));
    if (!inside.empty() && inside[0].size() > 1 && (inside[0].back() == 'X' || inside[0].back() == 'x')) {
      rate.lanes = text::to_u32(inside[0].substr(0, inside[0].size() - 1)).value_or(0);
    }
    if (inside.size() > 1) rate.speed_name = text::quote(inside[1], 16);
  }
  return rate;
}

}  // namespace fairway::topology
