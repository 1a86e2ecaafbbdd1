// fairway predict: expected rates, compared with measured ones, and with changes.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "arguments.h"
#include "command.h"
#include "doctor/measurement.h"
#include "help.h"
#include "predict/open.h"
#include "predict/report.h"
#include "predict/what_if.h"
#include "render/layout.h"
#include "render/svg.h"
#include "topology/discover.h"
#include "topology/file.h"
#include "topology/load.h"
#include "topology/text.h"

namespace fairway::tool {
namespace {

using namespace fairway::predict;

constexpr std::size_t kMaxInput = 16U << 20U;  // bytes of a file of rows

constexpr std::string_view kExamples = R"(
Flows are FROM:TO, or FROM:NIC:TO for a loop through one NIC; several run at the same time.
Ends: gpu3, nic0 or a NIC's name, nic0/leg1, numa1, remote (over the best NIC).

Examples:
  fairway predict                                     GPUs with NICs, each pair alone
  fairway predict gpu0:nic0 gpu1:nic0                 two flows at the same time
  fairway predict gpu0:nic0 gpu4:nic0 --svg flows.svg --alone   the machine with both, each by itself
  fairway predict gpu4:nic0 --routes                  direct, over another GPU, through host memory
  fairway predict --from host.json --measured rows.csv --nic 0 --loop
  fairway predict --from host.json --calibrate rows.csv
  fairway bench --via shm,tcp --size 16M --csv b.csv; fairway predict --from host.json --calibrate b.csv
  fairway predict gpu4:nic0 --what-if ordering=relaxed,qps=4
)";

struct PredictOptions {
  std::vector<std::string> flows;
  std::string from;
  std::string measured;
  std::string calibrate;
  std::string calibration;
  std::string fabric;
  std::vector<std::string> what_if;
  std::string nic;
  std::uint64_t size_bytes = 0;
  std::uint32_t bond_odds = 0;
  std::uint32_t trials = 200;
  std::uint64_t seed = 1;
  bool loop = false;
  bool receive = false;
  bool alone = false;
  bool routes = false;
  bool constants = false;
  std::string svg;
  bool no_calibration = false;
  bool json = false;
};

// The machine with the flows: those that a tenth or more separates from the fastest are in the colour of faults.
std::string picture_of(const Model& model, std::span<const FlowReport> reports) {
  double fastest = 0;
  for (const FlowReport& each : reports) fastest = std::max(fastest, each.prediction.gbs.expected);
  std::vector<render::Stream> streams;
  for (const FlowReport& each : reports) {
    const auto kind = each.prediction.path.kind;
    render::Stream stream;
    stream.from = node_of(each.flow.from);
    stream.to = node_of(each.flow.to);
    if (each.flow.loop) stream.to = {topology::NodeKind::nic, *each.flow.loop}, stream.returns = true;
    stream.over_gpu_links = kind == topology::PathKind::nvlink || kind == topology::PathKind::xgmi;
    stream.slow = each.prediction.known && each.prediction.gbs.expected < 0.9 * fastest;
    stream.label = each.prediction.known ? fmt::format("{:.1f}", each.prediction.gbs.expected) : "?";
    stream.title = each.prediction.sentence;
    streams.push_back(std::move(stream));
  }
  auto scene = render::picture(model.machine());
  render::add_streams(model.machine(), streams,
                      "arrows: GB/s expected; red: slower than the fastest by a tenth or more", scene);
  return render::svg(scene);
}

// One run of the command.
class Predict {
 public:
  Predict(Tool& tool, const PredictOptions& options) : tool_(tool), options_(options) {}

