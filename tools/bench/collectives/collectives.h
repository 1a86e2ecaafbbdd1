#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairway/collectives.h"

#include "bench/peers/peers.h"
#include "other_process.h"
#include "sys/network_namespace.h"

// `fairway bench collectives`: groups of processes of this machine, in the form of nccl-tests.
//   collectives  the command: which rows, in which turns
//   options      what can be asked for
//   group        the ranks' processes, as the command sees them
//   rank         a rank's process
//   gpu          a rank with a GPU; nccl: NCCL there
//   bound        what it can take at the least
//   network      a network namespace for each rank, and the rate of its sockets
//   values       what ranks put in and must get out
//   names        names of operations, types, reductions, algorithms
//   rivals       Gloo and MPI, by programs that this one writes and runs
//   report       tables, JSON, CSV, SVG
namespace fairway::tool::bench {

// One thing to measure. `bytes` is the whole buffer, as nccl-tests counts it: the output of all_gather and gather, the
// input of reduce_scatter and scatter, either of all_to_all and all_to_allv, everything else's buffer.
struct CollectiveWork {
  CollectiveKind kind = CollectiveKind::all_reduce;
  bool messages = false;  // in place of a collective: send_recv, a message to the next rank and one from that before
  DataType type = DataType::f32;
  Reduction reduction = Reduction::sum;
  Algorithm algorithm = Algorithm::automatic;
  bool local = false;  // Collective::local_completion
  std::uint64_t bytes = 0;
  int ranks = 2;

  [[nodiscard]] std::string_view operation() const;  // as its users name it
  [[nodiscard]] bool combines() const;
  [[nodiscard]] bool has_root() const;
  // Collective::count, of all_to_allv the elements of the shortest block; at least one.
  [[nodiscard]] std::uint64_t count() const;
  // Of all_to_allv: how often that the block from one rank to another is, from 1 for its own to `ranks` for that before
  // it; and all of a rank's together, as many as it gets. 1 of all else.
  [[nodiscard]] std::uint64_t units(int from, int to) const;
  [[nodiscard]] std::uint64_t units() const;
  // As the buffer is, in whole elements.
  [[nodiscard]] std::uint64_t whole() const;
  [[nodiscard]] double bus_factor() const;  // bus bandwidth / algorithm bandwidth
};

struct CollectiveRow {
  CollectiveWork work;
  std::string tool = "fairway", version, path;
  std::uint64_t rounds = 0;
  std::string algorithm;    // that was taken
  double join_ms = 0;       // that the group took to form, ours; 0: unknown
  double us = 0;            // median over turns of: a loop of rounds, at the slowest rank, divided by the rounds
  bool gpu = false;         // memory of a GPU each
  bool graph = false;       // there in a CUDA graph
  bool namespaces = false;  // each host has a network namespace of its own
  int per_host = 1;         // ranks in each of them
  double bound_us = 0;      // what moving and combining takes at the least; 0: unknown
  std::uint64_t wrong = 0;  // ours, and what runs in our ranks
  Ratio ratio = {};         // a rival's time / ours
  std::string busy;
  [[nodiscard]] bool is_ours() const { return tool == "fairway"; }
  [[nodiscard]] bool is_checked() const { return is_ours() || tool == "nccl"; }
  [[nodiscard]] double algorithm_bandwidth() const {
    return us == 0 ? 0 : static_cast<double>(work.whole()) / us * 1e6;
  }
  [[nodiscard]] double bus_bandwidth() const { return algorithm_bandwidth() * work.bus_factor(); }
};

// ---- values ----
// The memory of one rank for that work: filled, and compared afterwards.
class CollectiveMemory {
 public:
  CollectiveMemory(const CollectiveWork& work, int rank);
  CollectiveMemory(const CollectiveMemory&) = delete;  // its call refers to it
  CollectiveMemory& operator=(const CollectiveMemory&) = delete;
  [[nodiscard]] const Collective& call() const { return call_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return input_.size(); }
  // For a copy of both elsewhere: the call there, once output() is brought back wrong() is of it.
  [[nodiscard]] Collective call_on(void* input, void* output) const;
  [[nodiscard]] std::span<std::byte> input() { return input_; }
  [[nodiscard]] std::span<std::byte> output() { return output_; }
  [[nodiscard]] std::uint64_t wrong() const;  // elements

 private:
  struct OwnBlocks {
    std::vector<std::size_t> counts, offsets;
  };
  [[nodiscard]] OwnBlocks blocks(int rank, bool sent) const;  // of all_to_allv

  const CollectiveWork work_;
  const int rank_;
  std::vector<std::byte> input_, output_;
  OwnBlocks send_, receive_;
  Collective call_;
};
// What is measured.
const std::vector<std::string>& collective_operations();
const std::vector<std::string>& collective_types();
const std::vector<std::string>& collective_reductions();
// The value of that name; invalid_argument names those there are.
Status set_operation(CollectiveWork& work, const std::string& name);
Result<DataType> type_of(const std::string& name);
Result<Reduction> reduction_of(const std::string& name);
Result<Algorithm> algorithm_of(const std::string& name);

// ---- ranks ----
// What a rank is told to do: a line.
struct CollectiveOrder {
  CollectiveWork work;
  std::uint64_t rounds = 0;
  bool by_nccl = false;
};
std::string text_of(const CollectiveOrder& order);
Result<CollectiveOrder> order_of(const std::string& line);
struct Timed {
  double us = 0;  // of a round
  std::uint64_t wrong = 0;
  std::string algorithm;
};
// A network namespace for each rank, or for so many, joined by veth pairs and a bridge, which is in one more: nothing
// of it is seen outside, and it goes with its owner and the ranks. A resource.
class RankNetwork {
 public:
  static std::string why_not();  // empty: it can be tried here
  static Result<std::unique_ptr<RankNetwork>> make(int ranks, int per_host);
  [[nodiscard]] const sys::NetworkNamespace& of(int rank) const {
    return hosts_[static_cast<std::size_t>(rank / per_host_)];
  }
  [[nodiscard]] int per_host() const { return per_host_; }
  [[nodiscard]] std::string address(int rank) const;
  [[nodiscard]] std::string interface() const;  // the same name in each
  [[nodiscard]] std::string files() const;      // "/proc/1/fd/7:/proc/1/fd/8": of each rank, while this lives
  // Bytes per second that two processes move in both directions together over one pair of sockets; 0 with one rank.
  [[nodiscard]] Result<double> socket_rate() const;

