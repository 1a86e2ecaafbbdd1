#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/oracle.h"
#include "sim/scenario.h"
#include "sim/simulate.h"

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
  // The end of a peer that one engine must have noticed by a time.
  struct Watch {
    Campaign* campaign;
    Scenario::Fault why;
    Application* observer;
    Application* gone;
    PeerId peer;
    Time since;
  };
  struct Program {
    Campaign* campaign;
    Application* app;
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
  void take(Application& app);
  void collect(Application& app);
  void wind_up();
  void close_all();
  void report(SimulationReport& report);

  // workload.cc: what applications do
  void act();
  Application* someone();
  void submit(Application& from, Application::Acquaintance& to, bool unexpected = false);
  bool lay_out(Job& job, Request& request, const Application::Acquaintance& to, std::uint32_t length);
  bool prepare_two_sided(Job& job, Request& request, std::uint32_t length);
  bool prepare_atomic(Job& job, Request& request, const Application::Acquaintance& to);
  void add_options(Job& job, Request& request);
  void check_all();

  // endings.cc: how transfers and regions end early
  void cancel_one(Application& app);
  void exchange_region(Application& app);
  void hold(Application& app, Time lasts);

  // deaths.cc: who must be known to be gone by when
  void hear(Application& app);
  void expect_death(Application& gone, const Scenario::Planned& planned);
  static void look_for_death(void* watch, std::uint64_t, std::uint64_t);
  void cut_off(const Host& a, const Host& b);  // or not any more
  Time cut_off_since(const Host& a, const Host& b) const;

  // programs.cc: applications that step their engine themselves
  void begin_program(Application& app);
  void compute(Application& app);
  static void serve_soon(void* program, std::uint64_t, std::uint64_t);
  static void serve(void* program, std::uint64_t, std::uint64_t);

  const SimulationRequest& request_;
  Simulation simulation_;
  Random random_;
  Scenario scenario_;
  Fabric fabric_;
  Oracle oracle_;
  std::vector<std::unique_ptr<Application>> applications_;  // the dead ones too
  std::vector<std::shared_ptr<Loopback>> loopbacks_;        // by place
  std::vector<std::unique_ptr<FaultEvent>> faults_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::map<std::pair<std::size_t, std::size_t>, Time> cut_off_at_;  // by hosts: the last change of their partition
  std::uint32_t watches_due_ = 0;
  std::uint32_t faults_struck_ = 0;
  bool faults_over_ = false;
};

}  // namespace fairway::sim
