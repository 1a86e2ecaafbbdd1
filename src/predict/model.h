#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "predict/constants.h"
#include "predict/flow.h"
#include "predict/links.h"
#include "predict/max_min.h"
#include "topology/machine.h"

// What a flow should reach: the limits on its way (Planner), and the rate and the routes that they leave (Model).
namespace fairway::predict {

// One limit of a flow: a shared resource, or a ceiling of its own. Constant times factor is, of a resource, the share
// of its raw capacity that software reaches; of a ceiling, GB/s. Where a factor is unbounded the term sets no limit.
struct Term {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t resource = kNone;  // into Planner::resources(); none: a ceiling
  ConstantId constant = ConstantId::wire_fill;
  Range factor = Range::exactly(1);
  std::string_view what;  // of a ceiling: its name, for people
};

enum class ResourceKind : std::uint8_t { edge, assumed_link, port, nvlink_fabric, memory };

struct Resource {
  ResourceKind kind = ResourceKind::edge;
  std::uint32_t index = 0;  // an edge of Paths, or the node's index
  topology::NodeRef node;   // whose link or port it is
  bool down = false;        // toward the device; of a port: from the wire; of a fabric: into the GPU
  Range gbs = Range::exactly(kUnbounded);
};

// All limits of a flow on one route, and notes about it.
struct Plan {
  std::vector<Term> terms;
  Range latency_us;
  topology::PathClass path;        // of the part between device and NIC, or between two devices
  std::vector<std::string> notes;  // assumptions, plateaus, doubts
  void add(const Plan& other);     // adds a stage of a pipelined route
};

// Turns flows into plans. Borrows nothing: it keeps its own copy of the machine. Immutable after construction; any
// thread.
class Planner {
 public:
  Planner(topology::Machine machine, Constants constants, Assumptions assumptions);

  [[nodiscard]] const topology::Machine& machine() const { return machine_; }
  [[nodiscard]] const Constants& constants() const { return constants_; }
  [[nodiscard]] const std::vector<Resource>& resources() const { return resources_; }
  [[nodiscard]] topology::PathClass path_class(topology::NodeRef a, topology::NodeRef b) const;
  [[nodiscard]] CpuKind cpu() const { return cpu_; }

  // The direct route. `remote` must be resolved to a NIC before. Fails where the ends cannot be joined: two equal ones,
  // a NIC to itself.
  [[nodiscard]] Result<Plan> plan(const Flow& flow) const;
  [[nodiscard]] std::string describe(const Resource& resource) const;
  // What is staged in host memory stays below its slowest stage, which reaches `slowest`.
  void add_stage(Plan& plan, const Range& slowest) const;

 private:
  // The part between a NIC and memory; `reads`: the NIC fetches, else it writes.
  void add_memory_to_nic(Plan& plan, const Endpoint& memory, std::uint32_t nic, bool reads,
                         const Conditions& how) const;
  void add_port(Plan& plan, const Endpoint& nic, bool receives, const Conditions& how) const;
  void add_loop(Plan& plan, std::uint32_t nic, const Conditions& how) const;
  void add_between_gpus(Plan& plan, std::uint32_t a, std::uint32_t b, const Conditions& how) const;
  // NVLink-C2C between a GPU and its CPU's memory; `out`: from the GPU. False where none is recorded.
  bool add_c2c(Plan& plan, topology::NodeRef gpu, topology::NodeRef numa, bool out) const;
  // Between a NIC and GPU memory that its CPU reaches by NVLink-C2C: like host memory, by the NIC's own root port.
  // False where the two meet in a PCIe switch, or without C2C.
  bool add_memory_by_c2c(Plan& plan, const Endpoint& memory, std::uint32_t nic, bool reads) const;
  // Between two GPUs without peer access: out to host memory and in again.
  void add_staged_gpus(Plan& plan, std::uint32_t a, std::uint32_t b) const;
  void add_host_copy(Plan& plan, const Endpoint& from, const Endpoint& to) const;
  void add_tree(Plan& plan, topology::NodeRef from, topology::NodeRef to, ConstantId up, ConstantId down) const;
  void add_crossing(Plan& plan, topology::NodeRef a, topology::NodeRef b, Ordering ordering) const;
  void add_socket_to_memory(Plan& plan, topology::NodeRef device, topology::NodeRef numa) const;
  void add_unknown_crossing(Plan& plan) const;
  void add_memory(Plan& plan, topology::NodeRef numa, ConstantId constant) const;
  void add_messages(Plan& plan, double line_gbs, const Conditions& how) const;
  void add_cpu_copy(Plan& plan, const Endpoint& from, const Endpoint& to, Mover mover) const;
  void add_latency(Plan& plan, topology::PathClass path) const;
  void add_ceiling(Plan& plan, ConstantId constant, std::string_view what, Range factor = Range::exactly(1)) const;
  [[nodiscard]] bool is_one_socket(topology::NodeRef a, topology::NodeRef b) const;
  // From a device to the memory of a NUMA node: NODE or SYS, unknown where the device's place is.
  [[nodiscard]] topology::PathClass to_host(topology::NodeRef device, topology::NodeRef numa) const;
  [[nodiscard]] topology::PathClass crossing_class(topology::NodeRef a, topology::NodeRef b) const;
  // The root complex sends traffic between peers in 64-byte packets.
  [[nodiscard]] bool cuts_packets() const { return !is_amd(cpu_) && cpu_ != CpuKind::power9 && cpu_ != CpuKind::arm; }
  std::uint32_t add_resource(ResourceKind kind, std::uint32_t index, topology::NodeRef node, const Range& gbs);
  void make_edges();
  void make_ports();
  void make_fabrics();
  void make_memories();

