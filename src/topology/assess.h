#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

// Judgements on a machine that is already read: which ports may carry bulk traffic, what contradicts itself, and how
// two machines differ.
namespace fairway::topology {

struct RailVerdict {
  NodeRef node;  // interface or rdma; a NIC of which neither is recorded
  bool rail = false;
  std::string reason;  // one sentence
};
// One for every RDMA device, then one for every interface, then for NICs that are rails without either.
std::vector<RailVerdict> rail_verdicts(const Machine& machine);
RailVerdict rail_verdict(const Machine& machine, NodeRef node);

// A NIC as seen from a memory.
struct NicChoice {
  Ref<Nic> nic;
  PathClass path;
  // GB/s per direction: the smallest known capacity of its port and of the PCIe links on the way. It orders NICs of one
  // class; what a path should reach, sockets and efficiency included, src/predict says.
  Fact<double> gbs;
  bool rail = false;
  std::string reason;  // one sentence: where it is, and why it is no rail
};
// Best first: rails before others, then the nearer class, then the larger capacity, then name.
std::vector<NicChoice> nics_for_gpu(const Machine& machine, Ref<Gpu> gpu);
std::vector<NicChoice> nics_for_numa(const Machine& machine, std::uint32_t numa_os_index);

enum class Severity : std::uint8_t { error, warning, notice };
std::string_view to_string(Severity severity);

struct Finding {
  Severity severity = Severity::notice;
  std::string rule;     // "numa-masks-overlap": stable, for scripts
  std::string subject;  // what it is about
  std::string text;     // what is wrong, and what it does
};
// Contradictions and things to look at, worst first. Deterministic.
std::vector<Finding> lint(const Machine& machine);
// What a topology file says that the machine it is meant for contradicts: bus ids that do not exist there, NUMA masks
// that differ or are swapped. Only the contradictions; lint() of the file is its own.
std::vector<Finding> lint_against(const Machine& file, const Machine& machine);

struct Difference {
  double cost = 0;      // the share of a path's capacity that the worse machine may lose, 0 to 1; 0: nothing known
  std::string subject;  // the device, by a name that both machines share
  std::string field;    // "PCIe width"
  std::string a;
  std::string b;
  std::string text;          // one sentence, with the cost
  std::string why;           // its end alone: what follows from the difference; may be empty
  bool b_is_better = false;  // b has the better value, so that it is a that may lose
};
// How b differs from a, dearest first. Identities and counters are not compared.
std::vector<Difference> diff(const Machine& a, const Machine& b);

// GPUs and NICs whose place in the machine no source says, and which output of that machine would.
std::vector<Finding> lint_places(const Machine& machine);

// Cards whose slot is too small for their ports, and nodes and masks that neighbours contradict.
std::vector<Finding> lint_slots(const Machine& machine);

}  // namespace fairway::topology
