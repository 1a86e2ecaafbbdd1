#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "doctor/measurement.h"
#include "topology/text.h"

// Measurements as people paste them: CUDA's peer test, OSU's and Intel's MPI benchmarks, ucx_perftest, iperf3,
// nixlbench.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

bool is_pasted_rate(double gbps) {
  return gbps > 0 && gbps < 1e7;
}

// "pciBusID: 81, pciDeviceID: 0, pciDomainID:0", in hexadecimal: CUDA's numbers need not be nvidia-smi's.
std::optional<std::uint32_t> gpu_of_line(const topology::Machine& machine, std::string_view line) {
  const auto field = [line](std::string_view name) -> std::optional<std::uint64_t> {
    const auto at = line.find(name);
    if (at == line.npos) return {};
    auto value = text::trim(line.substr(at + name.size()));
    value = value.substr(0, value.find(','));
    return text::to_hex(text::trim(value));
  };
  const auto bus = field("pciBusID:");
  const auto device = field("pciDeviceID:");
  const auto domain = field("pciDomainID:");
  for (std::uint32_t i = 0; bus && device && i < machine.gpus.size(); ++i) {
    const auto pci = machine.gpus[i].pci;
    if (!pci) continue;
    const auto& id = machine.pci[pci.index].bus_id;
    if (id.bus == *bus && id.device == *device && id.domain == domain.value_or(0)) return i;
  }
  return {};
}

Measurement row_at(std::string program, Operation operation, double gbps, const std::string& name, std::size_t number) {
  Measurement row;
  row.program = std::move(program);
  row.operation = operation;
  row.gbps = gbps;
  row.where = fmt::format("{}:{}", name, number);
  return row;
}

}  // namespace

std::vector<Measurement> read_p2p_test(const topology::Machine& machine, std::string_view content,
                                       const std::string& name) {
  std::vector<Measurement> rows;
  std::map<std::uint32_t, std::uint32_t> gpus;  // CUDA's number, the machine's index
  std::vector<std::uint32_t> columns;
  bool rates = false;
  bool direct = false;
  std::uint32_t table = 0;
  std::size_t number = 0;
  const auto index_of = [&](std::uint32_t ordinal) -> std::optional<std::uint32_t> {
    if (const auto known = gpus.find(ordinal); known != gpus.end()) return known->second;
    const auto gpu = topology::find_gpu(machine, ordinal);
    return gpu ? std::optional(gpu.index) : std::nullopt;
  };
  for (const auto line : text::lines(content)) {
    ++number;
    const auto words = text::words(line);
    if (line.starts_with("Device: ")) {
      const auto ordinal = text::leading_unsigned(line.substr(8));
      const auto gpu = gpu_of_line(machine, line);
      if (ordinal && *ordinal < 1024 && gpu) gpus[static_cast<std::uint32_t>(*ordinal)] = *gpu;
    } else if (line.find("Matrix") != line.npos) {
      // Of both ways together nobody says what one way has.
      rates = line.find("Unidirectional") != line.npos && line.find("GB/s") != line.npos;
      direct = line.find("P2P=Enabled") != line.npos;
      table = direct ? static_cast<std::uint32_t>(number) : 0;
      columns.clear();
    } else if (!words.empty() && words[0].starts_with("D\\D")) {
      columns.clear();
      for (std::size_t i = 1; i < words.size(); ++i) columns.push_back(text::to_u32(words[i]).value_or(1024));
    } else if (rates && words.size() == columns.size() + 1 && text::to_u32(words[0])) {
      const auto from = *text::to_u32(words[0]);
      for (std::size_t i = 0; i < columns.size() && rows.size() < kMaxRows; ++i) {
        const auto gbs = text::to_double(words[i + 1]);
        if (!gbs || columns[i] == from || !is_pasted_rate(*gbs * 8)) continue;
        auto& row = rows.emplace_back(row_at("p2pBandwidthLatencyTest", Operation::copy, *gbs * 8, name, number));
        row.gpu_memory = true;
        row.table = table;
        row.row = from;
        row.column = columns[i];
        const auto a = index_of(from);
        const auto b = index_of(columns[i]);
        if (direct && a && b) {
          predict::Flow flow;
          flow.from = {predict::EndpointKind::gpu, *a, {}};
          flow.to = {predict::EndpointKind::gpu, *b, {}};
          row.flow = flow;
        }
      }
    }
  }
  return rows;
}

