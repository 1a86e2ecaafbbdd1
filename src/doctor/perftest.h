#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "doctor/measurement.h"

// perftest's command lines from an RDMA device to itself, and its outputs other than rates.
namespace fairway::doctor {

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
