#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fairway/status.h"

#include "topology/devices.h"
#include "topology/fact.h"

// A machine as a value: its devices, how they are connected, the rate of each link, the source of each fact, and what
// is unknown. It holds facts and no judgement. References (Ref, NodeRef) are positions in its vectors and mean nothing
// in another Machine. A fabric is several machines and the switches between them.
namespace fairway::topology {

struct Machine;

// nvidia-smi's names, nearest first, and AMD's name for xGMI.
enum class PathKind : std::uint8_t {
  self,     // X
  nvlink,   // NV#: a bonded set of # NVLinks, direct or through NVSwitches
  xgmi,     // XGMI#: # direct xGMI links
  pix,      // at most one PCIe switch
  pxb,      // several PCIe switches, no host bridge
  phb,      // one PCIe host bridge
  node,     // several host bridges of one NUMA node
  sys,      // different NUMA nodes
  unknown,  // ?: the place of an end is not recorded
};

struct PathClass {
  PathKind kind = PathKind::unknown;
  std::uint32_t links = 0;  // the # of NV# and XGMI#

  // "X", "NV18", "PIX", "?": case and surrounding blanks do not matter. None for other text.
  static std::optional<PathClass> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const PathClass&, const PathClass&) = default;
};

// The cells of a captured `nvidia-smi topo -m`.
struct RecordedMatrix {
  std::vector<NodeRef> ends;     // gpu or nic, in the order of its columns
  std::vector<PathClass> cells;  // ends.size() squared, row by row; unknown beyond where the capture is cut off
  Source source = Source::none;
  [[nodiscard]] bool empty() const { return ends.empty(); }
  friend bool operator==(const RecordedMatrix&, const RecordedMatrix&) = default;
};

// The class between two GPUs or NICs of a machine: from its links and PCI tree if they place both (source: derived),
// else as recorded (source: topo_matrix), else unknown.
Fact<PathClass> path_class(const Machine& machine, NodeRef a, NodeRef b);
// The same from the tree alone, never from a recorded matrix.
PathClass path_class_from_tree(const Machine& machine, NodeRef a, NodeRef b);

// The matrix grows with the square, and no screen shows more.
inline constexpr std::size_t kMaxMatrixEnds = 2048;

// The matrix that `fairway topo` prints: all GPUs, then the NICs that nvidia-smi would number (those with an RDMA
// device; every network function where the machine has none); the first kMaxMatrixEnds of them.
struct PathMatrix {
  std::vector<NodeRef> ends;
  std::vector<PathClass> cells;
  std::vector<std::string> names;  // of each end: a GPU's own, "NIC0" by its place among those of the matrix
  [[nodiscard]] const PathClass& at(std::size_t row, std::size_t column) const {
    return cells[row * ends.size() + column];
  }
};
PathMatrix path_matrix(const Machine& machine);
std::vector<NodeRef> matrix_ends(const Machine& machine);  // all of them, also beyond kMaxMatrixEnds

// Cells in which the tree and the recorded matrix differ.
struct ClassConflict {
  NodeRef a;
  NodeRef b;
  PathClass tree;
  PathClass recorded;
};
std::vector<ClassConflict> class_conflicts(const Machine& machine);

// Limits of an input; beyond them it is refused, or a note says what was left out. No real machine reaches them.
inline constexpr std::size_t kMaxPciDevices = 65536;
inline constexpr std::size_t kMaxGpus = 1024;
inline constexpr std::size_t kMaxNotes = 1000;
inline constexpr std::size_t kMaxPciDepth = 64;

