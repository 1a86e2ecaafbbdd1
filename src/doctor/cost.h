#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/rule.h"
#include "topology/devices.h"

// Which paths cross a device, and what a fault on it costs them: the predicted rate as it is and without the fault. And
// what two ways of measuring differ by.
namespace fairway::doctor {

// The paths that cross this device: each GPU to its best NIC and each NIC to its nearest GPU; GPU to host memory where
// there is no NIC, host memory to NIC where there is no GPU. A bridge stands for all below it.
std::vector<predict::Flow> flows_through(const topology::Machine& machine, topology::NodeRef device);
// Whether any path crosses it. If none does, a finding about it is at most a note.
bool on_a_path(const topology::Machine& machine, topology::NodeRef device);

// What paths lose, in Gb/s: the sum, over how many paths, and the mean rate of these paths now and without the fault.
// No rates: unknown.
class Cost {
 public:
  // One path. Those that lose nothing do not count as paths.
  void add(double now_gbps, double mended_gbps);
  // Also writes the path, unless the finding names one.
  void write_to(Finding& finding) const;

  std::string path;

 private:
  bool known_ = false;
  std::size_t paths_ = 0;
  double now_gbps_ = 0;
  double mended_gbps_ = 0;
};
// A flow with enough queue pairs to fill any NIC or bond, so that what is lost is lost by the fault.
predict::Flow full_flow(predict::Endpoint from, predict::Endpoint to);
// Predicts each flow alone on this machine and on one without the fault (`mend`), or under other conditions. Of the
// flows through one NIC only the costliest counts: two GPUs together lose no more than the NIC that they share.
Cost cost_of(const RuleInput& input, const std::vector<predict::Flow>& flows,
             const std::function<void(topology::Machine&)>& mend,
             const std::function<void(predict::Conditions&)>& mended_use = {},
             const std::function<void(predict::Conditions&)>& present_use = {});
// Each flow loses this share (0 to 1) of what it should reach; of those through one NIC one counts.
Cost cost_of_share(const RuleInput& input, const std::vector<predict::Flow>& flows, double share);

// "GPU3 - mlx5_3 and 2 others".
std::string paths_text(const topology::Machine& machine, const std::vector<predict::Flow>& flows);

// Rails: NICs that carry bulk traffic, by topology::rail_verdict; software devices on a machine that has no others.
std::vector<std::uint32_t> rails(const topology::Machine& machine);
// NICs that are rails by their PCI ids, and whose RDMA devices the source does not record.
std::vector<std::uint32_t> unrecorded_rails(const topology::Machine& machine);
// The rails, or where no RDMA device is recorded those by PCI ids: for what PCIe says of them.
std::vector<std::uint32_t> bulk_nics(const topology::Machine& machine);
// The first active port of a NIC, else its first one, if it has any.
const topology::RdmaPort* port_of(const topology::Machine& machine, std::uint32_t nic);
std::string source_of(topology::Source source, std::string_view what);
// GPUs and rails with their PCI functions, and the bridges above each, nearest first.
struct PlacedDevice {
  topology::NodeRef node;
  topology::Ref<topology::PciDevice> pci;
  std::vector<topology::Ref<topology::PciDevice>> above;
};
std::vector<PlacedDevice> placed_devices(const topology::Machine& machine);

// The ratio b/a of pairs of runs made in turn, with its 95 % confidence interval: the mean of the logarithms of the
// pairs' ratios, and Student's t. Rates must be above 0. With fewer than three pairs the interval is 0 to infinity.
Ratio ratio_of(std::span<const double> a, std::span<const double> b);
// Whether all of the interval lies above this factor: b is faster.
bool is_faster(const Ratio& ratio, double factor);

// Whether routers forward packets to this GID: RoCE v2 with an address that is not link-local.
inline bool is_routable(const topology::Gid& gid) {
  const auto scope = gid.scope.value_or("");
  return gid.type.value_or("") == "RoCE v2" && (scope == "IPv4" || scope == "IPv6");
}

}  // namespace fairway::doctor
