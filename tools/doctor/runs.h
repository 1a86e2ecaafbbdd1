#pragma once

#include <string>
#include <vector>

#include "fairway/status.h"

#include "doctor/measurement.h"

// The runs of `fairway doctor`: it starts programs that measure, and reads what they print.
namespace fairway::tool {

// The host to measure with, on which `fairway bench --listen` serves; none: this host measures with itself.
struct OtherHost {
  std::string address;  // host:port
  std::string key;      // the job key there; empty on loopback

  explicit operator bool() const { return !address.empty(); }
};

// Runs this program with these arguments; returns what it prints. timed_out if it takes longer; else an error carries
// the program's own line.
Result<std::string> run_self(const std::vector<std::string>& words, int seconds);

// One run over that NIC's RDMA device: perftest from the device to itself, or `fairway bench HOST:PORT` if `with` names
// a host. not_found: a program is not installed; the message names its package.
Result<doctor::Measurement> run_rdma(const topology::Machine& machine, std::uint32_t nic, const OtherHost& with,
                                     const doctor::PerftestRun& run);
// One run from the device to itself that measures a latency, in microseconds; sets `inline_max`.
Result<double> time_rdma(const topology::Machine& machine, std::uint32_t nic, const doctor::PerftestRun& run);

}  // namespace fairway::tool
