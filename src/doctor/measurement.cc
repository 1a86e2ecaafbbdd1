#include "doctor/measurement.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

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
    auto& one = out.emplace_back();
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
    const bool failed = std::ranges::all_of(*read, [](const auto& row) { return row.failed; });
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

// What `fairway bench` writes: JSON with a list of rows, or CSV with the same names in its header.

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string field(const Fields& fields, std::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

// N of "tcp: by sockets..., in segments of N bytes, since the way swallowed longer ones"; 0: the path's description
// does not say that.
std::uint32_t segments_of(std::string_view description) {
  constexpr std::string_view kBefore = "in segments of ", kAfter = " bytes, since the way swallowed longer ones";
  const auto after = description.find(kAfter);
  const auto before = description.substr(0, after).rfind(kBefore);
  if (after == description.npos || before == description.npos) return 0;
  return text::to_u32(description.substr(before + kBefore.size(), after - before - kBefore.size())).value_or(0);
}

// "gpu:0" is that GPU's memory, "host" that of the NUMA node near the GPU at the other end.
std::optional<predict::Endpoint> memory_of(const topology::Machine& machine, const std::string& name,
                                           const std::string& other) {
  const auto gpu_named = [&](const std::string& word) -> topology::Ref<topology::Gpu> {
    const auto number = word.starts_with("gpu:") ? text::to_u32(std::string_view(word).substr(4)) : std::nullopt;
    return number ? topology::find_gpu(machine, *number) : topology::Ref<topology::Gpu>{};
  };
  if (const auto gpu = gpu_named(name)) return predict::Endpoint{predict::EndpointKind::gpu, gpu.index, {}};
  const auto far = gpu_named(other);
  if (!name.starts_with("host") || !far || machine.numa_nodes.empty()) return {};
  const auto numa = topology::numa_of(machine, {topology::NodeKind::gpu, far.index});
  const auto node = numa ? topology::find_numa(machine, *numa) : topology::Ref<topology::NumaNode>{};
  return predict::Endpoint{predict::EndpointKind::host_memory, node ? node.index : 0, {}};
}

// What CPUs copy within host memory: the bare memcpy or socket loop stands beside the engine's time.
std::optional<Measurement> cpu_copy_of(const topology::Machine& machine, const Fields& fields, Measurement row,
                                       double roof_us) {
  constexpr std::uint64_t kLarge = 1U << 20U;  // smaller ones stay in caches
  const auto roof = field(fields, "roof");
  const bool by_sockets = roof == "socket loop";
  if ((!by_sockets && roof != "memcpy") || !(roof_us > 0) || row.bytes < kLarge) return {};
  // Memory is where its process ran: known where there is one node.
  if (machine.numa_nodes.size() != 1) return {};
  predict::Flow flow;
  flow.from = flow.to = predict::Endpoint{predict::EndpointKind::host_memory, 0, {}};
  flow.conditions.mover = by_sockets ? predict::Mover::sockets : predict::Mover::cpu;
  row.program = roof + ", by fairway bench";
  row.gbps = static_cast<double>(row.bytes) * 8e-3 / roof_us;
  row.flow = flow;
  return row;
}

std::optional<Measurement> row_of(const topology::Machine& machine, const Fields& fields, const std::string& where) {
  const auto rate = text::to_double(field(fields, "bytes_per_second"));
  if (!rate || *rate <= 0) return {};
  Measurement row;
  row.program = "fairway bench";
  row.where = where;
  row.gbps = *rate * 8e-9;
  row.bytes = text::to_unsigned(field(fields, "bytes")).value_or(0);
  const auto operation = field(fields, "operation");
  row.operation = operation.starts_with("write")  ? Operation::write
                  : operation.starts_with("read") ? Operation::read
                  : operation.starts_with("send") ? Operation::send
                                                  : Operation::unknown;
  const auto from = field(fields, "from");
  const auto to = field(fields, "to");
  const auto path = field(fields, "path");
  row.gpu_memory = from.starts_with("gpu") || field(fields, "memory").find("device") != std::string::npos;
  if (path == "verbs") return row;  // the output does not name the device
  row.device = path;
  row.operation = Operation::copy;
  // The copy engine's own time stands beside the engine's: that is what the machine can, and what the model predicts.
  const auto roof_us = text::to_double(field(fields, "roof_p50_us"));
  if (auto copied = cpu_copy_of(machine, fields, row, roof_us.value_or(0))) return copied;
  if (field(fields, "roof") != "copy engine" || !roof_us || *roof_us <= 0 || row.bytes == 0) return row;
  const auto a = memory_of(machine, from, to);
  const auto b = memory_of(machine, to, from);
  if (!a || !b || *a == *b) return row;
  row.program = "copy engine, by fairway bench";
  row.gbps = static_cast<double>(row.bytes) * 8e-3 / *roof_us;
  predict::Flow flow;
  flow.from = *a;
  flow.to = *b;
  row.flow = flow;
  return row;
}

}  // namespace

bool looks_like_bench(std::string_view content) {
  const auto head = content.substr(0, 4096);
  return head.find("bytes_per_second") != head.npos;
}

Result<std::vector<Measurement>> read_bench(const topology::Machine& machine, std::string_view content,
                                            const std::string& name) {
  std::vector<Measurement> rows;
  const auto start = text::trim(content);
  if (!start.starts_with("{") && !start.starts_with("[")) {
    std::vector<std::string> header;
    std::size_t number = 0;
    for (const auto line : text::lines(content)) {
      ++number;
      if (text::trim(line).empty()) continue;
      const auto cells = text::split(line, ',');
      if (header.empty()) {
        for (const auto cell : cells) header.emplace_back(text::trim(cell));
        continue;
      }
      // A quoted cell with a comma is only ever a remark behind the figures.
      Fields fields;
      for (std::size_t i = 0; i < cells.size() && i < header.size(); ++i)
        fields.emplace_back(header[i], std::string(text::trim(cells[i])));
      if (auto row = row_of(machine, fields, fmt::format("{}:{}", name, number))) {
        row->segment_bytes = segments_of(line);
        rows.push_back(std::move(*row));
      }
    }
    return rows;
  }
#ifdef FAIRWAY_HAVE_JSON
  const auto json = nlohmann::json::parse(content, nullptr, false);
  if (json.is_discarded()) return Status(ErrorCode::invalid_argument, fmt::format("{}: is no JSON", name));
  const auto* list = &json;
  for (const char* key : {"rows", "results"}) {
    if (json.is_object() && json.contains(key)) list = &json[key];
  }
  if (!list->is_array()) return Status(ErrorCode::invalid_argument, fmt::format("{}: holds no list of rows", name));
  std::size_t number = 0;
  for (const auto& one : *list) {
    ++number;
    if (!one.is_object()) continue;
    Fields fields;
    for (const auto& [key, value] : one.items())
      fields.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
    if (auto row = row_of(machine, fields, fmt::format("{} row {}", name, number))) {
      row->segment_bytes = segments_of(field(fields, "path_description"));
      rows.push_back(std::move(*row));
    }
  }
  return rows;
#else
  (void)machine;
  return Status(ErrorCode::unsupported, fmt::format("{}: this build reads no JSON: write CSV", name));
#endif
}

}  // namespace fairway::doctor