  topology::Machine machine_;
  Constants constants_;
  Assumptions assumptions_;
  Paths paths_;
  CpuKind cpu_ = CpuKind::unknown;
  bool virtual_ = false;
  topology::PathMatrix matrix_;
  std::map<topology::NodeRef, std::size_t> matrix_place_;
  std::vector<Resource> resources_;
  // First resources; the other direction is the next one. Edges of one physical link share theirs.
  std::vector<std::uint32_t> of_edge_;
  std::map<topology::NodeRef, std::uint32_t> of_assumed_;
  std::map<topology::NodeRef, std::uint32_t> of_port_;
  std::map<topology::NodeRef, std::uint32_t> of_fabric_;
  std::map<topology::NodeRef, std::uint32_t> of_memory_;  // one for both directions
  std::map<std::uint32_t, std::string> doubts_;  // by first resource: why its capacity is not what the machine says
};

// The expected rate of a flow: a range, the bottleneck, and a sentence.
struct Prediction {
  bool known = false;  // false: no rate on the path is known, and the figures mean nothing
  Range gbs;           // GB/s of payload
  Range latency_us;    // one way, small message
  topology::PathClass path;
  std::string bottleneck;  // "port of mlx5_bond_0 (out)"; empty when unknown
  std::string sentence;
  std::vector<std::string> notes;
  std::optional<ConstantId> constant;  // the one that decides the expected figure
};

// One route of a flow.
struct Route {
  std::string name;  // "direct", "over GPU1", "through the memory of NUMA node 0"
  std::vector<Flow> stages;
  Plan plan;
  Prediction prediction;
};

// Predicts flows of one machine. A value; immutable; any thread.
class Model {
 public:
  explicit Model(topology::Machine machine, Constants constants = {}, Assumptions assumptions = {});

  [[nodiscard]] const topology::Machine& machine() const { return planner_.machine(); }
  [[nodiscard]] const Planner& planner() const { return planner_; }

  // A flow alone.
  [[nodiscard]] Result<Prediction> predict(const Flow& flow) const;
  // Flows at the same time; they share resources max-min fairly. One prediction for each.
  [[nodiscard]] Result<std::vector<Prediction>> predict(std::span<const Flow> flows) const;
  // The same for plans; `constants` replaces the model's own, for calibration.
  [[nodiscard]] std::vector<Prediction> evaluate(std::span<const Plan> plans) const;
  [[nodiscard]] double expected_gbs(const Plan& plan, const Constants& constants) const;

  // Routes of one and two hops, fastest first: direct; over another GPU by NVLink or xGMI; through host memory; by
  // another NIC if the far end is `remote`; between sockets over their NICs. Resolves a remote end.
  [[nodiscard]] Result<std::vector<Route>> routes(const Flow& flow) const;
  // The flow with a remote end replaced by the best NIC for its other end.
  [[nodiscard]] Result<Flow> resolve(const Flow& flow) const;

 private:
  [[nodiscard]] Prediction explain(const Plan& plan, const Range& gbs, std::uint32_t limited_by,
                                   std::size_t company) const;
  [[nodiscard]] std::vector<double> capacities(Level level) const;
  [[nodiscard]] Share alone(const Plan& plan, const Constants& constants, Level level) const;

  Planner planner_;
};

// Seconds for a message of this size: latency and transfer. 0 if the prediction is unknown.
Range seconds_for(const Prediction& prediction, double size_bytes);

}  // namespace fairway::predict
