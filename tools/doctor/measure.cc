// fairway doctor --measure: short runs, just long enough to decide.
#include <fmt/format.h>

#include "doctor.h"
#include "doctor/cost.h"
#include "runs.h"

namespace fairway::tool {
namespace {

using doctor::Measurement;

void measure_gpus(const doctor::Case& found, std::vector<Measurement>& rows, std::vector<std::string>& left_out) {
  const auto run = [&](const std::string& from, const std::string& to) {
    const std::vector<std::string> words{"bench", "--local",   from,  "--remote", to, "--operation", "write", "--size",
                                         "16M",   "--seconds", "0.1", "--csv",    "-"};
    const auto text = run_self(words, 60);
    if (!text) return left_out.push_back(fmt::format("{} to {}: {}", from, to, text.status().message()));
    auto read = doctor::read_measurements(found.machine, *text,
                                          fmt::format("fairway bench --local {} --remote {}", from, to), {});
    if (!read) return left_out.push_back(fmt::format("{} to {}: {}", from, to, read.status().message()));
    rows.insert(rows.end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
  };
  for (std::uint32_t i = 0; i < found.machine.gpus.size(); ++i) {
    const auto name = fmt::format("gpu:{}", found.machine.gpus[i].ordinal);
    run(name, "host");
    if (i + 1 < found.machine.gpus.size()) run(name, fmt::format("gpu:{}", found.machine.gpus[i + 1].ordinal));
  }
}

// One core's copy, and a connection of sockets within this host, of processes that the kernel places. Where NUMA nodes
// differ the rows do not say whose memory it was.
void measure_memory(const doctor::Case& found, std::vector<Measurement>& rows, std::vector<std::string>& left_out) {
  if (found.machine.numa_nodes.size() > 1)
    return left_out.push_back("memory: with several NUMA nodes a run does not say on which one it was");
  const std::vector<std::string> words{"bench", "--via",     "shm,tcp", "--operation", "write", "--size",
                                       "16M",   "--seconds", "0.1",     "--csv",       "-"};
  const auto text = run_self(words, 60);
  if (!text) return left_out.push_back(fmt::format("memory: {}", text.status().message()));
  auto read = doctor::read_measurements(found.machine, *text, "fairway bench --via shm,tcp --size 16M", {});
  if (!read) return left_out.push_back(fmt::format("memory: {}", read.status().message()));
  rows.insert(rows.end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
}

// Over the sockets between both hosts: long segments may vanish on the way.
void measure_way(const doctor::Case& found, const OtherHost& with, std::vector<Measurement>& rows,
                 std::vector<std::string>& left_out) {
  std::vector<std::string> words{"bench",  with.address, "--via",     "tcp", "--operation", "write",
                                 "--size", "1M",         "--seconds", "0.1", "--csv",       "-"};
  const auto line = fmt::format("fairway {}", fmt::join(words, " "));  // a report is passed on: without the key
  if (!with.key.empty()) words.insert(words.end(), {"--key", with.key});
  const auto text = run_self(words, 60);
  if (!text) return left_out.push_back(fmt::format("sockets: {}", text.status().message()));
  auto read = doctor::read_measurements(found.machine, *text, line, {});
  if (!read) return left_out.push_back(fmt::format("sockets: {}", read.status().message()));
  rows.insert(rows.end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
}

}  // namespace

std::vector<Measurement> measure_here(const doctor::Case& found, const OtherHost& with,
                                      std::vector<std::string>& left_out) {
  std::vector<Measurement> rows;
  for (const auto nic : doctor::rails(found.machine)) {
    for (const auto operation : {doctor::Operation::write, doctor::Operation::read}) {
      auto row = run_rdma(found.machine, nic, with, {.operation = operation, .bytes = 1U << 20U});
      if (row) {
        rows.push_back(std::move(*row));
        continue;
      }
      left_out.push_back(fmt::format("{}: {}", found.machine.nics[nic].name, row.status().message()));
      break;
    }
  }
  if (!found.machine.gpus.empty()) measure_gpus(found, rows, left_out);
  if (with) {
    measure_way(found, with, rows, left_out);
  } else {
    measure_memory(found, rows, left_out);
  }
  if (doctor::rails(found.machine).empty() && found.machine.gpus.empty())
    left_out.emplace_back("neither a GPU nor an RDMA device to measure");
  return rows;
}

}  // namespace fairway::tool