struct Machine {
  std::string name;                // a name for people: "H20 server"; a host name only if identities are kept
  Fact<std::string> host_name;     // identity: scrubbed from snapshots
  Fact<std::string> product;       // the vendor's name of the model
  Fact<std::string> architecture;  // "x86_64", "aarch64"
  Fact<std::string> cpu_vendor;    // of all sockets, if the source does not tell them apart
  Fact<std::uint32_t> cpu_family;
  Fact<std::uint32_t> cpu_model_number;
  Fact<std::string> kernel;           // release
  Fact<std::string> gpu_driver;       // version
  Fact<std::string> virtual_machine;  // the hypervisor's name: "KVM"; "none" on bare metal
  Fact<std::uint64_t> memory_bytes;   // of the host together, as far as its kernel may use it

  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  std::vector<SocketLink> socket_links;
  std::vector<HostBridge> host_bridges;
  std::vector<PciDevice> pci;  // by bus id; a parent may come after its children
  std::vector<Gpu> gpus;       // by ordinal
  std::vector<NvSwitch> nv_switches;
  std::vector<DeviceLink> links;  // NVLink, xGMI, C2C
  std::vector<PeerAccess> peers;
  std::vector<Nic> nics;  // those with an RDMA device first, in the order that nvidia-smi numbers them
  std::vector<RdmaDevice> rdma;
  std::vector<NetInterface> interfaces;
  std::vector<Bond> bonds;
  RecordedMatrix matrix;  // the classes of a captured `topo -m`; empty if there is none
  std::vector<Note> notes;

  friend bool operator==(const Machine&, const Machine&) = default;
};

// Appends a note, equal ones only once. Beyond kMaxNotes the last note counts the rest.
void add_note(Machine& machine, NoteKind kind, std::string subject, std::string text);

// What a reader takes no more of, and the note that says so, which is kept whatever other notes there are.
struct LimitOf {
  std::string_view what;  // "RDMA devices"
  std::size_t most = 0;
};
inline constexpr LimitOf kPciDeviceLimit{"PCI devices", kMaxPciDevices};
inline constexpr LimitOf kGpuLimit{"GPUs", kMaxGpus};
inline constexpr LimitOf kRdmaLimit{"RDMA devices", 4096};
inline constexpr LimitOf kInterfaceLimit{"network interfaces", 16384};
inline constexpr LimitOf kPeerLimit{"pairs of GPUs", 65536};
inline constexpr LimitOf kNumaLimit{"NUMA nodes", 4096};
inline constexpr LimitOf kGidLimit{"GIDs of a port", 1024};
inline constexpr LimitOf kCounterLimit{"counters of a port", 1024};
inline constexpr LimitOf kAttributeLimit{"attributes of a device", 512};
void leave_out(Machine& machine, const LimitOf& limit);

// Ok when every reference points at something, no PCI device is its own ancestor, none lies deeper than kMaxPciDepth,
// bus ids are unique, and no number is impossible (negative, not finite). Every loader ends with it.
Status validate(const Machine& machine);

// Removes serial numbers, UUIDs, GUIDs, MACs, IP addresses and host names, and nothing else.
void scrub(Machine& machine);

// Sorts PCI devices by bus id and rewrites every reference. Loaders call it, so that equal machines are equal values.
void sort_pci(Machine& machine);
// Makes Gpu, Nic, NvSwitch entries for PCI devices and RDMA devices that have none yet, joins bonds, interfaces and
// RDMA devices to their NICs, and copies NUMA facts down the tree. Every loader calls it after reading.
void complete(Machine& machine);

Ref<PciDevice> find_pci(const Machine& machine, const BusId& bus_id);
Ref<NetInterface> find_interface(const Machine& machine, std::string_view name);
Ref<RdmaDevice> find_rdma(const Machine& machine, std::string_view name);
Ref<NumaNode> find_numa(const Machine& machine, std::uint32_t os_index);
Ref<Gpu> find_gpu(const Machine& machine, std::uint32_t ordinal);

