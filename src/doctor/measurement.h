#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "predict/flow.h"
#include "predict/measured.h"
#include "topology/output.h"

// Measured rates, read from the output of several programs.
namespace fairway::doctor {

enum class Operation : std::uint8_t { unknown, write, read, send, copy, collective };
std::string_view to_string(Operation operation);

struct Measurement {
  std::string program;  // "ib_write_bw", "nvbandwidth", "all_reduce_perf", "fairway bench"
  std::string where;    // "gpu.txt:17"
  Operation operation = Operation::unknown;
  std::string device;                 // the RDMA device it went through, as the program calls it
  std::optional<predict::Flow> flow;  // if both ends are known on this machine
  bool gpu_memory = false;
  std::optional<bool> relaxed;  // relaxed ordering, if the program prints it
  std::uint64_t bytes = 0;      // of a message; 0: unknown
  std::uint32_t qps = 1;
  std::uint32_t mtu = 0;
  bool both_ways = false;           // bytes went the other way at the same time
  double gbps = 0;                  // Gb/s of payload, one way
  std::uint32_t segment_bytes = 0;  // of a TCP path that swallowed longer ones; 0: it did not
  std::uint32_t max_read = 0;       // outstanding reads of a queue pair; 0: unknown
  std::uint32_t table = 0;          // of a table of pairs its first line, and whom the program numbers so; 0: of none
  std::uint32_t row = 0, column = 0;
  bool from_cpu = false;  // the row's end is a CPU
  bool failed = false;    // the run ended with the error in `problem`
  std::string problem;
};

// As many of one output are read at most.
inline constexpr std::size_t kMaxRows = 100000;

struct MeasuredOptions {
  predict::MeasuredDefaults defaults;  // of a CSV without a NIC
};

// Whether a text is the output of one of those programs, not a CSV or JSON of rows.
bool is_program_output(std::string_view text);
// The rates of one output of a program that measures; of a run that failed rows that say so. invalid_argument: it has
// none.
Result<std::vector<Measurement>> read_rates_of(const topology::Machine& machine, const topology::Output& output);
// Those of all such outputs in a text, or of the CSV that `fairway predict --measured` reads. invalid_argument names
// the file and what is understood.
Result<std::vector<Measurement>> read_measurements(const topology::Machine& machine, std::string_view text,
                                                   const std::string& name, const MeasuredOptions& options);

}  // namespace fairway::doctor
