#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fact.h"

// The parts of a machine: sockets and memory, PCI functions and their links, GPUs and the links between them, NICs and
// network interfaces. Their names and rates; what they are together, machine.h has.
namespace fairway::topology {

struct PciDevice;
struct HostBridge;

// One CPU socket.
struct Package {
  std::uint32_t os_index = 0;
  Fact<std::string> vendor;  // "GenuineIntel", "AuthenticAMD": CPUID's
  Fact<std::string> model;   // "Intel(R) Xeon(R) Platinum 8480C"
  Fact<std::uint32_t> family;
  Fact<std::uint32_t> model_number;
  Fact<CpuSet> cpus;
  friend bool operator==(const Package&, const Package&) = default;
};

// Memory with the CPUs near it.
struct NumaNode {
  std::uint32_t os_index = 0;
  Ref<Package> package;  // none when unknown
  Fact<CpuSet> cpus;
  Fact<std::uint64_t> memory_bytes;
  Fact<std::vector<std::uint32_t>>
      distances;  // by the firmware, to each node in the order of Machine::numa_nodes; 10 is local
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

// Between two sockets: UPI, xGMI. The generation decides the rate; few sources know it.
struct SocketLink {
  Ref<Package> a;
  Ref<Package> b;
  Fact<std::string> kind;     // "UPI", "xGMI"
  Fact<std::uint32_t> links;  // in parallel
  Fact<double> gbs_per_link;  // GB/s, per direction
  friend bool operator==(const SocketLink&, const SocketLink&) = default;
};

// Where a PCI domain's root bus meets the CPU: the level above root ports.
struct HostBridge {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;           // the root bus
  std::uint8_t last_bus = 0;      // the last bus below it; equal to bus when unknown
  Fact<std::uint32_t> numa_node;  // NumaNode::os_index
  // True if the source always shows one bridge for each NUMA node (NCCL and RCCL files). Two devices that meet here may
  // be PHB or NODE; the format calls both PHB.
  bool folded = false;
  friend bool operator==(const HostBridge&, const HostBridge&) = default;
};

// One end of a PCIe link. Speeds in GT/s per lane (2.5, 5, 8, 16, 32, 64).
struct PcieLink {
  Fact<double> speed_gts;
  Fact<std::uint32_t> width;
  Fact<double> max_speed_gts;  // what the device supports; the slot may support less
  Fact<std::uint32_t> max_width;
  Fact<double> gbs;  // GB/s per direction if the source has only speed x width (hwloc XML); else unknown
  friend bool operator==(const PcieLink&, const PcieLink&) = default;
};

enum class PciKind : std::uint8_t {
  endpoint,
  root_port,
  switch_upstream,
  switch_downstream,
  pci_switch,  // a whole switch as one node: the source shows no ports (NCCL and RCCL files)
  bridge,      // any other PCI bridge
};
std::string_view to_string(PciKind kind);
std::optional<PciKind> pci_kind_from(std::string_view text);

// A PCI function: an endpoint or a bridge. Its `link` is what its registers describe: for endpoints, upstream ports and
// whole switches the link above; for root and downstream ports the link below, which the child describes too.
struct PciDevice {
  BusId bus_id;
  PciKind kind = PciKind::endpoint;
  Ref<PciDevice> parent;           // the bridge above; none: directly below a host bridge, or unknown
  Ref<HostBridge> host_bridge;     // the root of its tree; none: its position is unknown
  Fact<std::uint32_t> class_code;  // 24 bits: 0x030200
  Fact<std::uint32_t> vendor_id;   // 16 bits each
  Fact<std::uint32_t> device_id;
  Fact<std::uint32_t> subsystem_vendor_id;
  Fact<std::uint32_t> subsystem_device_id;
  Fact<std::string> vendor_name;
  Fact<std::string> device_name;
  Fact<std::string> driver;
  Fact<std::string> purpose;  // what its vital product data says it is for: "SW_MNG" manages NVLink
  PcieLink link;
  Fact<std::uint32_t> numa_node;  // NumaNode::os_index; unknown if the firmware says -1
  Fact<CpuSet> local_cpus;
  friend bool operator==(const PciDevice&, const PciDevice&) = default;
};

// Whether a bridge or a hypervisor's device reports one lane at 2.5 GT/s. Emulated ones always do, whatever is behind
// them, so in a virtual machine it is not a rate.
bool claims_least(const PciDevice& device);

// GB/s per direction of `width` lanes at `speed_gts`, after line coding (8b/10b to 5 GT/s, 128b/130b above), before
// packet headers. 16 lanes at 32 GT/s: 63.0.
double pcie_gbs(double speed_gts, std::uint32_t width);
// The link's capacity now, and the most it supports; unknown if speed or width is.
Fact<double> current_gbs(const PcieLink& link);
Fact<double> max_gbs(const PcieLink& link);

// One NVLink of one GPU as its driver reports it.
struct NvLinkPort {
  std::uint32_t index = 0;
  Fact<bool> active;
  Fact<std::uint32_t> version;    // NVLink generation, 1-5
  Fact<std::string> remote_kind;  // "GPU", "NVSwitch", "CPU"
  Fact<BusId> remote;
  friend bool operator==(const NvLinkPort&, const NvLinkPort&) = default;
};

struct Gpu {
  std::uint32_t ordinal = 0;       // the n of "GPUn": in PCI bus order, or as the source numbers them
  Ref<PciDevice> pci;              // none: its bus id is not recorded
  Fact<std::string> vendor;        // "NVIDIA", "AMD"
  Fact<std::string> model;         // "NVIDIA H200"
  Fact<std::string> architecture;  // "sm_90", "gfx942"
  Fact<std::uint64_t> memory_bytes;
  Fact<std::uint64_t> bar1_bytes;  // size of the window through which NICs reach its memory
  Fact<bool> gpudirect_rdma;       // whether NICs can read and write its memory
  Fact<std::uint32_t> numa_node;   // the CPU memory near it, NumaNode::os_index
  Fact<CpuSet> cpus;               // the CPUs near it
  Fact<std::string> uuid;          // identity: scrubbed from snapshots
  Fact<std::string> serial;        // identity: scrubbed from snapshots
  std::vector<NvLinkPort> nvlinks;
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct NvSwitch {
  Ref<PciDevice> pci;  // none: it is inferred, or not on this machine's bus
  friend bool operator==(const NvSwitch&, const NvSwitch&) = default;
};

enum class LinkKind : std::uint8_t { nvlink, xgmi, c2c };
std::string_view to_string(LinkKind kind);
std::optional<LinkKind> link_kind_from(std::string_view text);

// `count` parallel links between two ends: GPU-GPU, GPU-NVSwitch (nv_switch) or GPU-CPU (package, numa_node).
// Both directions have the capacity of one: count x gbs_per_link, GB/s.
struct DeviceLink {
  LinkKind kind = LinkKind::nvlink;
  NodeRef a;
  NodeRef b;
  Fact<std::uint32_t> count;       // links in place
  Fact<std::uint32_t> active;      // how many of them are up; unknown if the source has no states
  Fact<std::uint32_t> generation;  // NVLink 1-5
  Fact<double> gbs_per_link;       // GB/s per direction, nominal (25 for NVLink 4)
  friend bool operator==(const DeviceLink&, const DeviceLink&) = default;
};

// Peer access between two GPUs, as the driver reports it.
struct PeerAccess {
  Ref<Gpu> from;
  Ref<Gpu> to;
  Fact<bool> read;
  Fact<bool> write;
  Fact<bool> atomics;
  Fact<std::string> refusal;  // the driver's reason for refusing: "chipset not supported"
  friend bool operator==(const PeerAccess&, const PeerAccess&) = default;
};

// GPUs whose number no source tells: their ordinals stand from here on, and they are called by their bus ids.
inline constexpr std::uint32_t kNoNumber = 60000;

// In files: an unknown number is left out.
template <class N>
struct GpuNumber {
  N& ordinal;
};
template <class N>
GpuNumber(N&) -> GpuNumber<N>;

inline bool is_numbered(const Gpu& gpu) {
  return gpu.ordinal < kNoNumber || !gpu.pci;
}

struct RdmaDevice;
struct Bond;

enum class InterfaceKind : std::uint8_t {
  unknown,
  physical,  // has its own device: PCI, virtio, USB
  loopback,
  bond,
  bridge,
  vlan,
  veth,
  tun,     // tun and tap
  tunnel,  // ipip, gre, vxlan, wireguard
  macvlan,
  dummy,  // dummy and ifb
  other,  // virtual, of a kind not named above
};
std::string_view to_string(InterfaceKind kind);
std::optional<InterfaceKind> interface_kind_from(std::string_view text);

// A network interface of the operating system.
struct NetInterface {
  std::string name;
  InterfaceKind kind = InterfaceKind::unknown;
  Ref<PciDevice> pci;        // the function below it
  Fact<std::string> master;  // the bond or bridge it belongs to, by name
  Fact<std::string> driver;  // "mlx5_core", "virtio_net"
  Fact<std::string> state;   // the kernel's operstate: "up", "down", "unknown", in lower case
  Fact<bool> carrier;        // a signal on the wire
  Fact<std::uint32_t> mtu;   // bytes
  Fact<double> speed_gbps;   // Gb/s; unknown if the driver says -1
  Fact<std::uint32_t> numa_node;
  Fact<std::string> mac;                     // identity: scrubbed from snapshots
  Fact<std::vector<std::string>> addresses;  // identity: scrubbed; "10.0.0.1/24"
  Fact<bool> has_address;                    // survives scrubbing
  friend bool operator==(const NetInterface&, const NetInterface&) = default;
};

struct BondLeg {
  Ref<NetInterface> interface;
  Fact<bool> up;  // its MII status
  Fact<double> speed_gbps;
  Fact<std::uint32_t> link_failures;
  Fact<std::uint32_t> aggregator;  // 802.3ad: legs outside the bond's active aggregator carry nothing
  friend bool operator==(const BondLeg&, const BondLeg&) = default;
};

struct Bond {
  Ref<NetInterface> interface;    // the bond's own
  Fact<std::string> mode;         // the kernel's short name: "802.3ad", "active-backup", "balance-xor"
  Fact<std::string> hash_policy;  // "layer3+4"
  Fact<bool> up;
  Fact<std::uint32_t> active_aggregator;
  Fact<std::string> active_leg;  // active-backup: the leg that carries all traffic
  Fact<std::uint32_t> watch_ms;  // how often links are looked at (MII or ARP); 0: never, so a dead leg stays in use
  std::vector<BondLeg> legs;
  friend bool operator==(const Bond&, const Bond&) = default;
};

struct Machine;
// The legs that can carry traffic now, by the bond's mode: of active-backup the active one alone.
std::vector<const BondLeg*> carrying_legs(const Machine& machine, const Bond& bond);
// Gb/s over all legs that are up and carry traffic in this mode; unknown if the speed of one of them is.
Fact<double> bond_capacity_gbps(const Machine& machine, const Bond& bond);
// Gb/s of one flow: one leg (the slowest carrying one, since the hash may pick any); balance-rr: all legs.
Fact<double> bond_one_flow_gbps(const Machine& machine, const Bond& bond);

struct Gid {
  std::uint32_t index = 0;
  Fact<std::string> type;       // "IB", "RoCE v1", "RoCE v2"
  Fact<std::string> interface;  // the network interface it belongs to
  Fact<std::string> address;    // identity: scrubbed from snapshots
  Fact<std::string> scope;      // survives scrubbing: "link-local", "IPv4", "IPv6", "InfiniBand"
  friend bool operator==(const Gid&, const Gid&) = default;
};

// A named number or text, in the words of `ibv_devinfo -v` (max_qp, max_sge) or of sysfs (port_rcv_data).
struct Attribute {
  std::string name;
  Fact<std::string> value;
  friend bool operator==(const Attribute&, const Attribute&) = default;
};

struct Counter {
  std::string name;
  std::uint64_t value = 0;
  Source source = Source::none;
  friend bool operator==(const Counter&, const Counter&) = default;
};

struct RdmaPort {
  std::uint32_t number = 1;
  Fact<std::string> link_layer;      // "InfiniBand", "Ethernet"
  Fact<std::string> state;           // "ACTIVE", "DOWN", "INIT", "ARMED"
  Fact<std::string> physical_state;  // "LinkUp", "Polling", "Disabled"
  Fact<double> rate_gbps;            // Gb/s of the port: lanes x lane rate
  Fact<std::uint32_t> lanes;         // 2 of "2X"
  Fact<std::string> speed_name;      // "NDR"
  Fact<std::string> interface;       // the network interface of this port; of a bonded port the bond's
  Fact<std::uint32_t> active_mtu;    // bytes
  Fact<std::uint32_t> max_mtu;
  Fact<std::uint32_t> lid;
  Fact<std::uint32_t> sm_lid;
  Fact<std::uint32_t> lmc;
  Fact<std::vector<std::uint32_t>> pkeys;
  std::vector<Gid> gids;              // those in use
  std::vector<Counter> counters;      // InfiniBand's standard ones, as sysfs has them
  std::vector<Counter> hw_counters;   // the vendor's
  std::vector<Attribute> attributes;  // other attributes of the port
  friend bool operator==(const RdmaPort&, const RdmaPort&) = default;
};

// What libibverbs opens: "mlx5_bond_0".
struct RdmaDevice {
  std::string name;
  Fact<std::string> transport;  // "InfiniBand" (verbs' word, RoCE too), "iWARP", "unspecified" (EFA)
  Fact<std::string> firmware;
  Fact<std::string> hca_type;  // "MT41692"
  Fact<std::string> board_id;
  Fact<std::string> node_guid;        // identity: scrubbed from snapshots
  Fact<std::string> system_guid;      // identity: scrubbed from snapshots
  Fact<bool> software;                // soft-RoCE (rxe), soft-iWARP (siw): no NIC of its own
  std::vector<Attribute> attributes;  // limits: max_qp, max_qp_wr, ...
  std::vector<RdmaPort> ports;
  friend bool operator==(const RdmaDevice&, const RdmaDevice&) = default;
};

// A network endpoint as software sees it, and as nvidia-smi counts NICs: one per RDMA device, and one per PCI network
// function that no RDMA device covers. A bond of two functions of a card is one Nic with two functions.
struct Nic {
  std::string name;                       // the RDMA device's, else the interface's, else the bus id
  std::vector<Ref<PciDevice>> functions;  // the first is its position; empty if it is unknown
  Ref<RdmaDevice> rdma;
  std::vector<Ref<NetInterface>> interfaces;  // of its functions; of a bond: its legs
  Ref<Bond> bond;
  Fact<std::string> model;  // "MT43244 BlueField-3 integrated ConnectX-7 network controller"
  Fact<double> rate_gbps;   // of one port (one leg), if no port or leg has its rate
  Fact<bool> gpudirect_rdma;
  Fact<std::uint32_t> numa_node;
  Fact<std::string> net_switch;  // the switch its port is cabled to, where known: "rail-0"
  friend bool operator==(const Nic&, const Nic&) = default;
};

// The largest RDMA MTU that fits into an Ethernet interface's, as the kernel chooses it for hardware: up to 96 bytes
// are headers (ib_core's iboe_get_mtu). None below 352 bytes.
std::optional<std::uint32_t> roce_mtu(std::uint32_t interface_mtu);

// The kernel's rate text "200 Gb/sec (2X NDR)": 200 Gb/s over 2 lanes of 100.
struct PortRate {
  double gbps = 0;
  std::uint32_t lanes = 0;
  std::string speed_name;
};
std::optional<PortRate> parse_port_rate(std::string_view text);

}  // namespace fairway::topology