  Exit run() {
    if (options_.bond_odds > 0) return print(bond_odds_text(options_.bond_odds), bond_odds_json(options_.bond_odds));
    if (!options_.fabric.empty()) return fabric();
    if (options_.loop && options_.receive) return tool_.misused("--loop and --receive exclude each other");
    if (!options_.measured.empty() && !options_.calibrate.empty()) {
      return tool_.misused("calibrate first, then compare with --measured: not both at once");
    }
    if (!options_.flows.empty() && !(options_.measured.empty() && options_.calibrate.empty())) {
      return tool_.misused("flows come from the command line or from a file of rows, not from both");
    }
    if (!options_.svg.empty() && (options_.flows.empty() || options_.routes))
      return tool_.misused("--svg draws flows: name them, as in gpu0:nic0, without --routes");
    if (options_.json && options_.svg == "-")
      return tool_.misused("--json and --svg both go to standard output: give --svg a file");
    if (const Status status = can_write(options_.svg); !status) return tool_.fail(status);
    if (options_.routes && options_.flows.size() != 1)
      return tool_.misused("--routes compares the routes of one flow: name it, as in gpu0:nic0");
    if (!options_.nic.empty() && options_.measured.empty() && options_.calibrate.empty())
      return tool_.misused("--nic goes with --measured or --calibrate");
    auto machine = options_.from.empty() ? topology::discover() : topology::load(options_.from);
    if (!machine) return options_.from.empty() ? tool_.fail(machine.status()) : tool_.unreadable(machine.status());
    what_.machine = std::move(*machine);
    for (const auto& word : options_.what_if) {
      if (auto status = imagine(word, what_); !status) return tool_.misused(status.message());
    }
    auto constants = load_constants();
    if (!constants) return tool_.unreadable(constants.status());
    if (options_.constants) return print(constants_text(*constants), constants_json(*constants));
    const Model model(what_.machine, *constants, what_.assumptions);
    if (!options_.calibrate.empty()) return calibrate_by(model);
    if (!options_.measured.empty()) return measured(model);
    if (!options_.flows.empty()) return flows(model);
    const auto matrix = rate_matrix(model, mode(), what_.conditions);
    return print(text_of(model, matrix), json_of(model, matrix));
  }

 private:
  Exit print(const std::string& text, const std::string& json) { return tool_.print(options_.json ? json : text); }
  [[nodiscard]] RowMode mode() const {
    return options_.loop ? RowMode::loop : options_.receive ? RowMode::receive : RowMode::send;
  }

  // The calibration file: --calibration, else beside the machine's file.
  [[nodiscard]] std::string calibration_file() const {
    if (!options_.calibration.empty()) return options_.calibration;
    return options_.from.empty() || options_.from == "-" ? std::string() : calibration_path(options_.from);
  }

  Result<Constants> load_constants() const {
    // A new calibration starts from the table, not from an older one.
    if (options_.no_calibration || !options_.calibrate.empty()) return Constants();
    if (!options_.calibration.empty()) return constants_from(options_.calibration);
    std::string found;
    auto constants = constants_beside(options_.from, &found);
    if (constants && !found.empty()) tool_.remark(fmt::format("calibrated by {}", found));
    return constants;
  }

  Result<std::vector<MeasuredRow>> rows_of(const Model& model, const std::string& path) const {
    MeasuredDefaults defaults;
    defaults.mode = mode();
    defaults.conditions = what_.conditions;
    if (!options_.nic.empty()) {
      const bool bare = options_.nic.find_first_not_of("0123456789") == std::string::npos;
      const auto nic = parse_endpoint(model.machine(), bare ? "nic" + options_.nic : options_.nic);
      if (!nic) return nic.status().with_context("--nic");
      if (nic->kind != EndpointKind::nic) return Status(ErrorCode::invalid_argument, "--nic names no NIC");
      defaults.nic = nic->index;
    }
    const auto text = topology::read_input(path, kMaxInput);
    if (!text) return text.status();
    if (!doctor::is_program_output(*text)) return read_measured(model.machine(), *text, path, defaults);
    const auto measured = doctor::read_measurements(model.machine(), *text, path, {defaults});
    if (!measured) return measured.status();
    std::vector<MeasuredRow> rows;
    for (const auto& one : *measured) {
      // What runs both ways at once is no rate of one flow.
      if (one.failed || !one.flow || one.both_ways) continue;
      const auto line = topology::text::to_u32(one.where.substr(one.where.find_last_of(": ") + 1));
      rows.push_back({line.value_or(static_cast<std::uint32_t>(rows.size() + 1)), *one.flow, one.gbps / 8, {}});
    }
    if (rows.empty())
      return Status(ErrorCode::invalid_argument,
                    path + ": none of its rows names both ends of a path on this machine, or is of 1 MiB or more");
    return rows;
  }

