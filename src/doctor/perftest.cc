#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "doctor/cost.h"
#include "doctor/measurement.h"
#include "topology/text.h"

// perftest: how it is run, and what it prints; and what nccl-tests and nvbandwidth print.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

// Enough for a rate, and below a second of a software device that moves 1 Gb/s, where the bytes allow. perftest wants
// five.
std::uint64_t rounds(const PerftestRun& run, bool software) {
  const std::uint64_t bytes = software ? 16U << 20U : 1U << 30U;
  return std::clamp<std::uint64_t>(bytes / std::max<std::uint64_t>(run.bytes, 1), 5, software ? 200 : 5000);
}

}  // namespace

std::string perftest_program(const PerftestRun& run) {
  if (run.inline_max) return "ib_write_lat";
  return run.operation == Operation::read ? "ib_read_bw" : "ib_write_bw";
}

std::optional<std::uint32_t> routable_gid(const topology::RdmaPort& port) {
  const auto of = [&](std::string_view type, std::string_view scope) {
    return std::ranges::find_if(port.gids, [&](const topology::Gid& gid) {
      return gid.type.value_or("") == type && (scope.empty() || gid.scope.value_or("") == scope);
    });
  };
  using Wanted = std::pair<const char*, const char*>;
  for (const auto& [type, scope] : {Wanted{"IB", ""}, Wanted{"RoCE v2", "IPv4"}, Wanted{"RoCE v2", "IPv6"}})
    if (const auto found = of(type, scope); found != port.gids.end()) return found->index;
  return {};
}

Result<std::vector<std::string>> perftest_words(const topology::Machine& machine, std::uint32_t nic,
                                                const PerftestRun& run, int tcp_port) {
  const auto* port = port_of(machine, nic);
  if (port == nullptr) return Status(ErrorCode::not_found, fmt::format("{} has no RDMA port", machine.nics[nic].name));
  const auto& device = machine.rdma[machine.nics[nic].rdma.index];
  std::vector<std::string> words;
  if (!run.cpus.empty()) words = {"taskset", "--cpu-list", run.cpus};
  words.insert(words.end(), {perftest_program(run), "-F"});
  const auto add = [&](const char* flag, auto value) { words.insert(words.end(), {flag, fmt::format("{}", value)}); };
  add("-p", tcp_port);
  add("-d", device.name);
  add("-i", port->number);
  if (const auto gid = run.gid ? run.gid : routable_gid(*port)) add("-x", *gid);
  add("-s", run.bytes);
  add("-n", rounds(run, device.software.value_or(false)));
  if (run.mtu) add("-m", *run.mtu);
  if (run.strict) words.emplace_back("--disable_pcie_relaxed");
  if (run.gpu) words.push_back(fmt::format("--use_cuda={}", *run.gpu));
  if (run.inline_max) {
    add("-I", *run.inline_max);
  } else {
    add("-q", run.qps.value_or(1));
    words.emplace_back("--report_gbits");
  }
  return words;
}

std::string perftest_problem(std::string_view output) {
  if (output.find("unrecognized option") != output.npos && output.find("use_cuda") != output.npos)
    return "this perftest was built without CUDA (configure it with CUDA_H_PATH)";
  // Its complaints, else the last line of what it prints; never headings, frames and warnings.
  constexpr std::array<std::string_view, 8> kComplaints{"ouldn't", "ailed",  "ailure", "rror",
                                                        "nable",   "nvalid", "should", "not "};
  std::string_view last;
  for (const auto line : text::lines(output)) {
    const auto words = text::trim(line);
    if (words.empty() || words.find_first_not_of("-*# ") == words.npos || words.find("WARNING") != words.npos ||
        words.find("Waiting for client") != words.npos)
      continue;
    for (const auto complaint : kComplaints)
      if (words.find(complaint) != words.npos) return text::quote(words, 160);
    last = words;
  }
  return last.empty() ? "ended without a word" : text::quote(last, 160);
}

Result<double> perftest_time(std::string_view output) {
  bool table = false;
  for (const auto line : text::lines(output)) {
    if (line.find("t_typical[usec]") != line.npos) {
      table = true;
      continue;
    }
    const auto words = text::words(line);  // bytes, iterations, least, most, typical
    if (!table || words.size() < 5 || !text::to_unsigned(words[0])) continue;
    if (const auto time = text::to_double(words[4]); time && *time > 0) return *time;
  }
  return Status(ErrorCode::unsupported, perftest_problem(output));
}

