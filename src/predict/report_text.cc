#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "predict/report.h"

namespace fairway::predict {
namespace {

std::string range_text(const Prediction& prediction) {
  if (!prediction.known) return "unknown";
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", prediction.gbs.expected, prediction.gbs.low, prediction.gbs.high);
}

std::string duration_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

// Notes that differ only in the device that they begin with, "link of GPU3: ...", share a line.
std::string notes_text(const std::set<std::string>& notes) {
  std::map<std::pair<std::string, std::string>, std::string> devices;  // by the text, and the kind of device
  std::string out;
  for (const auto& note : notes) {
    const auto of = note.find(" of ");
    const auto colon = note.find(": ");
    const auto kind = note.substr(0, of);
    if ((kind != "link" && kind != "port" && kind != "MTU") || colon == std::string::npos) {
      out += fmt::format("  note: {}\n", note);
      continue;
    }
    auto& names = devices[{kind, note.substr(colon + 2)}];
    names += (names.empty() ? "" : ", ") + note.substr(of + 4, colon - of - 4);
  }
  for (const auto& [said, names] : devices)
    out += fmt::format("  note: {} of {}: {}\n", said.first, names, said.second);
  return out;
}

// Columns as wide as their widest cell, two blanks apart; the last one ragged.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()), 0);
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
      while (!line.empty() && line.back() == ' ') line.pop_back();
      out += line + "\n";
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Between two NICs is the network, which has no class.
std::string class_text(const Flow& flow, const Prediction& prediction) {
  const bool over_network = flow.from.kind == EndpointKind::nic && flow.to.kind == EndpointKind::nic;
  return over_network ? "network" : prediction.path.to_string();
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

RateMatrix rate_matrix(const Model& model, RowMode mode, const Conditions& conditions) {
  RateMatrix matrix;
  matrix.mode = mode;
  const auto& machine = model.machine();
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) matrix.gpus.push_back(i);
  const auto wanted = [&machine](std::uint32_t i) {
    const auto& nic = machine.nics[i];
    return nic.rdma && !machine.rdma[nic.rdma.index].software.value_or(false);
  };
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    if (wanted(i)) matrix.nics.push_back(i);
  }
  for (std::uint32_t i = 0; matrix.nics.empty() && i < machine.nics.size(); ++i) matrix.nics.push_back(i);
  const auto most = kMaxCells / std::max<std::size_t>(1, matrix.gpus.size());
  if (matrix.nics.size() > most) {
    matrix.left_out = matrix.nics.size() - most;
    matrix.nics.resize(most);
  }
  for (const auto gpu : matrix.gpus) {
    for (const auto nic : matrix.nics) {
      const Endpoint memory{EndpointKind::gpu, gpu, {}};
      const Endpoint port{EndpointKind::nic, nic, {}};
      Flow flow{mode == RowMode::receive ? port : memory, mode == RowMode::send ? port : memory, {}, conditions};
      if (mode == RowMode::loop) flow.loop = nic;
      auto prediction = model.predict(flow);
      matrix.cells.push_back(prediction ? std::move(*prediction) : Prediction{});
    }
  }
  return matrix;
}

std::string text_of(const Model& model, const RateMatrix& matrix) {
  const auto& machine = model.machine();
  if (matrix.gpus.empty() || matrix.nics.empty()) {
    return fmt::format(
        "{}: {}, so there are no pairs of GPU and NIC to predict; name the ends, as in fairway predict numa0:{}\n",
        machine.name, matrix.gpus.empty() ? "no GPU" : "no NIC", matrix.nics.empty() ? "gpu0" : "nic0");
  }
  const auto mode = matrix.mode == RowMode::send      ? "GPU to wire"
                    : matrix.mode == RowMode::receive ? "wire to GPU"
                                                      : "GPU out and in again through one NIC";
  std::string out =
      fmt::format("GB/s expected (range), {}; each pair alone; {}\n\n", mode, to_string(model.planner().cpu()));
  std::vector<std::string> header{""};
  for (const auto nic : matrix.nics) header.push_back(fmt::format("NIC{}", nic));
  Table table(std::move(header));
  std::set<std::string> notes;
  std::set<std::string> bounds;
  for (std::size_t r = 0; r < matrix.gpus.size(); ++r) {
    std::vector<std::string> row{topology::gpu_name(machine, machine.gpus[matrix.gpus[r]])};
    for (std::size_t c = 0; c < matrix.nics.size(); ++c) {
      const auto& cell = matrix.cells[r * matrix.nics.size() + c];
      row.push_back(fmt::format("{} {}", range_text(cell), cell.path.to_string()));
      notes.insert(cell.notes.begin(), cell.notes.end());
    }
    table.add(std::move(row));
  }
  out += table.text() + "\n";
  for (const auto nic : matrix.nics) out += fmt::format("  NIC{}: {}\n", nic, machine.nics[nic].name);
  // One sentence for each class: what limits its pairs.
  std::set<std::string> said;
  for (const auto& cell : matrix.cells) {
    if (!cell.known || !said.insert(cell.path.to_string()).second) continue;
    out += fmt::format("  {}: {}\n", cell.path.to_string(), cell.sentence);
  }
  if (matrix.left_out > 0) out += fmt::format("  {} more NICs are left out\n", matrix.left_out);
  return out + notes_text(notes);
}

std::string text_of(const Model& model, std::span<const FlowReport> flows, double size_bytes) {
  Table table(size_bytes > 0
                  ? std::vector<std::string>{"flow", "class", "GB/s (range)", "latency us", "time", "bound by"}
                  : std::vector<std::string>{"flow", "class", "GB/s (range)", "latency us", "bound by"});
  std::set<std::string> notes;
  for (const auto& [flow, prediction] : flows) {
    std::vector<std::string> row{to_string(model.machine(), flow), class_text(flow, prediction), range_text(prediction),
                                 fmt::format("{:.1f} ({:.1f}-{:.1f})", prediction.latency_us.expected,
                                             prediction.latency_us.low, prediction.latency_us.high)};
    if (size_bytes > 0) {
      const auto seconds = seconds_for(prediction, size_bytes);
      row.push_back(fmt::format("{} ({}-{})", duration_text(seconds.expected), duration_text(seconds.low),
                                duration_text(seconds.high)));
    }
    row.push_back(prediction.known ? prediction.bottleneck : prediction.sentence);
    table.add(std::move(row));
    notes.insert(prediction.notes.begin(), prediction.notes.end());
  }
  std::string out = table.text();
  if (flows.size() > 1) out += "  (all at the same time, sharing max-min fairly)\n";
  for (const auto& report : flows) {
    if (flows.size() <= 4)
      out += fmt::format("  {}: {}\n", to_string(model.machine(), report.flow), report.prediction.sentence);
  }
  return out + notes_text(notes);
}

std::string text_of(const Model& model, const Flow& flow, std::span<const Route> routes) {
  std::string out = fmt::format("{}, best first:\n", to_string(model.machine(), flow));
  Table table({"  route", "GB/s (range)", "latency us", "bound by"});
  std::set<std::string> notes;
  for (const auto& route : routes) {
    const auto& p = route.prediction;
    table.add({"  " + route.name, range_text(p), fmt::format("{:.1f}", p.latency_us.expected), p.bottleneck});
    notes.insert(p.notes.begin(), p.notes.end());
  }
  return out + table.text() + notes_text(notes);
}

std::string text_of(const Model& model, std::span<const Comparison> comparisons) {
  Table table({"line", "flow", "class", "expected GB/s", "measured", "ratio", "", "bound by"});
  std::string outliers;
  std::set<std::string> notes;
  for (const auto& c : comparisons) {
    const auto flow = to_string(model.machine(), c.row.flow);
    table.add({std::to_string(c.row.line), flow, class_text(c.row.flow, c.prediction), range_text(c.prediction),
               fmt::format("{:.2f}", c.row.gbs), c.prediction.known ? fmt::format("{:.3f}", c.ratio) : "-",
               std::string(to_string(c.verdict)), c.prediction.bottleneck});
    if (c.verdict == Verdict::slow || c.verdict == Verdict::fast) {
      outliers += fmt::format("  outlier: line {}, {}: {:.2f} GB/s is {} the range of {}\n", c.row.line, flow,
                              c.row.gbs, c.verdict == Verdict::slow ? "below" : "above", range_text(c.prediction));
    }
    if (c.row.path && c.prediction.path.kind != topology::PathKind::unknown && !(*c.row.path == c.prediction.path)) {
      outliers += fmt::format("  line {}: the file says {}, the machine {}\n", c.row.line, c.row.path->to_string(),
                              c.prediction.path.to_string());
    }
    notes.insert(c.prediction.notes.begin(), c.prediction.notes.end());
  }
  std::string out =
      table.text() + fmt::format("\nmean absolute error: {} over {} {}\n", percent(mean_error(comparisons)),
                                 comparisons.size(), comparisons.size() == 1 ? "row" : "rows");
  return out + (outliers.empty() ? "  no outliers\n" : outliers) + notes_text(notes);
}

std::string text_of(const Calibration& calibration) {
  Table table({"constant", "before", "after", ""});
  const auto range = [](const Range& r) { return fmt::format("{:.3g} ({:.3g}-{:.3g})", r.expected, r.low, r.high); };
  for (const auto& fit : calibration.fits) {
    table.add({std::string(row_of(fit.id).name), range(fit.before), fit.determined ? range(fit.after) : "as before",
               fit.why});
  }
  return table.text() + fmt::format("\nmean absolute error of these rows: {} before, {} after\n",
                                    percent(calibration.error_before), percent(calibration.error_after));
}

std::string text_of(const TwoTier& fabric, const FabricOdds& odds) {
  std::string out =
      fmt::format("{} hosts, {} below each leaf, {} spines, {} link{} of {} Gb/s to each; {} flows a host\n",
                  fabric.hosts, fabric.hosts_per_leaf, fabric.spines, fabric.links_per_spine,
                  fabric.links_per_spine == 1 ? "" : "s", fabric.uplink_gbps, fabric.flows_per_host);
  Table table({"share of a host's line", "hashed"});
  table.add({"mean", percent(odds.mean)});
  table.add({"median", percent(odds.p50)});
  table.add({"5th percentile", percent(odds.p5)});
  table.add({"95th percentile", percent(odds.p95)});
  table.add({"slowest host, on average", percent(odds.slowest_mean)});
  table.add({"worst seen", percent(odds.worst)});
  table.add({"evenly spread instead", percent(odds.balanced)});
  return out + table.text() + fmt::format("  ({} trials; each host sends to a host of another leaf)\n", odds.trials);
}

std::string bond_odds_text(std::uint32_t legs) {
  std::string out = fmt::format("Share of a bond of {} legs; the heaviest leg decides\n", legs);
  Table table({"queue pairs", "hashed", "round robin"});
  for (const std::uint32_t qps : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U, 32U, 64U, 128U}) {
    table.add({std::to_string(qps), percent(hashed_share(qps, legs)), percent(round_robin_share(qps, legs))});
  }
  return out + table.text();
}

std::string constants_text(const Constants& constants) {
  Table table({"constant", "unit", "low", "expected", "high", "what; source"});
  for (const auto& row : constant_table()) {
    const auto& r = constants[row.id];
    table.add(
        {std::string(row.name), std::string(to_string(row.unit)), fmt::format("{:.4g}", r.low),
         fmt::format("{:.4g}", r.expected), fmt::format("{:.4g}", r.high),
         fmt::format("{}; {}", row.what, constants.is_calibrated(row.id) ? "calibrated on this machine" : row.source)});
  }
  return table.text();
}

}  // namespace fairway::predict
