#pragma once

#include <vector>

#include "fairway/engine.h"

#include "engine/expectation.h"
#include "engine/tables/engine_tables.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// explain() and port counters. The workers fill in the answers, with the same routes that transfers take. Any thread.
class Introspection {
 public:
  // `model`: of this machine, for what links should reach; null: no figures. Everything given outlives it.
  Introspection(EngineTables& tables, MachineDiscovery::Source model, const Workers& workers, Waiting& waiting);

  // As the calls of Engine: explain, port_counters. The request was checked.
  Result<Explanation> explain(const Request& request);
  Result<Explanation> explain(PeerId id);
  Result<Explanation> explain(TransferId id);
  [[nodiscard]] std::vector<PortCounter> port_counters() const;

  MachineDiscovery& machine() { return machine_; }

 private:
  void look_at_machine(PeerId id, Explanation& out);
  void explain_as_it_went(Worker& owner, const History& entry, Explanation& out) const;

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
  MachineDiscovery machine_;
};

}  // namespace fairway::engine