namespace {

// "[gpu01:1234] *** An error occurred in MPI_Send" and what follows it; MPICH's "Fatal error in PMPI_Send: ...".
bool add_mpi_error(std::string_view line, Measurement row, std::vector<Measurement>& rows) {
  const auto has = [line](std::string_view words) { return line.find(words) != line.npos; };
  const bool named = has("MPI_ERR_");
  if (!named && !has("An error occurred in MPI_") && !has("Fatal error in ") && !has("exited on signal ") &&
      !has("MPI_ABORT was invoked"))
    return false;
  const auto said = text::trim(line.substr(has("*** ") ? line.find("*** ") + 4 : 0));
  // Of one failure the first line says where, and the one that names the error why.
  if (!rows.empty() && rows.back().failed) {
    auto& problem = rows.back().problem;
    if (named && problem.find("MPI_ERR_") == std::string::npos) problem += ": " + text::quote(said, 120);
    return true;
  }
  row.failed = true;
  row.problem = text::quote(said, 160);
  rows.push_back(std::move(row));
  return true;
}

}  // namespace

// "# OSU MPI-CUDA Bandwidth Test v7.0", "# Size  Bandwidth (MB/s)", rows; MB of 10^6.
std::vector<Measurement> read_osu(std::string_view content, const std::string& name) {
  std::vector<Measurement> rows;
  std::string program = "OSU";
  bool rates = false;
  bool both = false;
  bool gpu = false;
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    if (line.starts_with("#")) {
      if (line.find("OSU ") != line.npos) {
        both = line.find("Bi-Directional") != line.npos;
        program = both                                  ? "osu_bibw"
                  : line.find("Bandwidth") != line.npos ? "osu_bw"
                  : line.find("MPI") != line.npos
                      ? "OSU " + text::quote(text::words(line).size() > 3 ? text::words(line)[3] : "benchmark")
                      : "OSU";
        gpu = line.find("CUDA") != line.npos || line.find("ROCM") != line.npos;
        rates = false;
      }
      rates = rates || line.find("MB/s") != line.npos;
      continue;
    }
    if (add_mpi_error(line, row_at(program, Operation::send, 0, name, number), rows)) continue;
    const auto words = text::words(line);
    const auto bytes = words.size() < 2 ? std::nullopt : text::to_unsigned(words[0]);
    const auto rate = words.size() < 2 ? std::nullopt : text::to_double(words[1]);
    if (!rates || !bytes || !rate || !is_pasted_rate(*rate * 8e-3) || rows.size() >= kMaxRows) continue;
    auto& row = rows.emplace_back(
        row_at(both ? "osu_bibw" : "osu_bw", Operation::send, *rate * 8e-3 / (both ? 2 : 1), name, number));
    row.bytes = *bytes;
    row.gpu_memory = gpu;
  }
  return rows;
}

// "       #bytes #repetitions      t[usec]   Mbytes/sec"; Mbytes of 10^6 since 2018.
std::vector<Measurement> read_imb(std::string_view content, const std::string& name) {
  std::vector<Measurement> rows;
  std::string program = "IMB";
  std::size_t column = 0;
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    if (add_mpi_error(line, row_at(program, Operation::send, 0, name, number), rows)) continue;
    const auto words = text::words(line);
    if (line.starts_with("# Benchmarking ") && words.size() > 2) {
      program = "IMB " + text::quote(words[2]);
      column = 0;
    } else if (!words.empty() && words[0] == "#bytes") {
      const auto at = std::ranges::find(words, "Mbytes/sec");
      column = at == words.end() ? 0 : static_cast<std::size_t>(at - words.begin());
    } else if (column > 0 && words.size() > column && rows.size() < kMaxRows) {
      const auto bytes = text::to_unsigned(words[0]);
      const auto rate = text::to_double(words[column]);
      if (!bytes || !rate || !is_pasted_rate(*rate * 8e-3)) continue;
      auto& row = rows.emplace_back(row_at(program, Operation::send, *rate * 8e-3, name, number));
      row.bytes = *bytes;
    }
  }
  return rows;
}

