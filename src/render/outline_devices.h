#pragma once

#include <map>
#include <set>
#include <vector>

#include "render/outline.h"
#include "topology/machine.h"

// The devices of an outline: their boxes, and a place for those that have none in a PCI tree.
namespace fairway::render {

// Boxes of single devices: name, model, place and links. Borrows the machine.
class DeviceBoxes {
 public:
  explicit DeviceBoxes(const topology::Machine& machine);

  // The GPU, NICs or NVSwitch that a PCI function is; empty for any other.
  [[nodiscard]] const std::vector<topology::NodeRef>& at(std::uint32_t pci) const { return owners_[pci]; }
  // A gpu, nic, nv_switch or pci (a switch), without children.
  [[nodiscard]] Box box(topology::NodeRef node) const;

 private:
  void fill_gpu(Box& box, const topology::Gpu& gpu) const;
  void fill_nic(Box& box, const topology::Nic& nic) const;

  const topology::Machine& machine_;
  std::vector<std::vector<topology::NodeRef>> owners_;
  std::map<topology::NodeRef, topology::Edge> links_;  // PCIe, by the lower end
  std::set<topology::NodeRef> doubted_;                // lower ends of links whose reported rate is implausible
  bool has_rdma_ = false;
};

// Adds the GPUs and NICs without a place in a PCI tree, grouped by the recorded matrix: a box around those that are
// PIX, PXB or PHB to each other, inside their NUMA node if it is known. Each such box is marked as inferred.
void place_rest(const topology::Machine& machine, const DeviceBoxes& devices, Outline& outline);

}  // namespace fairway::render
