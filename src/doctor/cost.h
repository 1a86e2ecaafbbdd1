#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/rule.h"

// Which paths cross a device, and what a fault on it costs them: the predicted rate as it is and without the fault.
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
  // One path. Paths that lose nothing do not count.
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
// Predicts each flow alone on this machine and on one without the fault (`mend`), or under other conditions.
Cost cost_of(const RuleInput& input, const std::vector<predict::Flow>& flows,
             const std::function<void(topology::Machine&)>& mend,
             const std::function<void(predict::Conditions&)>& mended_use = {},
             const std::function<void(predict::Conditions&)>& present_use = {});
// Each flow loses this share (0 to 1) of what it should reach.
Cost cost_of_share(const RuleInput& input, const std::vector<predict::Flow>& flows, double share);

// "GPU3 - mlx5_3 and 2 others".
std::string paths_text(const topology::Machine& machine, const std::vector<predict::Flow>& flows);

// Rails: NICs that carry bulk traffic, by topology::rail_verdict; software devices on a machine that has no others.
std::vector<std::uint32_t> rails(const topology::Machine& machine);
// The first port of a NIC, if it has one.
const topology::RdmaPort* port_of(const topology::Machine& machine, std::uint32_t nic);
std::string source_of(topology::Source source, std::string_view what);
// GPUs and rails with their PCI functions, and the bridges above each, nearest first.
struct PlacedDevice {
  topology::NodeRef node;
  topology::Ref<topology::PciDevice> pci;
  std::vector<topology::Ref<topology::PciDevice>> above;
};
std::vector<PlacedDevice> placed_devices(const topology::Machine& machine);

}  // namespace fairway::doctor
