#include "topology/discover.h"

#ifdef FAIRWAY_HAVE_HWLOC

#include <cerrno>
#include <map>
#include <memory>
#include <system_error>

#include <hwloc.h>

#include "topology/pci.h"
#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr auto kHwloc = Source::hwloc;

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

CpuSet to_cpu_set(hwloc_const_bitmap_t bitmap) {
  CpuSet set;
  if (bitmap == nullptr) return set;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0 && cpu <= static_cast<int>(CpuSet::kMaxCpu);
       cpu = hwloc_bitmap_next(bitmap, cpu)) {
    set.add(static_cast<std::uint32_t>(cpu), static_cast<std::uint32_t>(cpu));
  }
  return set;
}

void read_packages(hwloc_topology_t topology, Machine& machine) {
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object)) != nullptr;) {
    Package package;
    package.os_index = object->os_index == HWLOC_UNKNOWN_INDEX ? static_cast<std::uint32_t>(machine.packages.size())
                                                               : object->os_index;
    package.cpus.set(to_cpu_set(object->cpuset), kHwloc);
    const auto info = [object](const char* key) -> std::string_view {
      const char* value = hwloc_obj_get_info_by_name(object, key);
      return value == nullptr ? std::string_view{} : value;
    };
    if (!info("CPUVendor").empty()) package.vendor.set(text::quote(info("CPUVendor")), kHwloc);
    if (!info("CPUModel").empty()) package.model.set(text::quote(info("CPUModel"), 120), kHwloc);
    if (const auto v = text::to_u32(info("CPUFamilyNumber"))) package.family.set(*v, kHwloc);
    if (const auto v = text::to_u32(info("CPUModelNumber"))) package.model_number.set(*v, kHwloc);
    machine.packages.push_back(std::move(package));
  }
}

void read_nodes(hwloc_topology_t topology, Machine& machine) {
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr;) {
    auto& node = machine.numa_nodes.emplace_back();
    node.os_index = object->os_index;
    node.cpus.set(to_cpu_set(object->cpuset), kHwloc);
    if (object->attr->numanode.local_memory > 0) node.memory_bytes.set(object->attr->numanode.local_memory, kHwloc);
    for (std::size_t i = 0; i < machine.packages.size(); ++i) {
      if (!node.cpus->empty() && machine.packages[i].cpus->includes(*node.cpus)) node.package = Ref<Package>(i);
    }
  }
}

// Bridges and devices below one object of the I/O part, in the order of the tree.
class IoReader {
 public:
  explicit IoReader(Machine& machine) : machine_(machine) {}

  Status read(hwloc_obj_t object, Ref<HostBridge> root, Ref<PciDevice> parent, const Fact<std::uint32_t>& numa,
              std::size_t depth) {
    if (depth > kMaxPciDepth) return {ErrorCode::out_of_range, "hwloc's I/O tree is too deep"};
    if (object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
      HostBridge bridge;
      const auto& pci = object->attr->bridge.downstream.pci;
      bridge.domain = pci.domain;
      bridge.bus = pci.secondary_bus;
      bridge.last_bus = pci.subordinate_bus;
      bridge.numa_node = numa;
      root = Ref<HostBridge>(machine_.host_bridges.size());
      machine_.host_bridges.push_back(bridge);
    } else if (object->type == HWLOC_OBJ_BRIDGE || object->type == HWLOC_OBJ_PCI_DEVICE) {
      const auto& pci = object->attr->pcidev;
      const auto class_code = static_cast<std::uint32_t>(pci.class_id) << 8;
      if (object->type == HWLOC_OBJ_PCI_DEVICE && !is_kept(class_code, pci.vendor_id)) return {};
      if (machine_.pci.size() >= kMaxPciDevices) {
        return {ErrorCode::out_of_range, "hwloc lists more PCI devices than any machine has"};
      }
      parent = add(object, root, parent);
    } else {
      return {};
    }
    for (auto child = object->io_first_child; child != nullptr; child = child->next_sibling) {
      if (auto status = read(child, root, parent, numa, depth + 1); !status) return status;
    }
    return {};
  }

 private:
  Ref<PciDevice> add(hwloc_obj_t object, Ref<HostBridge> root, Ref<PciDevice> parent) {
    const auto& pci = object->attr->pcidev;
    auto& device = machine_.pci.emplace_back();
    device.bus_id = {pci.domain, pci.bus, pci.dev, pci.func};
    device.kind = object->type == HWLOC_OBJ_BRIDGE ? PciKind::bridge : PciKind::endpoint;
    device.parent = parent;
    device.host_bridge = root;
    return Ref<PciDevice>(machine_.pci.size() - 1);
  }

  Machine& machine_;
};

Status read_io(hwloc_topology_t topology, Machine& machine) {
  IoReader reader(machine);
  // Host bridges hang below whatever object is near them: a package, a group, the machine.
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_bridge(topology, object)) != nullptr;) {
    if (object->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_HOST) continue;
    const auto* near = hwloc_get_non_io_ancestor_obj(topology, object);
    Fact<std::uint32_t> numa;
    // Near one node of several. With a single node, leave it unknown as the firmware does.
    if (near != nullptr && machine.numa_nodes.size() > 1 && hwloc_bitmap_weight(near->nodeset) == 1) {
      numa.set(static_cast<std::uint32_t>(hwloc_bitmap_first(near->nodeset)), kHwloc);
    }
    if (auto status = reader.read(object, {}, {}, numa, 0); !status) return status;
  }
  return {};
}

}  // namespace

Status read_hwloc(Machine& machine) {
  hwloc_topology* raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {ErrorCode::system_error, "hwloc_topology_init failed"};
  const Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  // Without caches and cores, which are not needed, large machines load faster.
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_icache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  // Plugins, if installed, add nothing to the kernel's files that is needed here: names of devices, for which `pci`
  // reads all of pci.ids and never frees it, and what OpenCL and X servers report.
  for (const char* plugin : {"pci", "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"})
    (void)hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  if (hwloc_topology_load(raw) != 0) {
    return {ErrorCode::system_error, "hwloc_topology_load: " + std::generic_category().message(errno)};
  }
  Machine found = machine;
  read_packages(raw, found);
  read_nodes(raw, found);
  if (auto status = read_io(raw, found); !status) return status;
  classify_bridges(found);
  drop_empty_bridges(found);
  machine = std::move(found);
  return {};
}

}  // namespace fairway::topology

#else

namespace fairway::topology {
Status read_hwloc(Machine&) {
  return {ErrorCode::unsupported, "this build has no hwloc"};
}
}  // namespace fairway::topology

#endif