bool lacks_memory(std::string_view problem) {
  return problem.find("allocate MR") != problem.npos || problem.find("create mr") != problem.npos ||
         problem.find("create MR") != problem.npos || problem.find("locked memory") != problem.npos;
}

namespace {

// The word behind "Label :" wherever on the line it stands: perftest prints two to a line.
std::optional<std::string_view> labelled(std::string_view line, std::string_view label) {
  const auto at = line.find(label);
  if (at == line.npos) return {};
  const auto colon = line.find(':', at + label.size());
  if (colon == line.npos) return {};
  const auto words = text::words(line.substr(colon + 1));
  return words.empty() ? std::optional<std::string_view>{} : words.front();
}

std::uint32_t number_in(std::string_view word) {
  const auto number = text::leading_unsigned(word);
  return number && *number <= 0xffffffffU ? static_cast<std::uint32_t>(*number) : 0;
}

bool is_rate(double x) {
  return x > 0 && x < 1e7;
}

// "[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression ..." and "ERROR: ..."
bool is_nvbandwidth_error(std::string_view line) {
  return line.find("[CUDA_ERROR_") != line.npos || line.find("CUDA_ERROR:") != line.npos ||
         text::trim(line).starts_with("CUDA_ERROR_") || line.find("NVML_ERROR") != line.npos ||
         text::trim(line).starts_with("ERROR");
}

// What perftest says where it ends before it prints anything of its own.
bool ends_before_its_table(std::string_view line) {
  for (const auto* words :
       {"Unable to ", "ailed to create", "ailed to modify", "ailed to allocate", "Did not detect "}) {
    if (line.find(words) != line.npos) return true;
  }
  return false;
}

// "ib_write_bw -d mlx5_0 ...": all that is known of a run that printed no heading.
void begin_as_commanded(std::string_view content, Measurement& row) {
  row.program = "perftest";
  const auto words = text::words(content.substr(0, content.find('\n')));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto name = words[i].substr(words[i].rfind('/') + 1);
    if (name.starts_with("ib_")) row.program = text::quote(name);
    if (words[i] == "-d" && i + 1 < words.size()) row.device = text::quote(words[i + 1]);
  }
  const auto is = [&row](std::string_view kind) { return row.program.find(kind) != std::string::npos; };
  row.operation = is("_write_")  ? Operation::write
                  : is("_read_") ? Operation::read
                  : is("_send_") ? Operation::send
                                 : Operation::unknown;
}

}  // namespace

bool looks_like_perftest(std::string_view content) {
  return content.find(" BW Test") != content.npos && content.find("#bytes") != content.npos;
}

