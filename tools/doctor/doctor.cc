// fairway doctor: what is wrong with this machine, what it costs and how to fix it.
#include "doctor.h"

#include <array>

#include <fmt/format.h>
#include <unistd.h>

#include "arguments.h"
#include "doctor/report.h"
#include "help.h"
#include "predict/open.h"
#include "topology/file.h"
#include "topology/text.h"

extern char** environ;

namespace fairway::tool {

std::map<std::string, std::string> job_environment() {
  std::map<std::string, std::string> out;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const auto equals = entry.find('=');
    if (equals != entry.npos && (entry.starts_with("NCCL_") || entry.starts_with("UCX_")))
      out[std::string(entry.substr(0, equals))] = std::string(entry.substr(equals + 1));
  }
  return out;
}

doctor::Report examine_alone(const doctor::Case& found) {
  const predict::Model model(found.machine);
  auto report = doctor::examine({model, found.facts, found.measured, nullptr, nullptr});
  doctor::tell_reading(found, report);
  return report;
}

namespace {

constexpr std::size_t kMaxInput = 32U << 20U;  // bytes of a file of measurements

class Doctor {
 public:
  Doctor(Tool& tool, const DoctorOptions& options) : tool_(tool), options_(options) {}

  Exit run() {
    if (const auto wrong = contradiction(); !wrong.empty()) return tool_.misused(wrong);
    for (const auto& path : {options_.save, options_.html, options_.prom}) {
      if (auto status = can_write(path); !status) return unable(status);
    }
    auto found = options_.from.empty() ? doctor::look_around(job_environment()) : doctor::read_case(options_.from);
    if (!found) return unable(found.status());
    if (!options_.save.empty()) {
      const auto text = doctor::write_case(*found);
      if (!text) return unable(text.status());
      if (auto status = write_file(options_.save, *text); !status) return unable(status);
      // A file that goes to standard output is all that does.
      if (options_.save == "-") return Exit::done;
    }
    auto measured = measurements(*found);
    if (!measured) return unable(measured.status());
    std::unique_ptr<doctor::Case> before;
    if (!options_.baseline.empty()) {
      auto read = doctor::read_case(options_.baseline);
      if (!read) return unable(read.status());
      before = std::make_unique<doctor::Case>(std::move(*read));
    }
    const auto constants = predict::constants_beside(options_.from);
    if (!constants) return unable(constants.status());
    const predict::Model model(found->machine, *constants);
    auto report = doctor::examine(
        {model, found->facts, *measured, before ? &before->facts : nullptr, before ? &before->machine : nullptr});
    doctor::tell_reading(*found, report);
    if (options_.strict) doctor::be_strict(report);
    if (report.machine.empty()) report.machine = "this machine";
    if (!options_.from.empty() && options_.from != "-") doctor::name_recording(report, options_.from);
    for (const auto& why : left_out_) report.not_looked.push_back({"measure", why});
    if (options_.confirm) {
      std::vector<std::string> told;
      confirm(*found, options_.with, report, told);
      for (const auto& line : told) tool_.remark(line);
    }
    return tell(found->machine, report);
  }

 private:
  [[nodiscard]] std::string contradiction() const {
    if ((options_.measure || options_.confirm) && !options_.from.empty())
      return "--measure and --confirm need this machine, and --from names a recording";
    if (options_.with && !options_.measure && !options_.confirm) return "--with goes with --measure or --confirm";
    if (!options_.with && !options_.with.key.empty()) return "--key goes with --with";
    if (options_.json && options_.quiet) return "--json and --quiet exclude each other";
    if (options_.measured.empty() && (options_.loop || !options_.nic.empty()))
      return "--nic and --loop go with --measured";
    const std::array<std::pair<const char*, std::string>, 4> outputs{{{"--json", options_.json ? "-" : ""},
                                                                      {"--save", options_.save},
                                                                      {"--html", options_.html},
                                                                      {"--prom", options_.prom}}};
    if (const auto status = one_output_each(outputs); !status) return status.message();
    if (!options_.save.empty() && !options_.from.empty())
      return "--save records this machine, and --from names a recording";
    return {};
  }

  // The doctor itself failed: neither ok nor degraded.
  [[nodiscard]] Exit unable(const Status& status) const {
    tool_.fail(status);
    if (options_.json) {
      const auto name = options_.from.empty() ? std::string("this machine") : options_.from;
      if (const auto text = doctor::json_of_failure(name, status.message())) (void)tool_.print(*text);
    }
    return Exit::not_looked;
  }