// "Final:   5000   0.514   169.871   169.922   5886.87   5885.11   5887   5885"; MB of 2^20.
std::vector<Measurement> read_ucx_perftest(std::string_view content, const std::string& name) {
  std::vector<Measurement> rows;
  std::uint64_t bytes = 0;
  bool gpu = false;
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    if (line.find(" UCX  ERROR ") != line.npos && (rows.empty() || !rows.back().failed)) {
      auto& row = rows.emplace_back(row_at("ucx_perftest", Operation::unknown, 0, name, number));
      row.failed = true;
      row.problem = text::quote(line.substr(line.find(" UCX  ERROR ") + 1), 160);
    }
    if (const auto at = line.find("Message size:"); at != line.npos)
      bytes = text::leading_unsigned(line.substr(at + 13)).value_or(0);
    if (line.find("memory:") != line.npos && (line.find(" cuda") != line.npos || line.find(" rocm") != line.npos))
      gpu = true;
    const auto words = text::words(line);
    if (words.size() < 9 || words[0] != "Final:" || rows.size() >= kMaxRows) continue;
    const auto rate = text::to_double(words[6]);
    if (!rate || !is_pasted_rate(*rate * 8 * 1.048576e-3)) continue;
    auto& row = rows.emplace_back(row_at("ucx_perftest", Operation::unknown, *rate * 8 * 1.048576e-3, name, number));
    row.bytes = bytes;
    row.gpu_memory = gpu;
  }
  return rows;
}

// "[SUM]   0.00-10.00  sec  45.5 GBytes  39.1 Gbits/sec                  receiver"
std::vector<Measurement> read_iperf(std::string_view content, const std::string& name) {
  std::vector<Measurement> rows;
  std::size_t number = 0;
  double sum = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    if (line.find("iperf3: error") != line.npos) {
      auto& row = rows.emplace_back(row_at("iperf3", Operation::send, 0, name, number));
      row.failed = true;
      row.problem = text::quote(text::trim(line), 160);
    }
    if (!line.ends_with("receiver") && !text::trim(line).ends_with("receiver")) continue;
    const auto words = text::words(line);
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (!words[i].ends_with("bits/sec")) continue;
      const auto rate = text::to_double(words[i - 1]);
      const double scale = words[i].starts_with('G') ? 1 : words[i].starts_with('M') ? 1e-3 : 1e-6;
      if (rate && line.starts_with("[SUM]")) sum = -1;
      if (!rate || !is_pasted_rate(*rate * scale)) continue;
      if (line.starts_with("[SUM]") || sum >= 0) {
        if (line.starts_with("[SUM]")) rows.clear();  // its parts
        rows.push_back(row_at("iperf3", Operation::send, *rate * scale, name, number));
      }
    }
  }
  return rows;
}

// "Block Size (B)   Batch Size   B/W (GB/Sec)   Avg Lat. (us) ..."; GB of 10^9.
std::vector<Measurement> read_nixlbench(std::string_view content, const std::string& name) {
  std::vector<Measurement> rows;
  bool table = false;
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    if (line.find("Block Size (B)") != line.npos) {
      table = line.find("GB/Sec") != line.npos || line.find("GB/sec") != line.npos;
      continue;
    }
    const auto words = text::words(line);
    if (!table || words.size() < 3 || rows.size() >= kMaxRows) continue;
    const auto bytes = text::to_unsigned(words[0]);
    const auto rate = text::to_double(words[2]);
    if (!bytes || !rate || !is_pasted_rate(*rate * 8)) continue;
    auto& row = rows.emplace_back(row_at("nixlbench", Operation::unknown, *rate * 8, name, number));
    row.bytes = *bytes;
  }
  return rows;
}

}  // namespace fairway::doctor
