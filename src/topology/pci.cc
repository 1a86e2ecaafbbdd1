#include "topology/pci.h"

#include <array>

#include <fmt/format.h>

#include "topology/file.h"
#include "topology/machine.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

struct Named {
  std::uint32_t id;  // vendor << 16 | device
  std::string_view name;
};

// From the PCI ID Repository (pci.ids, compared with its version 2026.08.22), for systems without it or with an older
// one. It lacks 10de:1ac2, which DGX-2 has (a recording of hwloc's).
constexpr auto kNames = std::to_array<Named>({
    {0x10de15f9, "Tesla P100 SXM2"},
    {0x10de1ac2, "NVSwitch"},
    {0x10de1af1, "A100 NVSwitch"},
    {0x10de1db1, "Tesla V100 SXM2 16GB"},
    {0x10de1db4, "Tesla V100 PCIe 16GB"},
    {0x10de1db5, "Tesla V100 SXM2 32GB"},
    {0x10de1db6, "Tesla V100 PCIe 32GB"},
    {0x10de1db8, "Tesla V100 SXM3 32GB"},
    {0x10de1eb8, "Tesla T4"},
    {0x10de20b0, "A100 SXM4 40GB"},
    {0x10de20b2, "A100 SXM4 80GB"},
    {0x10de20b5, "A100 PCIe 80GB"},
    {0x10de20b7, "A30 PCIe"},
    {0x10de20f1, "A100 PCIe 40GB"},
    {0x10de20f5, "A800 80GB PCIe"},
    {0x10de2235, "A40"},
    {0x10de2236, "A10"},
    {0x10de2237, "A10G"},
    {0x10de22a3, "H100 NVSwitch"},
    {0x10de2324, "H800"},
    {0x10de2329, "H20"},
    {0x10de2330, "H100 SXM5 80GB"},
    {0x10de2331, "H100 PCIe"},
    {0x10de2335, "H200 SXM 141GB"},
    {0x10de233b, "H200 NVL"},
    {0x10de2342, "GH200 120GB"},
    {0x10de2348, "GH200 144G HBM3e"},
    {0x10de26b5, "L40"},
    {0x10de26b9, "L40S"},
    {0x10de27b8, "L4"},
    {0x10de2901, "B200"},
    {0x10de2941, "GB200"},
    {0x10de2bb1, "RTX PRO 6000 Blackwell Workstation Edition"},
    {0x10de2bb3, "RTX PRO 5000 Blackwell"},
    {0x10de2bb4, "RTX PRO 6000 Blackwell Max-Q Workstation Edition"},
    {0x10de2bb5, "RTX PRO 6000 Blackwell Server Edition"},
    {0x10de2c31, "RTX PRO 4500 Blackwell"},
    {0x10de2e12, "GB10"},
    {0x10de3182, "B300 SXM6"},
    {0x10de31a1, "GB300 MaxQ"},
    {0x10de31c2, "GB300"},
    {0x10de31c3, "GB300"},
    {0x1002738c, "Instinct MI100"},
    {0x10027408, "Instinct MI250X"},
    {0x1002740c, "Instinct MI250X/MI250"},
    {0x1002740f, "Instinct MI210"},
    {0x100274a0, "Instinct MI300A"},
    {0x100274a1, "Instinct MI300X"},
    {0x100274a2, "Instinct MI308X"},
    {0x100274a5, "Instinct MI325X"},
    {0x100275a0, "Instinct MI350X"},
    {0x100275a3, "Instinct MI355X"},
    {0x1da31000, "Gaudi"},
    {0x1da31010, "Gaudi"},
    {0x1da31020, "Gaudi2"},
    {0x1da31060, "Gaudi3"},
    {0x1da31063, "Gaudi3"},
    {0x99990a01, "C500"},
    {0x15b31013, "MT27700 Family [ConnectX-4]"},
    {0x15b31015, "MT27710 Family [ConnectX-4 Lx]"},
    {0x15b31017, "MT27800 Family [ConnectX-5]"},
    {0x15b31019, "MT28800 Family [ConnectX-5 Ex]"},
    {0x15b3101b, "MT28908 Family [ConnectX-6]"},
    {0x15b3101c, "MT28908 Family [ConnectX-6 Virtual Function]"},
    {0x15b3101d, "MT2892 Family [ConnectX-6 Dx]"},
    {0x15b3101e, "ConnectX Family mlx5Gen Virtual Function"},
    {0x15b3101f, "MT2894 Family [ConnectX-6 Lx]"},
    {0x15b31021, "MT2910 Family [ConnectX-7]"},
    {0x15b31023, "CX8 Family [ConnectX-8]"},
    {0x15b31025, "CX9 Family [ConnectX-9]"},
    {0x15b3a2d6, "MT42822 BlueField-2 integrated ConnectX-6 Dx network controller"},
    {0x15b3a2dc, "MT43244 BlueField-3 integrated ConnectX-7 network controller"},
    {0x14e41750, "BCM57508 NetXtreme-E 10Gb/25Gb/40Gb/50Gb/100Gb/200Gb Ethernet"},
    {0x14e41760, "BCM57608 10Gb/25Gb/50Gb/100Gb/200Gb/400Gb Ethernet"},
    {0x1d0fec20, "Elastic Network Adapter (ENA)"},
    {0x1d0fefa0, "Elastic Fabric Adapter (EFA)"},
    {0x1d0fefa1, "Elastic Fabric Adapter (EFA)"},
    {0x1d0fefa2, "Elastic Fabric Adapter (EFA)"},
    {0x1d0fefa3, "Elastic Fabric Adapter (EFA)"},
    {0x1ae00042, "Google Virtual Ethernet (gVNIC)"},
    {0x80861592, "Ethernet Controller E810-C for QSFP"},
});