// "GPU3", "NIC0", "mlx5_bond_0", "0000:2c:00.0", "package 1": a name for people.
std::string node_name(const Machine& machine, NodeRef node);
std::string gpu_name(const Machine& machine, const Gpu& gpu);     // "GPU3"; its bus id if no source tells its number
std::string gpu_and_bus(const Machine& machine, const Gpu& gpu);  // "GPU3 (0000:81:00.0)"
// Its PCI device, of a Nic the first function; none if it has none or its place is unknown.
Ref<PciDevice> pci_of(const Machine& machine, NodeRef node);
// The NUMA node (os_index) of a GPU, NIC or PCI device: its own fact, else that of the bridges above.
Fact<std::uint32_t> numa_of(const Machine& machine, NodeRef node);

// Whether it is a virtual machine; false if unknown.
bool is_virtual(const Machine& machine);
// The rate of a device's link now. Unknown also for an emulated bridge that reports its default.
Fact<double> believed_gbs(const Machine& machine, const PciDevice& device);

// What a NIC can carry in Gb/s per direction: its RDMA port's rate (times the legs of its bond), else its interface's.
Fact<double> nic_capacity_gbps(const Machine& machine, const Nic& nic);
// Of one flow: one leg of a bond.
Fact<double> nic_one_flow_gbps(const Machine& machine, const Nic& nic);

// Whether any link between GPUs, or of GPUs to NVSwitches, is on record: NVLink or xGMI.
bool has_gpu_links(const Machine& machine);
// Whether GPUs of this model have no access to each other's memory over PCIe: GeForce cards newer than the RTX 3090.
bool has_no_peer_access(const Gpu& gpu);
// NVLink-C2C between a GPU and its CPU, GB/s per direction; unknown where the GPU has none on record.
Fact<double> c2c_gbs(const Machine& machine, std::uint32_t gpu);

// One link of the machine, with what it carries in each direction.
enum class EdgeKind : std::uint8_t {
  pcie,
  internal,  // inside a PCIe switch or a root complex: has no rate of its own
  memory,    // a host bridge to its NUMA node, a NUMA node to its package
  socket,
  nvlink,
  xgmi,
  c2c,
  port,  // a NIC to its network: b is the switch where known, else none; a bond's legs together
};
std::string_view to_string(EdgeKind kind);

struct Edge {
  EdgeKind kind = EdgeKind::pcie;
  NodeRef a;  // the end nearer to the CPU, if either is
  NodeRef b;
  Fact<double> gbs;         // GB/s per direction now; unknown stays unknown
  Fact<double> max_gbs;     // at its best
  std::uint32_t count = 1;  // parallel links, already in gbs
  // Edges with the same number are one physical link and share its capacity: the functions of a dual-port card.
  std::uint32_t physical = 0;
  friend bool operator==(const Edge&, const Edge&) = default;
};

// Every edge, derived from the facts above. A GPU, NVSwitch or NIC with a known bus id stands in place of its PCI
// device; a GPU or NIC whose place is unknown has no edge but its device links and its port.
std::vector<Edge> edges(const Machine& machine);

// A network switch between machines.
struct NetSwitch {
  std::string name;  // "rail-0"
  Fact<std::uint32_t> ports;
  friend bool operator==(const NetSwitch&, const NetSwitch&) = default;
};

// One end of a cable: a NIC of a machine, or a switch.
struct CableEnd {
  bool is_switch = false;
  std::uint32_t machine = 0;  // into Fabric::machines; unused for a switch
  std::uint32_t index = 0;    // into that machine's nics, or into Fabric::switches
  friend bool operator==(const CableEnd&, const CableEnd&) = default;
};

struct Cable {
  CableEnd a;
  CableEnd b;
  Fact<double> gbps;  // Gb/s per direction
  friend bool operator==(const Cable&, const Cable&) = default;
};

// Machines and the network between them.
struct Fabric {
  std::string name;
  std::vector<Machine> machines;
  std::vector<NetSwitch> switches;
  std::vector<Cable> cables;
  friend bool operator==(const Fabric&, const Fabric&) = default;
};

// validate() of every machine, and of every cable's ends.
Status validate(const Fabric& fabric);

}  // namespace fairway::topology
