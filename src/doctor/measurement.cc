#include "doctor/measurement.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "doctor/formats.h"
#include "topology/text.h"

namespace fairway::doctor {

namespace text = topology::text;

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::write: return "write";
    case Operation::read: return "read";
    case Operation::send: return "send";
    case Operation::copy: return "copy";
    case Operation::collective: return "collective";
    case Operation::unknown: break;
  }
  return "unknown";
}

namespace {

// The CSV of `fairway predict --measured`.
Result<std::vector<Measurement>> read_rows(const topology::Machine& machine, std::string_view content,
                                           const std::string& name, const MeasuredOptions& options) {
  const auto rows = predict::read_measured(machine, content, name, options.defaults);
  if (!rows) return rows.status();
  std::vector<Measurement> out;
  for (const auto& row : *rows) {
    Measurement one;
    one.program = "rows";
    one.where = fmt::format("{}:{}", name, row.line);
    one.flow = row.flow;
    one.qps = row.flow.conditions.qps;
    one.mtu = row.flow.conditions.mtu.value_or(0);
    if (row.flow.conditions.ordering != predict::Ordering::unknown)
      one.relaxed = row.flow.conditions.ordering == predict::Ordering::relaxed;
    one.gbps = row.gbs * 8;
    for (const auto& end : {row.flow.from, row.flow.to}) {
      if (end.kind == predict::EndpointKind::gpu) one.gpu_memory = true;
      if (end.kind == predict::EndpointKind::nic) one.device = machine.nics[end.index].name;
    }
    if (row.flow.loop) one.device = machine.nics[*row.flow.loop].name;
    one.operation = one.device.empty() ? Operation::copy : Operation::write;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

// Memory of a GPU or of the host to a NIC, if the machine has both.
void place(const topology::Machine& machine, std::optional<std::uint32_t> gpu_ordinal, Measurement& row) {
  std::optional<std::uint32_t> nic;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    if (machine.nics[i].name == row.device) nic = i;
  }
  if (!nic) return;
  predict::Flow flow;
  flow.to = {predict::EndpointKind::nic, *nic, {}};
  flow.conditions.qps = row.qps;
  if (row.mtu != 0) flow.conditions.mtu = row.mtu;
  if (row.relaxed) flow.conditions.ordering = *row.relaxed ? predict::Ordering::relaxed : predict::Ordering::strict;
  if (row.gpu_memory) {
    const auto gpu = gpu_ordinal ? topology::find_gpu(machine, *gpu_ordinal) : topology::Ref<topology::Gpu>{};
    if (!gpu) return;
    flow.from = {predict::EndpointKind::gpu, gpu.index, {}};
  } else {
    if (machine.numa_nodes.empty()) return;
    const auto numa = topology::numa_of(machine, {topology::NodeKind::nic, *nic});
    const auto node = numa ? topology::find_numa(machine, *numa) : topology::Ref<topology::NumaNode>{};
    flow.from = {predict::EndpointKind::host_memory, node ? node.index : 0, {}};
  }
  // Reads move data from the NIC.
  if (row.operation == Operation::read) std::swap(flow.from, flow.to);
  row.flow = flow;
}

bool is_program_output(std::string_view text) {
  return looks_like_perftest(text) || looks_like_nccl_tests(text) || looks_like_nvbandwidth(text) ||
         looks_like_bench(text);
}

namespace {

using topology::OutputKind;

// One output of a program that measures.
Result<std::vector<Measurement>> read_output_rows(const topology::Machine& machine, const topology::Output& output) {
  const auto content = output.command + "\n" + output.text;
  const auto& name = output.file;
  switch (output.kind) {
    case OutputKind::perftest: return read_perftest(machine, content, name);
    case OutputKind::nccl_tests: return read_nccl_tests(content, name);
    case OutputKind::nvbandwidth: return read_nvbandwidth(machine, content, name);
    case OutputKind::bench: return read_bench(machine, output.text, name);
    case OutputKind::p2p_test: return read_p2p_test(machine, content, name);
    case OutputKind::osu: return read_osu(content, name);
    case OutputKind::imb: return read_imb(content, name);
    case OutputKind::ucx_perftest: return read_ucx_perftest(content, name);
    case OutputKind::iperf: return read_iperf(content, name);
    case OutputKind::nixlbench: return read_nixlbench(content, name);
    default: break;
  }
  return std::vector<Measurement>{};
}

}  // namespace

Result<std::vector<Measurement>> read_rates_of(const topology::Machine& machine, const topology::Output& output) {
  auto rows = read_output_rows(machine, output);
  if (!rows) return rows;
  // The readers count lines from the command on, which is the first.
  for (auto& row : *rows) {
    const auto colon = row.where.rfind(':');
    const auto line = colon == std::string::npos || output.kind == OutputKind::bench
                          ? std::nullopt
                          : text::to_u32(std::string_view(row.where).substr(colon + 1));
    if (line && *line > 1) row.where = output.at(*line - 1);
  }
  if (rows->empty())
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{}: {} without a measured rate", output.file, to_string(output.kind)));
  return rows;
}

Result<std::vector<Measurement>> read_measurements(const topology::Machine& machine, std::string_view content,
                                                   const std::string& name, const MeasuredOptions& options) {
  std::vector<Measurement> rows;
  bool any = false;
  for (const auto& output : topology::cut_outputs(content, name)) {
    if (!topology::is_measurement(output.kind) || output.kind == OutputKind::rows) continue;
    any = true;
    auto read = read_rates_of(machine, output);
    if (!read) return read.status();
    const bool failed = std::all_of(read->begin(), read->end(), [](const auto& row) { return row.failed; });
    // What perftest's errors mean the rules know.
    if (failed && output.kind != topology::OutputKind::perftest)
      return Status(ErrorCode::invalid_argument, fmt::format("{}: the run of {} failed: {}", read->front().where,
                                                             to_string(output.kind), read->front().problem));
    rows.insert(rows.end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
  }
  if (any) return rows;
  auto read = read_rows(machine, content, name, options);
  if (read) return read;
  return read.status().with_context(
      name +
      " is neither output of perftest, nccl-tests, nvbandwidth, p2pBandwidthLatencyTest, OSU's or Intel's MPI "
      "benchmarks, ucx_perftest, iperf3, nixlbench or `fairway bench` nor a CSV of measured rows");
}

}  // namespace fairway::doctor