std::vector<Measurement> read_perftest(const topology::Machine& machine, std::string_view content,
                                       const std::string& name) {
  std::vector<Measurement> rows;
  Measurement now;
  std::optional<std::uint32_t> gpu;
  double unit = 0;  // Gb/s for one of the table's units
  std::size_t number = 0;
  bool gpu_memory = false;
  bool table = false;  // the heading was there
  begin_as_commanded(content, now);
  for (const auto line : text::lines(content)) {
    ++number;
    // Words about GPUs come before the test's heading.
    if (line.find("initializing CUDA") != line.npos || line.find("Using CUDA") != line.npos ||
        line.find("CUDA device") != line.npos)
      gpu_memory = true;
    if (const auto at = line.find("Picking device No. "); at != line.npos) {
      gpu = number_in(line.substr(at + 19));
      gpu_memory = true;
    }
    if (const auto at = line.find("Picking GPU number "); at != line.npos) gpu = number_in(line.substr(at + 19));
    if (line.find(" BW Test") != line.npos) {
      now = {};
      now.operation = line.find("RDMA_Write") != line.npos  ? Operation::write
                      : line.find("RDMA_Read") != line.npos ? Operation::read
                      : line.find("Send") != line.npos      ? Operation::send
                                                            : Operation::unknown;
      now.program = now.operation == Operation::write  ? "ib_write_bw"
                    : now.operation == Operation::read ? "ib_read_bw"
                                                       : "ib_send_bw";
      now.both_ways = line.find("Bidirectional") != line.npos;
      now.gpu_memory = gpu_memory;
      gpu_memory = false;
      unit = 0;
      table = true;
    }
    if (const auto word = labelled(line, "Device  ")) now.device = text::quote(*word);
    if (const auto word = labelled(line, "Number of qps")) now.qps = std::max(1U, number_in(*word));
    if (const auto word = labelled(line, "PCIe relax order")) now.relaxed = *word == "ON";
    if (const auto word = labelled(line, "Mtu  ")) now.mtu = number_in(*word);
    if (const auto word = labelled(line, "Outstand reads")) now.max_read = number_in(*word);
    if (line.find("#bytes") != line.npos) {
      // perftest's MB are of 2^20 bytes; newer versions say MiB.
      unit = line.find("[Gb/sec]") != line.npos ? 1.0 : line.find("B/sec]") != line.npos ? 8 * 1.048576e6 / 1e9 : 0;
    }
    const bool bad = line.find("Completion with error") != line.npos || line.find("Failed status") != line.npos ||
                     line.find("Couldn't") != line.npos || (!table && ends_before_its_table(line));
    if (bad) {
      auto failed = now;
      failed.failed = true;
      failed.problem = text::quote(text::trim(line), 160);
      failed.where = fmt::format("{}:{}", name, number);
      if (rows.empty() || !rows.back().failed) rows.push_back(std::move(failed));
    }
    const auto words = text::words(line);
    if (unit == 0 || words.size() < 4 || rows.size() >= kMaxRows) continue;
    const auto bytes = text::to_unsigned(words[0]);
    const auto iterations = text::to_unsigned(words[1]);
    const auto average = text::to_double(words[3]);
    if (!bytes || !iterations || !average || !is_rate(*average)) continue;
    auto& row = rows.emplace_back(now);
    row.bytes = *bytes;
    row.gbps = *average * unit * (now.both_ways ? 0.5 : 1);  // -b prints the sum of both ways
    row.where = fmt::format("{}:{}", name, number);
    place(machine, gpu, row);
  }
  return rows;
}

bool looks_like_nccl_tests(std::string_view content) {
  return content.find("busbw") != content.npos && content.find("algbw") != content.npos;
}

std::vector<Measurement> read_nccl_tests(std::string_view content, const std::string& name) {
  std::vector<Measurement> rows;
  std::string program = "nccl-tests";
  std::size_t number = 0;
  for (const auto line : text::lines(content)) {
    ++number;
    for (const auto word : text::words(line)) {
      if (word.ends_with("_perf")) program = text::quote(topology::text::trim(word.substr(word.rfind('/') + 1)));
    }
    // "# Out of bounds values : 17 FAILED": the bytes were wrong, whatever the rate.
    const bool wrong = line.starts_with("# Out of bounds values") && line.find("FAILED") != line.npos;
    if (wrong || line.find("Test NCCL failure") != line.npos || line.find("Test CUDA failure") != line.npos) {
      Measurement failed;
      failed.program = program;
      failed.operation = Operation::collective;
      failed.gpu_memory = failed.failed = true;
      failed.problem =
          wrong ? "wrong results: " + text::quote(text::trim(line.substr(1)), 120) : text::quote(text::trim(line), 160);
      failed.where = fmt::format("{}:{}", name, number);
      if (rows.size() < kMaxRows) rows.push_back(std::move(failed));
      continue;
    }
    const auto words = text::words(line);
    if (words.size() < 8 || words[0].starts_with("#") || rows.size() >= kMaxRows) continue;
    // size count type redop root time algbw busbw #wrong, and the same four for in-place.
    const auto bytes = text::to_unsigned(words[0]);
    const auto busbw = text::to_double(words[7]);
    if (!bytes || !text::to_unsigned(words[1]) || !busbw || !is_rate(*busbw)) continue;
    auto& row = rows.emplace_back();
    row.program = program;
    row.operation = Operation::collective;
    row.gpu_memory = true;
    row.bytes = *bytes;
    row.gbps = *busbw * 8;
    row.where = fmt::format("{}:{}", name, number);
  }
  return rows;
}