constexpr std::array kPlaces = {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"};
constexpr std::size_t kMostOfPciIds = 16U << 20;

// "10de  NVIDIA Corporation", then "\t2330  GH100 [H100 SXM5 80GB]" for each of its devices.
std::optional<std::string> name_in(std::string_view ids, std::uint32_t vendor, std::uint32_t device) {
  const auto head = fmt::format("\n{:04x}  ", vendor);
  auto at = ids.find(head);
  if (at == ids.npos) return {};
  const auto line_head = fmt::format("\t{:04x}  ", device);
  for (at = ids.find('\n', at + 1); at != ids.npos && at + 1 < ids.size(); at = ids.find('\n', at + 1)) {
    const auto rest = ids.substr(at + 1);
    if (rest.front() != '\t' && rest.front() != '#' && rest.front() != '\n') return {};  // the next vendor
    if (!rest.starts_with(line_head)) continue;
    const auto end = rest.find('\n');
    return text::quote(text::trim(rest.substr(line_head.size(), end == rest.npos ? end : end - line_head.size())), 120);
  }
  return {};
}

}  // namespace

std::optional<std::string> pci_device_name(std::uint32_t vendor, std::uint32_t device, std::string_view pci_ids) {
  for (const auto& known : kNames) {
    if (known.id == (vendor << 16U | device)) return std::string(known.name);
  }
  return pci_ids.empty() ? std::nullopt : name_in(pci_ids, vendor, device);
}

void name_devices(Machine& machine) {
  std::optional<std::string> ids;  // read when the first device needs it
  for (auto& device : machine.pci) {
    if (device.device_name || !device.vendor_id || !device.device_id) continue;
    if (!is_gpu(device) && !is_network(device) && !is_nv_switch(device)) continue;
    auto name = pci_device_name(*device.vendor_id, *device.device_id);
    if (!name && !ids) {
      ids.emplace();
      for (const auto* place : kPlaces) {
        if (auto content = read_file(place, kMostOfPciIds); content && ids->empty()) ids = "\n" + *content;
      }
    }
    if (!name) name = pci_device_name(*device.vendor_id, *device.device_id, *ids);
    if (name) device.device_name.set(*name, Source::catalogue);
  }
}

void classify_bridges(Machine& machine) {
  std::vector<bool> has_bridge(machine.pci.size(), false);
  std::vector<bool> has_endpoint(machine.pci.size(), false);
  for (const auto& device : machine.pci) {
    if (device.parent) (device.kind == PciKind::endpoint ? has_endpoint : has_bridge)[device.parent.index] = true;
  }
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    auto& device = machine.pci[i];
    if (device.kind == PciKind::endpoint) continue;
    std::size_t above = 0;
    for (auto at = device.parent; at && above <= kMaxPciDepth; at = machine.pci[at.index].parent) ++above;
    if (above == 0) {
      device.kind = PciKind::root_port;
    } else if (above % 2 == 0) {
      device.kind = PciKind::switch_downstream;
    } else {
      // An upstream port has only ports below it; a bridge to conventional PCI has devices.
      const bool conventional = has_endpoint[i] && !has_bridge[i];
      device.kind = conventional ? PciKind::bridge : PciKind::switch_upstream;
    }
  }
}

}  // namespace fairway::topology