  Result<std::vector<doctor::Measurement>> measurements(doctor::Case& found) {
    auto rows = found.measured;
    doctor::MeasuredOptions how;
    if (!options_.nic.empty()) {
      auto name = options_.nic;
      if (topology::text::to_u32(name)) name = "nic" + name;
      const auto end = predict::parse_endpoint(found.machine, name);
      if (!end) return end.status().with_context("--nic");
      if (end->kind != predict::EndpointKind::nic)
        return Status(ErrorCode::invalid_argument, fmt::format("--nic {} is no NIC", options_.nic));
      how.defaults.nic = end->index;
    }
    if (options_.loop) how.defaults.mode = predict::RowMode::loop;
    for (const auto& path : options_.measured) {
      const auto text = topology::read_input(path, kMaxInput);
      if (!text) return text.status();
      auto read = doctor::read_measurements(found.machine, *text, std::string(topology::file_name(path)), how);
      if (!read) return read.status();
      const bool all = read->size() < doctor::kMaxRows;
      found.read.push_back(
          {std::string(topology::file_name(path)), "--measured",
           all ? topology::ReadState::read : topology::ReadState::cut,
           topology::text::count(read->size(), "measured row") + (all ? "" : "; what stands behind them is not read")});
      rows.insert(rows.end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
    }
    if (options_.measure) {
      auto here = measure_here(found, options_.with, left_out_);
      rows.insert(rows.end(), std::make_move_iterator(here.begin()), std::make_move_iterator(here.end()));
    }
    return rows;
  }

  Exit tell(const topology::Machine& machine, const doctor::Report& report) {
    const auto code = static_cast<Exit>(doctor::exit_code(report.verdict));
    if (!options_.html.empty()) {
      if (auto status = write_file(options_.html, doctor::html_of(machine, report)); !status) return unable(status);
    }
    if (!options_.prom.empty()) {
      if (auto status = write_file(options_.prom, doctor::prom_of(report)); !status) return unable(status);
    }
    if (options_.html == "-" || options_.prom == "-") return code;
    Exit printed = Exit::done;
    if (options_.json) {
      const auto text = doctor::json_of(machine, report);
      if (!text) return unable(text.status());
      printed = tool_.print(*text);
    } else if (options_.quiet) {
      // A prolog prints one line if something is wrong, else none.
      if (!report.verdict.ok || !report.verdict.whole) printed = tool_.print(doctor::line_of(report) + "\n");
    } else {
      const auto& surroundings = tool_.surroundings();
      const render::TextStyle style{.colour = surroundings.colour,
                                    .columns = surroundings.stdout_is_tty ? surroundings.columns : 120};
      printed = tool_.print(doctor::text_of(report, style, options_.all));
    }
    return printed == Exit::done ? code : Exit::not_looked;
  }

  Tool& tool_;
  const DoctorOptions& options_;
  std::vector<std::string> left_out_;
};

}  // namespace

void add_doctor(Tool& tool) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App& command =
      tool.add(Group::machine, "doctor", "Find what is wrong with this machine, what it costs and how to fix it");
  add_file(command, "--from", options->from,
           "A recorded machine instead of this one: a file of --save, or whatever `fairway topo --from` reads");
  add_file(command, "--measured", options->measured,
           "Measured rates: output of perftest, nccl-tests, nvbandwidth or `fairway bench`, or a CSV of rows");
  command.add_option("--nic", options->nic, "The NIC of CSV rows that name none")->type_name("NIC");
  command.add_flag("--loop", options->loop, "CSV rows are loops: out and in again through one NIC");
  add_file(command, "--baseline", options->baseline, "Compare with a file that --save wrote while all was well");
  add_file(command, "--save", options->save, "Record this machine in a file, for --from, --baseline and fleet");
  command.add_flag("--json", options->json, "Print the report as JSON (docs/schemas/fairway-doctor.json)");
  add_file(command, "--html", options->html, "Also write a page with the picture, faults in colour");
  add_file(command, "--prom", options->prom, "Also write metrics for node-exporter's textfile collector");
  command.add_flag("--quiet", options->quiet, "Print one line if something is wrong, else nothing: for job prologs");
  command.add_flag("--strict", options->strict,
                   "For gates: a subject of which nothing could be checked makes the verdict unclear (exit 4) too");
  command.add_flag("--all", options->all, "Print notes in full, and all that was read");
  command.add_flag("--measure", options->measure,
                   "First measure GPU copies, RDMA over each NIC, and copies of host memory; takes a few seconds");
  command.add_flag("--confirm", options->confirm,
                   "Confirm findings by A/B runs that differ in one setting; takes up to a minute");
  command
      .add_option("--with", options->with.address,
                  "Measure with another host: HOST:PORT on which `fairway bench --listen` serves")
      ->type_name("ADDRESS")
      ->check(host_and_port());
  command.add_option("--key", options->with.key, "Job key of --with's host; required beyond loopback");
  add_doctor_fleet(tool, command);
  add_doctor_rules(tool, command);
  command.footer(
      R"(Exit code: 0 ok, 1 degraded, 2 broken, 3 the doctor failed, 4 unclear: nothing wrong was
found, and not all that was given could be read, or there was nothing to check. What needs root
is listed as not checked.
Examples:
  fairway doctor                                       the verdict, then findings, costliest first
  fairway doctor --from report.txt                     a paste of any commands' outputs, as in a bug report
  fairway doctor --from host/ --measured write_bw.txt  a recorded host with what perftest measured on it
  fairway doctor --save good.json                      then: fairway doctor --baseline good.json
  fairway doctor fleet node*.json --html fleet.html    which nodes differ from the others, and in what)");
  tool.on_run(command, [&tool, options] { return Doctor(tool, *options).run(); });
}

}  // namespace fairway::tool
