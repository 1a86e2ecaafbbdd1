#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "predict/max_min.h"
#include "predict/plan.h"

namespace fairway::predict {

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