bool looks_like_nvbandwidth(std::string_view content) {
  return content.find("nvbandwidth") != content.npos || content.find("(row) -> GPU(column)") != content.npos ||
         content.find("(row) <- GPU(column)") != content.npos || content.find("(row) <-> GPU(column)") != content.npos;
}

std::vector<Measurement> read_nvbandwidth(const topology::Machine& machine, std::string_view content,
                                          const std::string& name) {
  std::vector<Measurement> rows;
  bool in_table = false;
  bool from_cpu = false;
  bool reversed = false;
  bool both_ways = false;
  double share = 1;  // of the figure, one way
  bool by_kernel = false;
  std::uint32_t table = 0;
  std::vector<std::uint32_t> columns;
  std::size_t number = 0;
  const auto endpoint = [&](bool cpu, std::uint32_t ordinal, std::uint32_t other) -> std::optional<predict::Endpoint> {
    const auto gpu = topology::find_gpu(machine, cpu ? other : ordinal);
    if (!gpu) return {};
    if (!cpu) return predict::Endpoint{predict::EndpointKind::gpu, gpu.index, {}};
    if (machine.numa_nodes.empty()) return {};
    const auto numa = topology::numa_of(machine, {topology::NodeKind::gpu, gpu.index});
    const auto node = numa ? topology::find_numa(machine, *numa) : topology::Ref<topology::NumaNode>{};
    return predict::Endpoint{predict::EndpointKind::host_memory, node ? node.index : 0, {}};
  };
  for (const auto line : text::lines(content)) {
    ++number;
    const auto words = text::words(line);
    if (is_nvbandwidth_error(line)) {
      Measurement failed;
      failed.program = "nvbandwidth";
      failed.operation = Operation::copy;
      failed.gpu_memory = failed.failed = true;
      failed.problem = text::quote(text::trim(line), 160);
      failed.where = fmt::format("{}:{}", name, number);
      if (rows.empty() || !rows.back().failed) rows.push_back(std::move(failed));
      continue;
    }
    if (line.find("(column)") != line.npos && line.find("bandwidth") != line.npos) {
      // "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"; "<-": the column's memory goes to the row
      in_table = line.find("GB/s") != line.npos;
      table = static_cast<std::uint32_t>(number);
      from_cpu = line.find("CPU(row)") != line.npos;
      // "<->": a copy the other way runs beside it. Totals are the sum of both; other tables name the measured copy
      // alone.
      both_ways = line.find("<->") != line.npos;
      reversed = !both_ways && line.find("<-") != line.npos;
      share = both_ways && line.find("Total") != line.npos ? 0.5 : 1;
      by_kernel = line.find(" SM ") != line.npos;
      columns.clear();
      continue;
    }
    if (!in_table || words.empty()) {
      if (words.empty()) columns.clear();
      continue;
    }
    if (columns.empty()) {
      for (const auto word : words) {
        if (const auto column = text::to_u32(word)) columns.push_back(*column);
      }
      in_table = columns.size() == words.size() && !columns.empty();
      continue;
    }
    const auto row_number = text::to_u32(words[0]);
    if (!row_number || words.size() != columns.size() + 1) {
      in_table = false;
      continue;
    }
    for (std::size_t i = 0; i < columns.size() && rows.size() < kMaxRows; ++i) {
      const auto gbs = text::to_double(words[i + 1]);
      if (!gbs || !is_rate(*gbs)) continue;  // N/A
      Measurement row;
      row.program = "nvbandwidth";
      row.operation = Operation::copy;
      row.gpu_memory = true;
      row.gbps = *gbs * 8 * share;
      row.both_ways = both_ways;
      row.where = fmt::format("{}:{}", name, number);
      row.table = table;
      row.row = *row_number;
      row.column = columns[i];
      row.from_cpu = from_cpu;
      // What two copies at once reach is no rate of one: it is compared with no prediction.
      if (both_ways) {
        rows.push_back(std::move(row));
        continue;
      }
      const auto a = endpoint(from_cpu, *row_number, columns[i]);
      const auto b = endpoint(false, columns[i], columns[i]);
      if (a && b && !(*a == *b)) {
        predict::Flow flow;
        flow.from = reversed ? *b : *a;
        flow.to = reversed ? *a : *b;
        flow.conditions.by_kernel = by_kernel;
        row.flow = flow;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace fairway::doctor
