#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fact.h"
#include "topology/host.h"
#include "topology/ids.h"

namespace fairway::topology {

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
