// fairway doctor fleet, fairway doctor rules.
#include "doctor/fleet.h"

#include <set>

#include <fmt/format.h>

#include "arguments.h"
#include "bench/rows.h"
#include "doctor.h"
#include "doctor/report.h"
#include "help.h"
#include "topology/file.h"

namespace fairway::tool {
namespace {

struct FleetOptions {
  std::vector<std::string> files;
  bool json = false;
  std::string html;
};

Exit run_fleet(Tool& tool, const FleetOptions& options) {
  const auto unable = [&tool](const Status& status) {
    tool.fail(status);
    return static_cast<Exit>(3);
  };
  const char* few = "FILE: needs two or more recorded machines";
  if (options.files.empty()) return tool.misused(few);
  if (auto status = can_write(options.html); !status) return unable(status);
  // Files of one name in several folders go by their paths.
  std::set<std::string_view> names;
  for (const auto& path : options.files) names.insert(topology::file_name(path));
  const bool by_path = names.size() < options.files.size();
  std::vector<doctor::Node> nodes;
  for (const auto& path : options.files) {
    auto found = doctor::read_case(path);
    if (!found) return unable(found.status());
    const auto name = by_path ? path : std::string(topology::file_name(path));
    // Of a text of several hosts each is a node.
    auto others = std::move(found->hosts);
    found->hosts.clear();
    others.insert(others.begin(), std::move(*found));
    for (auto& one : others) {
      auto report = examine_alone(one);
      nodes.push_back({one.host.empty() ? name : name + ":" + one.host, std::move(one), std::move(report)});
    }
  }
  if (nodes.size() < 2) return tool.misused(few);
  const auto fleet = doctor::compare_fleet(nodes);
  const auto code = static_cast<Exit>(doctor::exit_code(fleet, nodes));
  if (!options.html.empty()) {
    if (auto status = write_file(options.html, doctor::html_of(fleet, nodes)); !status) return unable(status);
    if (options.html == "-") return code;
  }
  if (options.json) {
    const auto text = doctor::json_of(fleet, nodes);
    if (!text) return unable(text.status());
    return tool.print(*text) == Exit::done ? code : static_cast<Exit>(3);
  }
  const auto& surroundings = tool.surroundings();
  const render::TextStyle style{.colour = surroundings.colour,
                                .columns = surroundings.stdout_is_tty ? surroundings.columns : 120};
  return tool.print(doctor::text_of(fleet, nodes, style)) == Exit::done ? code : static_cast<Exit>(3);
}

Exit run_rules(Tool& tool, const std::string& id, bool markdown, bool json) {
  std::vector<bench::Fields> rows;
  if (markdown) return tool.print(doctor::rules_page());
  std::string out;
  std::vector<std::string> names;
  for (const auto* rule : doctor::all_rules()) {
    names.emplace_back(rule->id);
    if (id.empty() || rule->id == id)
      rows.push_back({{"rule", names.back(), true},
                      {"title", std::string(rule->title), true},
                      {"costs", std::string(rule->effect), true},
                      {"checks", std::string(rule->checks), true},
                      {"fix", std::string(rule->fix), true},
                      {"source", std::string(rule->source), true}});
    if (id.empty()) {
      out += fmt::format("{:<24} {}\n", rule->id, rule->title);
    } else if (rule->id == id) {
      out += fmt::format("{}\n  {}.\n  costs  {}\n  checks {}\n  fix    {}\n  source {}\n", rule->id, rule->title,
                         rule->effect, rule->checks, rule->fix, rule->source);
    }
  }
  if (!out.empty())
    return tool.print(json ? bench::json_of("fairway-doctor-rules", "fairway doctor rules", rows) : out);
  const auto meant = nearest(id, names);
  return tool.misused(meant.empty() ? fmt::format("there is no rule '{}'", id)
                                    : fmt::format("there is no rule '{}'; did you mean '{}'?", id, meant));
}

}  // namespace

void add_doctor_fleet(Tool& tool, CLI::App& parent) {
  CLI::App& fleet = tool.add_below(parent, "fleet", "Compare machines that should be equal: which differ, and in what");
  auto options = std::make_shared<FleetOptions>();
  add_file(fleet, "FILES", options->files,
           "Files of `fairway doctor --save`, one for each machine, or other recordings")
      ->required();
  fleet.add_flag("--json", options->json, "Print it as JSON");
  add_file(fleet, "--html", options->html, "Also write a page");
  fleet.footer(
      "Exit code: 0 equal and all ok, 1 they differ, none could be compared or one is degraded, 2 one is broken, 3 the "
      "doctor failed, 4 one is unclear: not all of it could be read.\n"
      "Example:\n"
      "  fairway doctor fleet node*.json --html fleet.html");
  tool.on_run(fleet, [&tool, options] { return run_fleet(tool, *options); });
}

void add_doctor_rules(Tool& tool, CLI::App& parent) {
  CLI::App& rules = tool.add_below(parent, "rules", "List what the doctor checks");
  auto id = std::make_shared<std::string>();
  auto markdown = std::make_shared<bool>(false);
  rules.add_option("RULE", *id, "Print all of this rule")->type_name("RULE");
  auto json = std::make_shared<bool>(false);
  CLI::Option* page = rules.add_flag("--markdown", *markdown, "Print docs/doctor-rules.md");
  rules.add_flag("--json", *json, "Print them as JSON")->excludes(page);
  rules.footer("Example:\n  fairway doctor rules below-expectation");
  tool.on_run(rules, [&tool, id, markdown, json] { return run_rules(tool, *id, *markdown, *json); });
}

}  // namespace fairway::tool
