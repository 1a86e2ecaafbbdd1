#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/measurement.h"

// The output formats of programs that measure.
namespace fairway::doctor {

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

}  // namespace fairway::doctor