 private:
  RankNetwork() = default;
  sys::NetworkNamespace hub_;
  std::vector<sys::NetworkNamespace> hosts_;
  int ranks_ = 0, per_host_ = 1;
};
// The least that the bytes take at that rate; 0: unknown.
double network_bound_us(const CollectiveWork& work, int hosts, double socket_rate, unsigned cores);

// Where ranks run, and what they move.
struct GpuPlace {
  bool graph = false, nccl = false;
  std::string nccl_library;
};
struct RankPlace {
  std::string path;                      // transports of their engines; "gpu" with GPUs
  const RankNetwork* network = nullptr;  // null: here
  std::optional<GpuPlace> gpu = {};      // rank i has GPU i
  double seconds = 0;                    // that one order takes, more or less
};

// So many processes of this program. A resource.
class RankGroup {
 public:
  RankGroup() = default;
  ~RankGroup();  // all end together: an engine waits for others that are of its communicator; who hangs is killed
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  static Result<std::unique_ptr<RankGroup>> start(int ranks, const RankPlace& place);
  // The slowest rank's time. An error names the rank that failed, ended or does not answer; then no more may be asked.
  Result<Timed> run(const CollectiveOrder& order);
  // From the addresses being there to the communicator, at the slowest rank.
  [[nodiscard]] double join_ms() const { return join_ms_; }

 private:
  Result<std::vector<std::string>> hear_all(std::chrono::milliseconds patience);

  std::vector<std::unique_ptr<OtherProcess>> ranks_;
  std::chrono::milliseconds patience_{0};
  double join_ms_ = 0;
  bool failed_ = false;  // a rank did not answer well: others may wait for it for ever
};
struct RankSeat {
  int rank = 0, ranks = 1;
  std::vector<std::string> paths;  // transports; empty: any
  std::string listen;              // its address in a network; empty: loopback
  std::optional<GpuPlace> gpu = {};
};
void be_rank(const RankSeat& seat);  // in such a process; until standard input ends

// ---- what it can take at the least ----
// Rates of this machine, measured when the command starts, bytes per second.
struct MachineRates {
  double copy = 0;
  unsigned cores = 1;
};
MachineRates measure_rates();
// Through memory, if every rank could read every other's: 0 with other paths.
double bound_us(const CollectiveWork& work, const std::string& path, const MachineRates& rates);
// Bytes per second that each of so many GPUs sends to the others together, by the machine's model; 0 where that knows
// nothing of their links. `machine`: a snapshot, else this one. An error: it cannot be read.
Result<double> gpu_rate(int ranks, const std::string& machine);
double gpu_bound_us(const CollectiveWork& work, double rate);

// ---- rivals ----
struct CollectiveRival {
  std::string tool;     // "gloo", "openmpi", "mpich"
  std::string package;  // Debian's, which are needed
  std::string why_not;  // empty: it can be run
};
// `wanted`: gloo, mpi (both kinds of it), openmpi, mpich; nccl is none of these programs: our ranks run it.
std::vector<CollectiveRival> collective_rivals(const std::vector<std::string>& wanted);
[[nodiscard]] bool rival_does(const CollectiveRival& rival, const CollectiveWork& work);
// Microseconds of a round of each, in one run of the rival's program; all have the same kind, type and ranks.
Result<std::vector<double>> run_collective_rival(const CollectiveRival& rival, const std::vector<CollectiveWork>& works,
                                                 double seconds, const RankNetwork* network);

// ---- report ----
std::string collective_head();
std::string collective_line(const CollectiveRow& row);
// How long a group took to form.
struct Joined {
  int ranks = 0;
  std::string path;
  double ms = 0;
};
struct CollectiveEnd {  // what is said below the rows
  std::vector<CollectiveRival> rivals;
  MachineRates rates;
  std::vector<std::pair<int, double>> sockets;  // bytes per second between two namespaces, by number of ranks
  std::vector<std::pair<int, double>> gpus;     // bytes per second that each GPU sends, by number of ranks
  std::vector<Joined> joined;                   // each group
  std::optional<GpuPlace> gpu;
  std::string nccl;  // its version
};
std::string text_of(const CollectiveEnd& end);
std::string collective_json(const std::vector<CollectiveRow>& rows, bool complete);
std::string collective_csv(const std::vector<CollectiveRow>& rows);
std::string collective_svg(const std::vector<CollectiveRow>& rows);

}  // namespace fairway::tool::bench

namespace CLI {
class App;
}
namespace fairway::tool {
class Tool;
void add_bench_collectives(Tool& tool, CLI::App& bench);
}  // namespace fairway::tool
