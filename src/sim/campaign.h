#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fairway/simulation.h"

#include "sim/oracle.h"
#include "sim/scenario.h"

namespace fairway::sim {

// One seed: opens the engines of its scenario, submits at random, lets faults happen, and asks the oracle. One thread.
class Campaign {
 public:
  explicit Campaign(const SimulationRequest& request);
  SimulationReport run();

 private:
  struct FaultEvent {
    Campaign* campaign;
    Scenario::Planned planned;
  };

  // campaign.cc: the run
  Application& open(std::size_t place);
  void connect_all();
  void meet(Application& app);
  void import_regions(Application& app);
  void plan_faults();
  void plan(const Scenario::Planned& planned);
  static void strike(void* event, std::uint64_t, std::uint64_t);
  static void recover(void* event, std::uint64_t, std::uint64_t);
  void kill(Application& app);
  Application* living(std::size_t place);
  void collect(Application& app);
  void wind_up();
  void report(SimulationReport& report);

  // workload.cc: what applications do
  void act();
  Application* someone();
  void submit(Application& from, Application::Acquaintance& to);
  bool lay_out(Job& job, Request& request, const Application::Acquaintance& to, std::uint32_t length);
  bool prepare_two_sided(Job& job, Request& request, std::uint32_t length);
  bool prepare_atomic(Job& job, Request& request, const Application::Acquaintance& to);
  void add_options(Job& job, Request& request);
  void cancel_one(Application& app);
  void exchange_region(Application& app);
  void check_all();

  const SimulationRequest& request_;
  Simulation simulation_;
  Random random_;
  Scenario scenario_;
  Fabric fabric_;
  Oracle oracle_;
  std::vector<std::unique_ptr<Application>> applications_;  // the dead ones too
  std::vector<std::shared_ptr<Loopback>> loopbacks_;        // by place
  std::vector<std::unique_ptr<FaultEvent>> faults_;
  std::uint32_t faults_struck_ = 0;
  bool faults_over_ = false;
};

}  // namespace fairway::sim
