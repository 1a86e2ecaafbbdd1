#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/options.h"

#include "sim/fabric.h"
#include "sim/oracle.h"
#include "sim/simulate.h"

namespace fairway::sim {

// What a seed chooses before the run starts. A value.
struct Scenario {
  enum class Fault : std::uint8_t {
    break_link,
    device_down,
    partition,
    one_way,    // nothing arrives at b that comes from a
    slow_path,  // both ways
    mtu_hole,   // both ways: sockets' long segments are swallowed, and heartbeats pass
    freeze,
    kill,
    cut_control,
    hold
  };
  struct Planned {
    Time at = 0;
    Fault fault = Fault::break_link;
    std::uint32_t a = 0, b = 0;  // hosts, or a host and a device
    Time lasts = 0;
  };
  std::uint32_t engines = 2;
  std::vector<std::vector<NicDevice>> devices;  // indexed by place
  std::vector<EngineOptions> options;           // indexed by place
  std::uint32_t operations = 30;
  Time pace = 50 * kMicrosecond;  // average time between operations
  std::uint32_t largest = 4096;   // largest transfer, in bytes
  std::vector<Planned> faults;
  std::uint32_t immediate_bits = 0;  // set in the immediates of events, above the bits that hold the job's number
  bool garbles = false;              // the wire corrupts a byte of some transfers with a checksum
  bool faulty = false;               // a NIC is broken from the start
  bool unreceived_sends = false;     // some sends have no receive
  bool at_once = false;              // the wires move some small slices within the call
};

// `only`: every fault is one of these, and there is one at least; empty: the seed's choice.
Scenario make_scenario(Random& random, const std::vector<std::string>& only);

std::optional<Scenario::Fault> fault_named(std::string_view name);

// Runs one seed: opens the scenario's engines, submits random transfers, injects faults, and lets the oracle check
// every promise. One thread.
class Campaign {
 public:
  explicit Campaign(const SimulationRequest& request);
  SimulationReport run();

 private:
  struct FaultEvent {
    Campaign* campaign;
    Scenario::Planned planned;
  };
  // A deadline by which one engine must have noticed that a peer ended.
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

  // campaign.cc: the course of a run
  Application& open(std::size_t place);
  void connect_all();
  void handle_peer_events(Application& app);
  void import_regions(Application& app);
  void plan_faults();
  void plan(const Scenario::Planned& planned);
  static void inject_fault(void* event, std::uint64_t, std::uint64_t);
  static void recover(void* event, std::uint64_t, std::uint64_t);
  void kill(Application& app);
  void change_path(const Host& a, const Host& b, const Scenario::Planned& planned);
  bool is_path_changed(const Host& a, const Host& b);
  Application* live_application(std::size_t place);
  void poll_engine(Application& app);
  void poll_and_handle(Application& app);
  void finish();
  void close_all();
  void report(SimulationReport& report);

  // workload.cc: random actions of the applications
  void random_action();
  Application* random_application();
  void submit(Application& from, Application::KnownPeer& to, bool unexpected = false);
  bool choose_layout(Job& job, Request& request, const Application::KnownPeer& to, std::uint32_t length);
  bool prepare_two_sided(Job& job, Request& request, std::uint32_t length);
  bool prepare_atomic(Job& job, Request& request, const Application::KnownPeer& to);
  void add_options(Job& job, Request& request);
  void check_all();

  // endings.cc: transfers and regions that end early
  void cancel_one(Application& app);
  void reregister_region(Application& app);
  void hold(Application& app, Time lasts);

  // endings.cc: deadlines for noticing dead peers
  void drain_peer_events(Application& app);
  void expect_death(Application& gone, const Scenario::Planned& planned);
  static void look_for_death(void* watch, std::uint64_t, std::uint64_t);
  void partition_changed(const Host& a, const Host& b);  // a partition between the two began or ended
  Time partitioned_since(const Host& a, const Host& b) const;

  // workload.cc: applications that drive their engine's progress
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
  std::vector<std::unique_ptr<Application>> applications_;  // dead ones included
  std::vector<std::shared_ptr<Loopback>> loopbacks_;        // indexed by place
  std::vector<std::unique_ptr<FaultEvent>> faults_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::map<std::pair<std::size_t, std::size_t>, Time>
      partition_changed_at_;  // per pair of hosts: when their partition last changed
  std::uint32_t watches_due_ = 0;
  std::uint32_t faults_injected_ = 0;
  bool faults_over_ = false;
};

}  // namespace fairway::sim
