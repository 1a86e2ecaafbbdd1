// fairway topo lint, fairway topo diff: contradictions in one machine, differences of two.
#include <algorithm>

#include <fmt/format.h>

#include "arguments.h"
#include "help.h"
#include "render/json.h"
#include "render/reports.h"
#include "topo.h"
#include "topology/assess.h"
#include "topology/file.h"

namespace fairway::tool {
namespace {

struct LintOptions {
  std::string file;
  std::string against;
  bool notes = false, json = false;
};
struct DiffOptions {
  std::string a;
  std::string b;
  bool json = false;
};

Exit run_lint(Tool& tool, const TopoInput& input, const LintOptions& options) {
  if (!options.file.empty() && !input.from.empty()) return tool.misused("FILE and --from say the same; give one");
  const TopoInput chosen{.from = options.file.empty() ? input.from : options.file};
  Result<topology::Machine> machine = read_machine(chosen);
  if (!machine) return cannot_read(tool, chosen, machine.status());
  std::vector<topology::Finding> findings = topology::lint(*machine);
  if (!options.against.empty()) {
    // "this" is the machine the command runs on.
    Result<topology::Machine> other = options.against == "this" ? read_machine({}) : read_machine_file(options.against);
    if (!other) return options.against == "this" ? tool.fail(other.status()) : tool.unreadable(other.status());
    const auto more = topology::lint_against(*machine, *other);
    findings.insert(findings.end(), more.begin(), more.end());
    std::ranges::stable_sort(findings, [](const auto& a, const auto& b) { return a.severity < b.severity; });
  }
  const auto errors =
      std::ranges::count_if(findings, [](const auto& f) { return f.severity == topology::Severity::error; });
  if (options.json) {
    const auto text = render::findings_json(
        findings, options.notes ? std::span<const topology::Note>(machine->notes) : std::span<const topology::Note>());
    if (!text) return tool.fail(text.status());
    const Exit printed = tool.print(*text);
    return errors > 0 && printed == Exit::done ? Exit::failed : printed;
  }
  const render::TextStyle style = text_style(tool);
  std::string out = render::findings_text(findings, style);
  const auto warnings =
      std::ranges::count_if(findings, [](const auto& f) { return f.severity == topology::Severity::warning; });
  out += fmt::format("{}{}, {}, {}\n", findings.empty() ? "" : "\n",
                     render::count(static_cast<std::size_t>(errors), "error"),
                     render::count(static_cast<std::size_t>(warnings), "warning"),
                     render::count(findings.size() - static_cast<std::size_t>(errors + warnings), "notice"));
  if (!machine->notes.empty()) {
    out += options.notes ? "\n" + render::notes_text(machine->notes, style)
                         : fmt::format("{} on what the source does not say or says twice: --notes prints them\n",
                                       render::count(machine->notes.size(), "note"));
  }
  const Exit printed = tool.print(out);
  return errors > 0 && printed == Exit::done ? Exit::failed : printed;
}

Exit run_diff(Tool& tool, const TopoInput& input, const DiffOptions& options) {
  Result<topology::Machine> a = read_machine_file(options.a);
  if (!a) return tool.unreadable(a.status());
  Result<topology::Machine> b = options.b.empty() ? read_machine(input) : read_machine_file(options.b);
  if (!b) return options.b.empty() ? cannot_read(tool, input, b.status()) : tool.unreadable(b.status());
  const auto differences = topology::diff(*a, *b);
  const std::string a_name = topology::input_name(options.a);
  const std::string b_name = topology::input_name(!options.b.empty()   ? options.b
                                                  : input.from.empty() ? "this machine"
                                                                       : input.from);
  const auto text = options.json
                        ? render::differences_json(a_name, b_name, differences)
                        : Result<std::string>(render::differences_text(a_name, b_name, differences, text_style(tool)));
  if (!text) return tool.fail(text.status());
  const Exit printed = tool.print(*text);
  return differences.empty() || printed != Exit::done ? printed : Exit::failed;
}

}  // namespace

void add_topo_checks(Tool& tool, CLI::App& topo, const std::shared_ptr<TopoInput>& input) {
  CLI::App& lint = tool.add_below(topo, "lint", "Find contradictions in a machine or a topology file");
  auto lint_options = std::make_shared<LintOptions>();
  add_file(lint, "FILE", lint_options->file, "The machine or topology file to check (default: this machine)");
  add_file(lint, "--against", lint_options->against, "The machine the file is meant for: a snapshot, or 'this'");
  lint.add_flag("--notes", lint_options->notes, "Also print what could not be read, was concluded, or is said twice");
  lint.add_flag("--json", lint_options->json, "Print the findings as JSON");
  add_from_option(lint, *input);
  lint.footer(
      "Exit code 1 when there is an error among the findings.\n"
      "Examples:\n"
      "  fairway topo lint\n"
      "  fairway topo lint topo.xml --against this    what a file for NCCL says that this machine contradicts");
  tool.on_run(lint, [&tool, input, lint_options] { return run_lint(tool, *input, *lint_options); });

  CLI::App& diff =
      tool.add_below(topo, "diff", "Compare two machines that should be equal, costliest difference first");
  auto diff_options = std::make_shared<DiffOptions>();
  add_file(diff, "A", diff_options->a, "The machine that it should equal")->required();
  add_file(diff, "B", diff_options->b, "The machine to compare (default: this machine)");
  diff.add_flag("--json", diff_options->json, "Print the differences as JSON");
  add_from_option(diff, *input);
  diff.footer(
      "Exit code 1 when they differ, 2 when one cannot be read.\n"
      "Examples:\n"
      "  fairway topo diff healthy.json               this machine, beside a snapshot of a healthy one\n"
      "  ssh node2 fairway topo snapshot - | fairway topo diff node1.json -");
  tool.on_run(diff, [&tool, input, diff_options] { return run_diff(tool, *input, *diff_options); });
}

}  // namespace fairway::tool