  Exit measured(const Model& model) {
    const auto rows = rows_of(model, options_.measured);
    if (!rows) return tool_.unreadable(rows.status());
    const auto comparisons = compare(model, *rows);
    if (!comparisons) return tool_.fail(comparisons.status().with_context(options_.measured));
    return print(text_of(model, *comparisons), json_of(model, *comparisons));
  }

  Exit calibrate_by(const Model& model) {
    const auto rows = rows_of(model, options_.calibrate);
    if (!rows) return tool_.unreadable(rows.status());
    const auto calibration = calibrate(model, *rows);
    if (!calibration) return tool_.fail(calibration.status().with_context(options_.calibrate));
    auto text = text_of(*calibration);
    if (const auto path = calibration_file(); !path.empty() && !options_.no_calibration) {
      if (auto status = write_file(path, write_calibration(*calibration, model.machine().name)); !status) {
        return tool_.fail(status);
      }
      text += fmt::format("kept in {}\n", path);
    } else {
      text += "not kept: name a file with --calibration, or the machine's with --from\n";
    }
    return print(text, json_of(*calibration));
  }

  Result<Flow> flow_of(const Model& model, const std::string& word) const {
    const auto ends = topology::text::split(word, ':');
    if (ends.size() < 2 || ends.size() > 3) {
      return Status(ErrorCode::invalid_argument, fmt::format("'{}' is no flow: say FROM:TO, or FROM:NIC:TO for a loop",
                                                             topology::text::quote(word)));
    }
    const auto from = parse_endpoint(model.machine(), ends.front());
    if (!from) return from.status();
    const auto to = parse_endpoint(model.machine(), ends.back());
    if (!to) return to.status();
    Flow flow{*from, *to, {}, what_.conditions};
    if (ends.size() == 3) {
      const auto nic = parse_endpoint(model.machine(), ends[1]);
      if (!nic) return nic.status();
      if (nic->kind != EndpointKind::nic) {
        return Status(ErrorCode::invalid_argument,
                      fmt::format("'{}' loops through what is no NIC", topology::text::quote(word)));
      }
      flow.loop = nic->index;
    }
    return model.resolve(flow);
  }

  Exit flows(const Model& model) {
    std::vector<Flow> flows;
    for (const auto& word : options_.flows) {
      const auto flow = flow_of(model, word);
      if (!flow)
        return flow.status().code() == ErrorCode::invalid_argument ? tool_.misused(flow.status().message())
                                                                   : tool_.fail(flow.status());
      flows.push_back(*flow);
    }
    if (options_.routes) {
      const auto routes = model.routes(flows.front());
      if (!routes) return tool_.fail(routes.status());
      return print(text_of(model, flows.front(), *routes), json_of(model, flows.front(), *routes));
    }
    std::vector<FlowReport> reports;
    if (options_.alone) {
      for (const auto& flow : flows) {
        const auto prediction = model.predict(flow);
        if (!prediction) return tool_.fail(prediction.status());
        reports.push_back({flow, *prediction});
      }
    } else {
      const auto predictions = model.predict(flows);
      if (!predictions) return tool_.fail(predictions.status());
      for (std::size_t i = 0; i < flows.size(); ++i) reports.push_back({flows[i], (*predictions)[i]});
    }
    if (!options_.svg.empty()) {
      if (Status status = write_file(options_.svg, picture_of(model, reports)); !status) return tool_.fail(status);
      if (options_.svg == "-") return Exit::done;
    }
    const auto size = static_cast<double>(options_.size_bytes);
    return print(text_of(model, reports, size), json_of(model, reports, size));
  }

