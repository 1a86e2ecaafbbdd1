#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "fairway/status.h"

#include "predict/constants.h"
#include "topology/machine.h"

namespace fairway::predict {

enum class EndpointKind : std::uint8_t {
  gpu,          // its memory
  nic,          // the wire at its port
  host_memory,  // of one NUMA node
  remote,       // another machine, over the best NIC
};

struct Endpoint {
  EndpointKind kind = EndpointKind::gpu;
  std::uint32_t index = 0;           // into the machine's gpus, nics or numa_nodes; unused for remote
  std::optional<std::uint32_t> leg;  // of a bonded NIC: only this one
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// "gpu3", "nic0", "mlx5_bond_0", "nic0/leg1", "numa1" or "host1", "remote"; case does not matter. invalid_argument
// lists the ends that exist.
Result<Endpoint> parse_endpoint(const topology::Machine& machine, std::string_view text);
std::string to_string(const topology::Machine& machine, const Endpoint& endpoint);
// As parse_endpoint reads it, and as a shell keeps it: "gpu3", "mlx5_0/leg1".
std::string argument_of(const topology::Machine& machine, const Endpoint& endpoint);
topology::NodeRef node_of(const Endpoint& endpoint);  // none for remote

enum class Ordering : std::uint8_t {
  unknown,
  relaxed,  // the memory is registered with IBV_ACCESS_RELAXED_ORDERING, and the device has it enabled
  strict,
};
std::string_view to_string(Ordering ordering);

// Who moves the bytes between two host memories.
enum class Mover : std::uint8_t {
  device,   // a NIC or a GPU's copy engine
  cpu,      // one core copies
  sockets,  // the kernel copies, over one TCP connection
};

// Bytes of payload in a packet of InfiniBand or RoCE; an interface's may be any.
constexpr bool is_rdma_mtu(std::uint32_t bytes) {
  return std::has_single_bit(bytes) && bytes >= 256 && bytes <= 4096;
}

// How the bytes are moved.
struct Conditions {
  std::uint32_t qps = 1;     // queue pairs, hashed to the legs of a bond
  bool round_robin = false;  // they take the legs in turn instead
  bool by_kernel = false;    // GPU to GPU by a kernel's loads and stores, not by a copy engine
  Ordering ordering = Ordering::unknown;
  std::optional<std::uint32_t> mtu;   // bytes of payload in a packet; default: the port's MTU
  std::optional<std::uint32_t> legs;  // legs of bonds that may be used; default: all
  Mover mover = Mover::device;
  std::optional<std::uint64_t> message_bytes;  // of each message; default: large enough not to matter
  // Messages of one queue pair in flight; reads at most max_rd_atomic. Default: enough to fill the wire.
  std::optional<std::uint32_t> outstanding;
  friend bool operator==(const Conditions&, const Conditions&) = default;
};

// Bytes from one memory to another, or to the wire. With `loop` they go out through that NIC and come back in through
// the same one, so its port and links carry them in both directions.
struct Flow {
  Endpoint from;
  Endpoint to;
  std::optional<std::uint32_t> loop;  // into the machine's nics
  Conditions conditions;
};
std::string to_string(const topology::Machine& machine, const Flow& flow);
std::string argument_of(const topology::Machine& machine, const Flow& flow);  // of `fairway predict`: "gpu0:nic0:gpu0"

// Rates that replace the machine's facts, from --what-if. GB/s per direction, raw.
struct Assumptions {
  std::map<topology::NodeRef, double> link_gbs;  // a GPU's or NIC's PCIe link
  std::map<std::uint32_t, double> port_gbps;     // Gb/s of one port (one leg), by NIC
  std::optional<CpuKind> cpu;
  std::optional<bool> virtual_machine;
};

}  // namespace fairway::predict
