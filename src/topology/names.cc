#include "topology/names.h"

#include "topology/machine.h"

namespace fairway::topology {
namespace {

constexpr NameTable<Source, 20> kSources{{{Source::none, "none"},
                                          {Source::hwloc, "hwloc"},
                                          {Source::sysfs, "sysfs"},
                                          {Source::procfs, "procfs"},
                                          {Source::nvml, "nvml"},
                                          {Source::verbs, "verbs"},
                                          {Source::netlink, "netlink"},
                                          {Source::hwloc_xml, "hwloc_xml"},
                                          {Source::nccl_xml, "nccl_xml"},
                                          {Source::rccl_xml, "rccl_xml"},
                                          {Source::topo_matrix, "topo_matrix"},
                                          {Source::lspci, "lspci"},
                                          {Source::ibv_devinfo, "ibv_devinfo"},
                                          {Source::ibdev2netdev, "ibdev2netdev"},
                                          {Source::ip_link, "ip_link"},
                                          {Source::ip_addr, "ip_addr"},
                                          {Source::bonding, "bonding"},
                                          {Source::hand_written, "hand_written"},
                                          {Source::catalogue, "catalogue"},
                                          {Source::derived, "derived"}}};

constexpr NameTable<NoteKind, 7> kNoteKinds{{{NoteKind::remark, "remark"},
                                             {NoteKind::unreadable, "unreadable"},
                                             {NoteKind::unknown, "unknown"},
                                             {NoteKind::conflict, "conflict"},
                                             {NoteKind::inferred, "inferred"},
                                             {NoteKind::lost, "lost"},
                                             {NoteKind::left_out, "left out"}}};

constexpr NameTable<NodeKind, 12> kNodeKinds{{{NodeKind::none, "none"},
                                              {NodeKind::package, "package"},
                                              {NodeKind::numa_node, "numa_node"},
                                              {NodeKind::host_bridge, "host_bridge"},
                                              {NodeKind::pci, "pci"},
                                              {NodeKind::gpu, "gpu"},
                                              {NodeKind::nic, "nic"},
                                              {NodeKind::rdma, "rdma"},
                                              {NodeKind::interface, "interface"},
                                              {NodeKind::bond, "bond"},
                                              {NodeKind::nv_switch, "nv_switch"},
                                              {NodeKind::net_switch, "net_switch"}}};

constexpr NameTable<PciKind, 6> kPciKinds{{{PciKind::endpoint, "endpoint"},
                                           {PciKind::root_port, "root_port"},
                                           {PciKind::switch_upstream, "switch_upstream"},
                                           {PciKind::switch_downstream, "switch_downstream"},
                                           {PciKind::pci_switch, "switch"},
                                           {PciKind::bridge, "bridge"}}};

constexpr NameTable<LinkKind, 3> kLinkKinds{
    {{LinkKind::nvlink, "nvlink"}, {LinkKind::xgmi, "xgmi"}, {LinkKind::c2c, "c2c"}}};

constexpr NameTable<InterfaceKind, 12> kInterfaceKinds{{{InterfaceKind::unknown, "unknown"},
                                                        {InterfaceKind::physical, "physical"},
                                                        {InterfaceKind::loopback, "loopback"},
                                                        {InterfaceKind::bond, "bond"},
                                                        {InterfaceKind::bridge, "bridge"},
                                                        {InterfaceKind::vlan, "vlan"},
                                                        {InterfaceKind::veth, "veth"},
                                                        {InterfaceKind::tun, "tun"},
                                                        {InterfaceKind::tunnel, "tunnel"},
                                                        {InterfaceKind::macvlan, "macvlan"},
                                                        {InterfaceKind::dummy, "dummy"},
                                                        {InterfaceKind::other, "other"}}};

constexpr NameTable<EdgeKind, 8> kEdgeKinds{{{EdgeKind::pcie, "pcie"},
                                             {EdgeKind::internal, "internal"},
                                             {EdgeKind::memory, "memory"},
                                             {EdgeKind::socket, "socket"},
                                             {EdgeKind::nvlink, "nvlink"},
                                             {EdgeKind::xgmi, "xgmi"},
                                             {EdgeKind::c2c, "c2c"},
                                             {EdgeKind::port, "port"}}};

}  // namespace

std::string_view to_string(Source source) {
  return name_of(kSources, source);
}
std::optional<Source> source_from(std::string_view text) {
  return value_of(kSources, text);
}
std::string_view to_string(NoteKind kind) {
  return name_of(kNoteKinds, kind);
}
std::optional<NoteKind> note_kind_from(std::string_view text) {
  return value_of(kNoteKinds, text);
}
std::string_view to_string(NodeKind kind) {
  return name_of(kNodeKinds, kind);
}
std::optional<NodeKind> node_kind_from(std::string_view text) {
  return value_of(kNodeKinds, text);
}
std::string_view to_string(PciKind kind) {
  return name_of(kPciKinds, kind);
}
std::optional<PciKind> pci_kind_from(std::string_view text) {
  return value_of(kPciKinds, text);
}
std::string_view to_string(LinkKind kind) {
  return name_of(kLinkKinds, kind);
}
std::optional<LinkKind> link_kind_from(std::string_view text) {
  return value_of(kLinkKinds, text);
}
std::string_view to_string(InterfaceKind kind) {
  return name_of(kInterfaceKinds, kind);
}
std::optional<InterfaceKind> interface_kind_from(std::string_view text) {
  return value_of(kInterfaceKinds, text);
}
std::string_view to_string(EdgeKind kind) {
  return name_of(kEdgeKinds, kind);
}

}  // namespace fairway::topology
