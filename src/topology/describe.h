#pragma once

#include <concepts>
#include <type_traits>

#include "topology/devices.h"
#include "topology/machine.h"

// Every field of the machine's types by its name in a snapshot, once: the writer and the reader both walk these lists,
// so neither can forget a field. v(name, field) is called in order.
namespace fairway::topology {

template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

template <class V, Is<Note> T>
void describe(V& v, T& x) {
  v("kind", x.kind), v("subject", x.subject), v("text", x.text);
}
template <class V, Is<Package> T>
void describe(V& v, T& x) {
  v("os_index", x.os_index), v("vendor", x.vendor), v("model", x.model), v("family", x.family);
  v("model_number", x.model_number), v("cpus", x.cpus);
}
template <class V, Is<NumaNode> T>
void describe(V& v, T& x) {
  v("os_index", x.os_index), v("package", x.package), v("cpus", x.cpus), v("memory_bytes", x.memory_bytes);
  v("distances", x.distances);
}
template <class V, Is<SocketLink> T>
void describe(V& v, T& x) {
  v("a", x.a), v("b", x.b), v("kind", x.kind), v("links", x.links), v("gbs_per_link", x.gbs_per_link);
}
template <class V, Is<HostBridge> T>
void describe(V& v, T& x) {
  v("domain", x.domain), v("bus", x.bus), v("last_bus", x.last_bus), v("numa_node", x.numa_node);
  v("folded", x.folded);
}
template <class V, Is<PcieLink> T>
void describe(V& v, T& x) {
  v("speed_gts", x.speed_gts), v("width", x.width), v("max_speed_gts", x.max_speed_gts), v("max_width", x.max_width);
  v("gbs", x.gbs);
}
template <class V, Is<PciDevice> T>
void describe(V& v, T& x) {
  v("bus_id", x.bus_id), v("kind", x.kind), v("parent", x.parent), v("host_bridge", x.host_bridge);
  v("class_code", x.class_code), v("vendor_id", x.vendor_id), v("device_id", x.device_id);
  v("subsystem_vendor_id", x.subsystem_vendor_id), v("subsystem_device_id", x.subsystem_device_id);
  v("vendor_name", x.vendor_name), v("device_name", x.device_name), v("driver", x.driver), v("purpose", x.purpose);
  v("link", x.link), v("numa_node", x.numa_node), v("local_cpus", x.local_cpus);
}
template <class V, Is<NvLinkPort> T>
void describe(V& v, T& x) {
  v("index", x.index), v("active", x.active), v("version", x.version), v("remote_kind", x.remote_kind);
  v("remote", x.remote);
}
template <class V, Is<Gpu> T>
void describe(V& v, T& x) {
  const GpuNumber number{x.ordinal};
  v("ordinal", number), v("pci", x.pci), v("vendor", x.vendor), v("model", x.model);
  v("architecture", x.architecture), v("memory_bytes", x.memory_bytes), v("bar1_bytes", x.bar1_bytes);
  v("gpudirect_rdma", x.gpudirect_rdma), v("numa_node", x.numa_node), v("cpus", x.cpus), v("uuid", x.uuid);
  v("serial", x.serial), v("nvlinks", x.nvlinks);
}
template <class V, Is<NvSwitch> T>
void describe(V& v, T& x) {
  v("pci", x.pci);
}
template <class V, Is<DeviceLink> T>
void describe(V& v, T& x) {
  v("kind", x.kind), v("a", x.a), v("b", x.b), v("count", x.count), v("active", x.active);
  v("generation", x.generation), v("gbs_per_link", x.gbs_per_link);
}
template <class V, Is<PeerAccess> T>
void describe(V& v, T& x) {
  v("from", x.from), v("to", x.to), v("read", x.read), v("write", x.write), v("atomics", x.atomics);
  v("refusal", x.refusal);
}
template <class V, Is<NetInterface> T>
void describe(V& v, T& x) {
  v("name", x.name), v("kind", x.kind), v("pci", x.pci), v("master", x.master), v("driver", x.driver);
  v("state", x.state), v("carrier", x.carrier), v("mtu", x.mtu), v("speed_gbps", x.speed_gbps);
  v("numa_node", x.numa_node), v("mac", x.mac), v("addresses", x.addresses), v("has_address", x.has_address);
}
template <class V, Is<BondLeg> T>
void describe(V& v, T& x) {
  v("interface", x.interface), v("up", x.up), v("speed_gbps", x.speed_gbps), v("link_failures", x.link_failures);
  v("aggregator", x.aggregator);
}
template <class V, Is<Bond> T>
void describe(V& v, T& x) {
  v("interface", x.interface), v("mode", x.mode), v("hash_policy", x.hash_policy), v("up", x.up);
  v("active_aggregator", x.active_aggregator), v("active_leg", x.active_leg), v("watch_ms", x.watch_ms);
  v("legs", x.legs);
}
template <class V, Is<Gid> T>
void describe(V& v, T& x) {
  v("index", x.index), v("type", x.type), v("interface", x.interface), v("address", x.address), v("scope", x.scope);
}
template <class V, Is<Attribute> T>
void describe(V& v, T& x) {
  v("name", x.name), v("value", x.value);
}
template <class V, Is<Counter> T>
void describe(V& v, T& x) {
  v("name", x.name), v("value", x.value), v("source", x.source);
}
template <class V, Is<RdmaPort> T>
void describe(V& v, T& x) {
  v("number", x.number), v("link_layer", x.link_layer), v("state", x.state), v("physical_state", x.physical_state);
  v("rate_gbps", x.rate_gbps), v("lanes", x.lanes), v("speed_name", x.speed_name), v("interface", x.interface);
  v("active_mtu", x.active_mtu), v("max_mtu", x.max_mtu), v("lid", x.lid), v("sm_lid", x.sm_lid), v("lmc", x.lmc);
  v("pkeys", x.pkeys), v("gids", x.gids), v("counters", x.counters), v("hw_counters", x.hw_counters);
  v("attributes", x.attributes);
}
template <class V, Is<RdmaDevice> T>
void describe(V& v, T& x) {
  v("name", x.name), v("transport", x.transport), v("firmware", x.firmware), v("hca_type", x.hca_type);
  v("board_id", x.board_id), v("node_guid", x.node_guid), v("system_guid", x.system_guid), v("software", x.software);
  v("attributes", x.attributes), v("ports", x.ports);
}
template <class V, Is<Nic> T>
void describe(V& v, T& x) {
  v("name", x.name), v("functions", x.functions), v("rdma", x.rdma), v("interfaces", x.interfaces), v("bond", x.bond);
  v("model", x.model), v("rate_gbps", x.rate_gbps), v("gpudirect_rdma", x.gpudirect_rdma);
  v("numa_node", x.numa_node), v("net_switch", x.net_switch);
}
template <class V, Is<RecordedMatrix> T>
void describe(V& v, T& x) {
  v("source", x.source), v("ends", x.ends), v("cells", x.cells);
}
template <class V, Is<Machine> T>
void describe(V& v, T& x) {
  v("name", x.name), v("host_name", x.host_name), v("product", x.product), v("architecture", x.architecture);
  v("cpu_vendor", x.cpu_vendor), v("cpu_family", x.cpu_family), v("cpu_model_number", x.cpu_model_number);
  v("kernel", x.kernel), v("gpu_driver", x.gpu_driver), v("virtual_machine", x.virtual_machine);
  v("memory_bytes", x.memory_bytes);
  v("packages", x.packages), v("numa_nodes", x.numa_nodes), v("socket_links", x.socket_links);
  v("host_bridges", x.host_bridges), v("pci", x.pci), v("gpus", x.gpus), v("nv_switches", x.nv_switches);
  v("links", x.links), v("peers", x.peers), v("nics", x.nics), v("rdma", x.rdma), v("interfaces", x.interfaces);
  v("bonds", x.bonds), v("matrix", x.matrix), v("notes", x.notes);
}
template <class V, Is<NetSwitch> T>
void describe(V& v, T& x) {
  v("name", x.name), v("ports", x.ports);
}
template <class V, Is<CableEnd> T>
void describe(V& v, T& x) {
  v("is_switch", x.is_switch), v("machine", x.machine), v("index", x.index);
}
template <class V, Is<Cable> T>
void describe(V& v, T& x) {
  v("a", x.a), v("b", x.b), v("gbps", x.gbps);
}
template <class V, Is<Fabric> T>
void describe(V& v, T& x) {
  v("name", x.name), v("machines", x.machines), v("switches", x.switches), v("cables", x.cables);
}

}  // namespace fairway::topology
