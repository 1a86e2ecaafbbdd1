#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "predict/calibrate.h"
#include "predict/flow.h"
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

// ---- the output formats of programs that measure ----

bool looks_like_perftest(std::string_view text);
bool looks_like_nccl_tests(std::string_view text);
bool looks_like_nvbandwidth(std::string_view text);
bool looks_like_bench(std::string_view text);

std::vector<Measurement> read_perftest(const topology::Machine& machine, std::string_view text,
                                       const std::string& name);
std::vector<Measurement> read_nccl_tests(std::string_view text, const std::string& name);
std::vector<Measurement> read_nvbandwidth(const topology::Machine& machine, std::string_view text,
                                          const std::string& name);
Result<std::vector<Measurement>> read_bench(const topology::Machine& machine, std::string_view text,
                                            const std::string& name);

// CUDA's p2pBandwidthLatencyTest, one way each; by PCI bus, since CUDA may number GPUs otherwise.
std::vector<Measurement> read_p2p_test(const topology::Machine& machine, std::string_view text,
                                       const std::string& name);
// Between hosts or processes that the output does not name.
std::vector<Measurement> read_osu(std::string_view text, const std::string& name);
std::vector<Measurement> read_imb(std::string_view text, const std::string& name);
std::vector<Measurement> read_ucx_perftest(std::string_view text, const std::string& name);
std::vector<Measurement> read_iperf(std::string_view text, const std::string& name);
std::vector<Measurement> read_nixlbench(std::string_view text, const std::string& name);

// Sets the row's flow by its device, and by the GPU's number if it moved GPU memory.
void place(const topology::Machine& machine, std::optional<std::uint32_t> gpu_ordinal, Measurement& row);

// ---- perftest's command lines from an RDMA device to itself, and its outputs other than rates ----

inline constexpr const char* kPerftestPackage = "perftest";  // Debian's

struct PerftestRun {
  Operation operation = Operation::write;  // or read
  std::uint64_t bytes = 65536;
  std::optional<std::uint32_t> qps{};  // else one
  std::optional<std::uint32_t> mtu{};  // else the port's
  std::optional<std::uint32_t> gid{};  // else a routable one, if the port has one
  bool strict = false;                 // without PCIe's relaxed ordering
  std::optional<std::uint32_t> gpu{};  // that GPU's memory, by ordinal; else host memory
  std::string cpus{};                  // run on these CPUs ("0-7"), with host memory of their node; else anywhere
  std::optional<std::uint32_t> inline_max{};  // measure write latency, with up to so many bytes inline
};

// "ib_write_bw", "ib_read_bw", "ib_write_lat".
std::string perftest_program(const PerftestRun& run);
// The server's command line; the client's has the address behind it. not_found: the NIC has no RDMA port.
Result<std::vector<std::string>> perftest_words(const topology::Machine& machine, std::uint32_t nic,
                                                const PerftestRun& run, int tcp_port);
// The index of a GID that other hosts can reach: an InfiniBand one, or RoCE v2, IPv4 before IPv6.
std::optional<std::uint32_t> routable_gid(const topology::RdmaPort& port);
// The line of a failed run's output that says why.
std::string perftest_problem(std::string_view output);
// The typical time of `ib_write_lat`, in microseconds.
Result<double> perftest_time(std::string_view output);
// Whether an error says that memory could not be registered, for example beyond the limit of locked memory.
bool lacks_memory(std::string_view problem);

}  // namespace fairway::doctor
