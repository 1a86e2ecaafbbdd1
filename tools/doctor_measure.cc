// fairway doctor --measure: short runs, just long enough to decide.
#include <fmt/format.h>

#include "doctor.h"
#include "doctor/cost.h"
#include "doctor_runs.h"

namespace fairway::tool {
namespace {

using doctor::Measurement;

void measure_gpus(const doctor::Case& found, std::vector<Measurement>& rows, std::vector<std::string>& left_out) {
  const auto run = [&](const std::string& from, const std::string& to) {
    const std::vector<std::string> words{"bench", "--from",    from,  "--to",  to, "--operation", "write", "--size",
                                         "16M",   "--seconds", "0.1", "--csv", "-"};
    const auto text = run_self(words, 60);
    if (!text) return left_out.push_back(fmt::format("{} to {}: {}", from, to, text.status().message()));
    auto read =
        doctor::read_measurements(found.machine, *text, fmt::format("fairway bench --from {} --to {}", from, to), {});
    if (!read) return left_out.push_back(fmt::format("{} to {}: {}", from, to, read.status().message()));
    rows.insert(rows.end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
  };
  for (std::uint32_t i = 0; i < found.machine.gpus.size(); ++i) {
    const auto name = fmt::format("gpu:{}", found.machine.gpus[i].ordinal);
    run(name, "host");
    if (i + 1 < found.machine.gpus.size()) run(name, fmt::format("gpu:{}", found.machine.gpus[i + 1].ordinal));
  }
}

}  // namespace

std::vector<Measurement> measure_here(const doctor::Case& found, const std::string& with,
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
  if (rows.empty() && left_out.empty()) left_out.emplace_back("neither a GPU nor an RDMA device to measure");
  return rows;
}

}  // namespace fairway::tool
