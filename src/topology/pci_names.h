#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fairway::topology {

struct Machine;

// What a vendor calls a device: from Fairway's own table of common GPUs and NICs, else from the text of a pci.ids file.
std::optional<std::string> pci_device_name(std::uint32_t vendor, std::uint32_t device, std::string_view pci_ids = {});
// Names GPUs, network functions and NVSwitches whose source has ids and no name: by the table, then by the system's
// pci.ids (package pci.ids) where there is one and a device is left.
void name_devices(Machine& machine);

}  // namespace fairway::topology
