#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fairway/options.h"
#include "fairway/status.h"

// `fairway bench load`: what Fairway costs, and how fast it reacts, when machines are busy, idle or lose processes.
//   load  the command and what it prints
//   time  submitting, and latency beside busy threads
//   life  idle engines, and peers that are killed, frozen and started again
namespace fairway::tool::bench {

// One result and its target.
struct LoadRow {
  std::string what;  // "submit", "busy", "idle", "killed", "frozen", "restarted", "neighbour"
  std::string path;  // transport
  std::string how;   // "4 KiB, 2 busy threads"
  std::string unit;
  double p50 = 0, p99 = 0;  // with few samples p99 is the largest
  double beside_p99 = 0;    // of the raw loop in turns with it; 0: there is none
  double target = 0;        // what p99 (idle: p50) should stay under; 0: none
  [[nodiscard]] bool reached() const { return target == 0 || (p99 == 0 ? p50 : p99) <= target; }
};

struct LoadPlan {
  std::vector<std::string> paths;              // transports
  std::string from = "shared", to = "shared";  // memory here and of the other process (tools/bench/memory.h)
  double seconds = 2;                          // of each measurement
  std::function<Status(const std::string& what)> progress;  // before each measurement; cancelled on Ctrl-C
  RdmaOptions rdma;
};

Status measure_submit(const LoadPlan& plan, std::vector<LoadRow>& rows);
Status measure_busy(const LoadPlan& plan, std::vector<LoadRow>& rows);  // forks: before any other
Status measure_idle(const LoadPlan& plan, std::vector<LoadRow>& rows);
Status measure_life(const LoadPlan& plan, std::vector<LoadRow>& rows);

// The other process of all of these: so many engines, passive, each with memory published as kLoadMemory. Says their
// addresses in one line and stays until standard input ends.
inline constexpr const char* kLoadMemory = "fairway bench load";
struct LoadServe {
  std::string path;
  unsigned engines = 1;
  std::uint64_t bytes = 4096;  // of each one's memory
  std::string listen;          // with one engine; empty: anywhere
  std::string memory = "shared";
  RdmaOptions rdma;
};
// What serves the plan over that path.
LoadServe serve_of(const LoadPlan& plan, const std::string& path, unsigned engines, std::uint64_t bytes,
                   const std::string& listen = {});
Status serve_load(const LoadServe& serve, const std::function<void(const std::string&)>& say);
std::vector<std::string> words_of(const LoadServe& serve);  // that start it

std::string load_head();
std::string load_row(const LoadRow& row);
std::string load_json(const std::vector<LoadRow>& rows, bool complete);

}  // namespace fairway::tool::bench

namespace CLI {
class App;
}
namespace fairway::tool {
class Tool;
void add_bench_load(Tool& tool, CLI::App& bench);  // `fairway bench load`
}  // namespace fairway::tool
