#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/devices.h"
#include "topology/machine.h"

// What a PCI function is, from its class code and vendor (PCI Code and ID Assignment Specification); what vendors call
// it; and which port of the tree a bridge is.
namespace fairway::topology {

// By the PCI ID Repository.
inline constexpr std::uint32_t kVendorNvidia = 0x10de;
inline constexpr std::uint32_t kVendorAmd = 0x1002;
inline constexpr std::uint32_t kVendorMellanox = 0x15b3;
inline constexpr std::uint32_t kVendorAmazon = 0x1d0f;
inline constexpr std::uint32_t kVendorVirtio = 0x1af4;
inline constexpr std::uint32_t kVendorHabana = 0x1da3;
inline constexpr std::uint32_t kVendorMetax = 0x9999;
inline constexpr std::uint32_t kVendorHuawei = 0x19e5;
inline constexpr std::uint32_t kVendorGoogle = 0x1ae0;
inline constexpr std::uint32_t kVendorQemu = 0x1b36;  // Red Hat, Inc.: its emulated devices

inline std::uint32_t base_class(const PciDevice& device) {
  return device.class_code.value_or(0) >> 16;
}
inline std::uint32_t sub_class(const PciDevice& device) {
  return device.class_code.value_or(0) >> 8;
}

// A GPU that computes: 3D controllers of any vendor, NVIDIA's and AMD's displays and accelerators, and the accelerators
// of Habana (Gaudi) and MetaX. A server's management display is none.
inline bool is_gpu(const PciDevice& device) {
  if (device.kind != PciKind::endpoint) return false;
  const auto vendor = device.vendor_id.value_or(0);
  const bool maker = vendor == kVendorNvidia || vendor == kVendorAmd;
  const auto kind = sub_class(device);
  if (kind == 0x1200 && (vendor == kVendorHabana || vendor == kVendorMetax)) return true;
  if (kind == 0x0380 && vendor == kVendorMetax) return true;
  return kind == 0x0302 || (maker && (kind == 0x0300 || kind == 0x0380 || kind == 0x1200));
}

// Ethernet, InfiniBand, fabric and other network controllers.
inline bool is_network(const PciDevice& device) {
  return device.kind == PciKind::endpoint && base_class(device) == 0x02;
}

// One that is there for RDMA: InfiniBand and fabric controllers, and Amazon's EFA (1d0f:efa0 and its successors).
inline bool is_rdma_function(const PciDevice& device) {
  const auto kind = sub_class(device);
  const bool efa = device.vendor_id.value_or(0) == kVendorAmazon && (device.device_id.value_or(0) & 0xfff0) == 0xefa0;
  return device.kind == PciKind::endpoint && (kind == 0x0207 || kind == 0x0208 || efa);
}

inline bool is_nv_switch(const PciDevice& device) {
  return device.kind == PciKind::endpoint && device.vendor_id.value_or(0) == kVendorNvidia &&
         sub_class(device) == 0x0680;
}

inline bool is_pci_bridge(std::uint32_t class_code) {
  return (class_code >> 8) == 0x0604;
}

// What a vendor calls a device: from Fairway's own table of common GPUs and NICs, else from the text of a pci.ids file.
std::optional<std::string> pci_device_name(std::uint32_t vendor, std::uint32_t device, std::string_view pci_ids = {});
// Names GPUs, network functions and NVSwitches whose source has ids and no name: by the table, then by the system's
// pci.ids (package pci.ids) where there is one and a device is left.
void name_devices(Machine& machine);

// Tells root ports, switch ports and other bridges apart by their place in a tree that shows every port (hwloc, sysfs):
// without root nobody may read the PCI Express capability that says it. Endpoints are left alone.
void classify_bridges(Machine& machine);

}  // namespace fairway::topology
