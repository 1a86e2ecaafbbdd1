#include "doctor/perftest.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "doctor/cost.h"
#include "topology/text.h"

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
    return std::find_if(port.gids.begin(), port.gids.end(), [&](const topology::Gid& gid) {
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

}  // namespace fairway::doctor
