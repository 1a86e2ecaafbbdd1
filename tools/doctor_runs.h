#pragma once

#include <string>
#include <vector>

#include "fairway/status.h"

#include "doctor/perftest.h"

// The runs of `fairway doctor`: programs that measure, read by what they print.
namespace fairway::tool {

// This program once more with these words, and what it prints. timed_out where it took longer; a failure carries its
// own line.
Result<std::string> run_self(const std::vector<std::string>& words, int seconds);

// One run over that NIC's RDMA device: perftest's over the device with itself, or `fairway bench HOST:PORT` where
// `with` names that. not_found names the program that is not installed, and its package.
Result<doctor::Measurement> run_rdma(const topology::Machine& machine, std::uint32_t nic, const std::string& with,
                                     const doctor::PerftestRun& run);
// One over the device with itself whose figure is a time: `inline_max` is set. Microseconds.
Result<double> time_rdma(const topology::Machine& machine, std::uint32_t nic, const doctor::PerftestRun& run);

}  // namespace fairway::tool