  Exit fabric() {
    const auto text = topology::read_input(options_.fabric, kMaxInput);
    if (!text) return tool_.unreadable(text.status());
    const auto fabric = read_two_tier(*text, options_.fabric);
    if (!fabric) return tool_.unreadable(fabric.status());
    const auto odds = fabric_odds(*fabric, options_.trials, options_.seed);
    if (!odds) return tool_.fail(odds.status().with_context(options_.fabric));
    return print(text_of(*fabric, *odds), json_of(*fabric, *odds));
  }

  Tool& tool_;
  const PredictOptions& options_;
  WhatIf what_;
};

}  // namespace

void add_predict(Tool& tool) {
  auto& command =
      tool.add(Group::machine, "predict", "Predict what a path should reach, and compare it with measurements");
  const auto options = std::make_shared<PredictOptions>();
  auto& o = *options;
  add_arguments(command, "flow", o.flows, "Flows; without any, the matrix of GPUs and NICs")->type_name("FROM:TO");
  add_file(command, "--from", o.from,
           "A recorded machine: whatever `fairway topo --from` reads (default: this machine)");
  add_file(command, "--measured", o.measured,
           "Measured rates to set beside the expected: rows (CSV, JSON), or what fairway bench, perftest or "
           "nvbandwidth print");
  add_file(command, "--calibrate", o.calibrate,
           "Measured rates to fit constants to; the result is kept beside --from's file");
  CLI::Option* calibration =
      add_file(command, "--calibration", o.calibration, "File of the calibration, if it is not beside --from's file");
  command.add_flag("--no-calibration", o.no_calibration, "Neither read nor write a calibration")->excludes(calibration);
  command.add_option("--nic", o.nic, "The NIC of rows that name none")->type_name("NIC");
  command.add_flag("--loop", o.loop, "Loopback: out and in again through one NIC");
  command.add_flag("--receive", o.receive, "Receive: from the wire to the GPU");
  command.add_flag("--alone", o.alone, "Predict each flow alone");
  command.add_flag("--routes", o.routes, "Compare the routes of one flow, two hops included");
  add_file(command, "--svg", o.svg, "Draw the machine with the flows; - is standard output");
  add_size(command, "--size", o.size_bytes,
           "Also print how long a message of that size takes: 4K, 1M, 2GB (default: rates alone)");
  add_list(command, "--what-if", o.what_if, "Predict with these changes; see below")->type_name("NAME=VALUE");
  command.add_flag("--constants", o.constants, "Print the model's constants with their sources");
  command.add_option("--bond-odds", o.bond_odds, "What hashing queue pairs over a bond of LEGS ports costs")
      ->type_name("LEGS")
      ->check(CLI::Range(1U, kMaxLegs));
  CLI::Option* fabric = add_file(command, "--fabric", o.fabric, "What hashing costs in a two-tier fabric (JSON)");
  command.add_option("--trials", o.trials, "How many draws --fabric makes")
      ->type_name("N")
      ->check(CLI::Range(1U, 1000000U))
      ->capture_default_str()
      ->needs(fabric);
  command.add_option("--seed", o.seed, "Seed of --fabric's draws")
      ->type_name("N")
      ->capture_default_str()
      ->needs(fabric);
  command.add_flag("--json", o.json, "Print it as JSON");
  command.footer(std::string(kExamples) + "\n" + std::string(what_if_help()));
  tool.on_run(command, [&tool, options] { return Predict(tool, *options).run(); });
}

}  // namespace fairway::tool
