#include "render_support.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "topology/load.h"

namespace fairway::render {
namespace {

namespace fs = std::filesystem;
using topology::Source;

std::vector<TestMachine> sorted(std::vector<TestMachine> machines) {
  std::sort(machines.begin(), machines.end(),
            [](const TestMachine& a, const TestMachine& b) { return a.name < b.name; });
  return machines;
}

}  // namespace

std::vector<TestMachine> recorded_machines() {
  std::vector<TestMachine> out;
#ifndef FAIRWAY_HAVE_JSON
  return out;
#endif
  const fs::path folder = fs::path(FAIRWAY_SOURCE_DIR) / "tests" / "machines";
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") out.push_back({entry.path().stem().string(), entry.path().string()});
  }
  return sorted(std::move(out));
}

std::vector<TestMachine> fixture_machines() {
  std::vector<TestMachine> out;
  const fs::path folder = fs::path(FAIRWAY_SOURCE_DIR) / ".." / "shared" / "fixtures";
#ifdef FAIRWAY_HAVE_PUGIXML
  const std::vector<const char*> kinds = {"hwloc-xml", "nccl-xml", "rccl-xml", "matrix", "sysfs"};
#else
  const std::vector<const char*> kinds = {"matrix", "sysfs"};
#endif
  for (const char* kind : kinds) {
    if (!fs::exists(folder / kind)) continue;
    for (const auto& entry : fs::directory_iterator(folder / kind)) {
      out.push_back({entry.path().filename().string(), entry.path().string()});
    }
  }
  if (fs::exists(folder / "seed-h20")) out.push_back({"seed-h20", (folder / "seed-h20").string()});
  return sorted(std::move(out));
}

topology::Fabric load_machine(const TestMachine& machine) {
  Result<topology::Fabric> fabric = topology::load_fabric(machine.path);
  EXPECT_TRUE(fabric) << machine.name << ": " << fabric.status().to_string();
  return fabric ? std::move(fabric).value() : topology::Fabric{};
}

topology::Machine awkward_machine() {
  topology::Machine machine;
  machine.name = "<rack 7> & \"friends\" ]]>";
  for (std::uint32_t socket = 0; socket < 2; ++socket) {
    topology::Package package;
    package.os_index = socket;
    package.model.set("Xeon <b>&amp;", Source::hand_written);
    machine.packages.push_back(package);
    topology::NumaNode numa;
    numa.os_index = socket;
    numa.package = topology::Ref<topology::Package>(socket);
    machine.numa_nodes.push_back(numa);
    topology::HostBridge bridge;
    bridge.bus = static_cast<std::uint8_t>(0x10 + 0x40 * socket);
    bridge.numa_node.set(socket, Source::hand_written);
    machine.host_bridges.push_back(bridge);
    const auto add = [&](std::uint8_t offset, topology::PciKind kind, std::uint32_t parent, std::uint32_t class_code) {
      topology::PciDevice device;
      device.bus_id.bus = static_cast<std::uint8_t>(bridge.bus + offset);
      device.kind = kind;
      device.host_bridge = topology::Ref<topology::HostBridge>(socket);
      if (offset > 1) device.parent = topology::Ref<topology::PciDevice>(parent);
      device.class_code.set(class_code, Source::hand_written);
      device.link.speed_gts.set(32, Source::hand_written);
      device.link.max_speed_gts.set(32, Source::hand_written);
      device.link.width.set(offset == 2 && socket == 1 ? 8 : 16, Source::hand_written);
      device.link.max_width.set(16, Source::hand_written);
      machine.pci.push_back(device);
      return static_cast<std::uint32_t>(machine.pci.size() - 1);
    };
    const std::uint32_t above = add(1, topology::PciKind::pci_switch, 0, 0x060400);
    topology::Gpu gpu;
    gpu.ordinal = socket;
    gpu.pci = topology::Ref<topology::PciDevice>(add(2, topology::PciKind::endpoint, above, 0x030200));
    gpu.model.set("<script>alert(1)</script>", Source::hand_written);
    machine.gpus.push_back(gpu);
    topology::Nic nic;
    nic.name = socket == 0 ? "mlx5_'\"<0>" : "eth&1";
    nic.functions.emplace_back(add(3, topology::PciKind::endpoint, above, 0x020000));
    machine.nics.push_back(nic);
  }
  for (std::uint32_t leg = 0; leg < 3; ++leg) {
    topology::NetInterface interface;
    interface.name = leg == 2 ? "bond0" : "leg<" + std::to_string(leg) + ">";
    machine.interfaces.push_back(interface);
  }
  topology::Bond bond;
  bond.interface = topology::Ref<topology::NetInterface>(2);
  for (std::uint32_t leg = 0; leg < 2; ++leg) {
    topology::BondLeg part;
    part.interface = topology::Ref<topology::NetInterface>(leg);
    part.up.set(leg == 0, Source::hand_written);
    part.speed_gbps.set(200, Source::hand_written);
    bond.legs.push_back(part);
  }
  machine.bonds.push_back(bond);
  topology::RdmaDevice device;
  device.name = machine.nics[0].name;
  topology::RdmaPort port;
  port.state.set("ACTIVE", Source::hand_written);
  device.ports.push_back(port);
  topology::Attribute limit;
  limit.name = "max_qp";
  limit.value.set("131072", Source::hand_written);
  device.attributes.push_back(limit);
  machine.rdma.push_back(device);
  machine.nics[0].bond = topology::Ref<topology::Bond>(0);
  machine.nics[0].rdma = topology::Ref<topology::RdmaDevice>(0);
  return machine;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string golden_folder() {
  return (fs::path(FAIRWAY_SOURCE_DIR) / "tests" / "unit" / "render" / "golden").string();
}

}  // namespace fairway::render
