#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/rule.h"

// Which traffic a device carries and what a fault on it costs, by the predictor: once as it is, once mended.
namespace fairway::doctor {

// The paths that cross any of these devices: GPU to its best NIC and back, or GPU to host memory where there is no NIC;
// host memory to a NIC where there is no GPU. A bridge stands for all below it.
std::vector<predict::Flow> flows_through(const topology::Machine& machine, topology::NodeRef device);
// Whether any path crosses it: of others a finding is at most a note.
bool on_a_path(const topology::Machine& machine, topology::NodeRef device);

struct Cost {
  std::optional<double> loss_gbps;
  std::optional<double> now_gbps;
  std::optional<double> mended_gbps;
  std::string path;
};
// What the flows lose against a machine, or a use of it, without the fault; the dearest flow's figures stand for one
// path.
Cost cost_of(const Look& look, const std::vector<predict::Flow>& flows,
             const std::function<void(topology::Machine&)>& mend,
             const std::function<void(predict::Conditions&)>& mended_use = {},
             const std::function<void(predict::Conditions&)>& present_use = {});
// Each flow loses this share (0 to 1) of what it should reach.
Cost cost_of_share(const Look& look, const std::vector<predict::Flow>& flows, double share);
void put(Finding& finding, const Cost& cost);

// "GPU3 - mlx5_3 and 2 others".
std::string paths_text(const topology::Machine& machine, const std::vector<predict::Flow>& flows);

// Rails: NICs that carry bulk traffic, by topology's judgement; software devices where a machine has no others.
std::vector<std::uint32_t> rails(const topology::Machine& machine);
// The port that counts of a rail, if it has one.
const topology::RdmaPort* port_of(const topology::Machine& machine, std::uint32_t nic);
std::string source_of(topology::Source source, std::string_view what);
// GPUs and rails, as PCI functions, with the bridges above each from the nearest on.
struct PlacedDevice {
  topology::NodeRef node;
  topology::Ref<topology::PciDevice> pci;
  std::vector<topology::Ref<topology::PciDevice>> above;
};
std::vector<PlacedDevice> placed_devices(const topology::Machine& machine);

}  // namespace fairway::doctor
