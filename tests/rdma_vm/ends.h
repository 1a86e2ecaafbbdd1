#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "net/side.h"

// Two engines in a guest, each a process with one end of the cable, and what can befall that cable. Control goes over
// lo, so nothing of this touches it.
namespace fairway::rdma {

using std::chrono::milliseconds;

// Whether the guest's devices are iWARP's, siw0 and siw1; and what its device of RoCE's name is called.
bool over_iwarp();
std::string device_for(const std::string& rxe);

// Over verbs alone, on that device, where nothing else is said.
EngineOptions on(const std::string& device, milliseconds peer_timeout = milliseconds(5000));

void must(const std::string& command);            // in a shell; a test failure when it does not end with 0
std::string said_by(const std::string& command);  // its output
bool in_guest();
bool at_length();  // what takes minutes is wanted too: FAIRWAY_LONG is set

// Of both ends together.
void pull_cable();  // both ports are down
void mend_cable();
// What the kernel does to each packet of RDMA (UDP 4791; iWARP's are all TCP on that cable) on its way, in both
// directions: netem's words. The rest passes.
void disturb(const std::string& netem);
void calm();

// What the kernel holds for this and all processes.
struct Held {
  std::uint64_t domains = 0, queues = 0, pairs = 0, regions = 0, files = 0;
  bool operator==(const Held&) const = default;
};
Held held();
std::string text(const Held& held);

// A far engine with rxe1 and a near one with rxe0, met.
class Ends : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  // `transports` of both. End the test when they do not meet.
  void meet(milliseconds peer_timeout = milliseconds(5000), const std::vector<std::string>& transports = {"verbs"});
  void meet_between(const EngineOptions& here, const EngineOptions& there);
  void start(std::vector<TransferId>& ids, int count);  // writes of the whole region
  // All end well, and are there; how long that took from now on.
  milliseconds all_end_well(const std::vector<TransferId>& ids, std::uint64_t seed);
  void works(std::uint64_t bytes = 100'000);  // so many, there and back
  bool until_up(bool up, const std::string& transport = "verbs");
  net::Near& near() { return *near_; }
  net::Far& far() { return *far_; }

  std::optional<net::Far> far_;
  std::optional<net::Near> near_;
};

milliseconds since(std::chrono::steady_clock::time_point start);
void tell(const std::string& what, milliseconds took);  // a line of the test's output, for docs/verbs.md

}  // namespace fairway::rdma
