// fairway topo: the machine as text, JSON and pictures.
#include "topo.h"

#include "arguments.h"
#include "help.h"
#include "render/json.h"
#include "render/matrix.h"
#include "render/outline.h"
#include "render/reports.h"
#include "sys/cuda.h"
#include "topology/providers.h"

namespace fairway::tool {
namespace {

struct TopoOptions {
  bool json = false;
  bool tree = false;
  bool matrix = false;
  bool providers = false;
  PictureFiles pictures;
};

// Whether Fairway moves GPU memory on this machine, and why not.
std::string cuda_line() {
  const auto driver = sys::CudaDriver::open();
  if (!driver) return "cuda     off: " + driver.status().message() + "\n";
  const int version = (*driver)->version();
  return "cuda     on: " + std::to_string((*driver)->devices()) + " GPUs, a driver of CUDA " +
         std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) + "\n";
}

Exit run(Tool& tool, const TopoInput& input, const TopoOptions& options) {
  if (static_cast<int>(options.json) + static_cast<int>(options.tree) + static_cast<int>(options.matrix) > 1) {
    return tool.misused("--json, --tree and --matrix exclude each other");
  }
  const std::pair<const char*, std::string> outputs[] = {
      {"--json", options.json ? "-" : ""}, {"--tree", options.tree ? "-" : ""}, {"--matrix", options.matrix ? "-" : ""},
      {"--svg", options.pictures.svg},     {"--html", options.pictures.html},   {"--png", options.pictures.png}};
  if (const Status status = one_output_each(outputs); !status) return tool.misused(status.message());
  if (options.providers) {
    if (options.tree || options.matrix || options.pictures.any() || !input.from.empty())
      return tool.misused("--providers asks this machine's libfabric, and goes with --json alone");
    const auto found = topology::providers();
    return found ? tool.print(options.json ? topology::json(*found) : topology::providers_text(*found))
                 : tool.fail(found.status());
  }
  Result<topology::Fabric> read = read_fabric(input);
  if (!read) return cannot_read(tool, input, read.status());
  const topology::Fabric& fabric = read.value();
  const bool is_one = fabric.machines.size() == 1;
  render::ExpectRate expect;
  if (is_one) {
    auto rates = expect_rates(fabric.machines[0], input);
    if (!rates) return tool.unreadable(rates.status());
    expect = std::move(*rates);
  }
  if (options.pictures.any()) {
    const Status written = write_pictures(fabric, expect, options.pictures);
    if (!written) return tool.fail(written);
    if (!options.json && !options.tree && !options.matrix) return Exit::done;
  }
  const render::TextStyle style = text_style(tool);
  if (options.tree)
    return tool.print(is_one ? render::tree_text(fabric.machines[0], style) : render::tree_text(fabric, style));
  if (options.matrix) {
    std::string out;
    for (const topology::Machine& machine : fabric.machines) {
      if (!is_one) out += machine.name + "\n";
      out += render::matrix_plain(machine);
    }
    return tool.print(out);
  }
  if (options.json) {
    const Result<std::string> report =
        is_one ? render::json_report(fabric.machines[0], expect) : render::json_report(fabric);
    return report ? tool.print(report.value()) : tool.fail(report.status());
  }
  if (!is_one) return tool.print(render::overview(fabric, style));
  return tool.print(render::overview(fabric.machines[0], expect, style) +
                    (input.from.empty() ? "\n" + cuda_line() : ""));
}

}  // namespace

void add_from_option(CLI::App& command, TopoInput& input) {
  add_file(command, "--from", input.from,
           "Read a recorded machine instead of this one: a snapshot, hwloc or NCCL XML, nvidia-smi topo -m text, a "
           "captured /sys, or a folder of command outputs; - is standard input");
}

render::TextStyle text_style(const Tool& tool) {
  const Surroundings& surroundings = tool.surroundings();
  // Into a file or a pipe the width is always the same, so that outputs can be compared.
  return {.colour = surroundings.colour, .columns = surroundings.stdout_is_tty ? surroundings.columns : 120};
}

void add_topo(Tool& tool) {
  auto input = std::make_shared<TopoInput>();
  auto options = std::make_shared<TopoOptions>();
  CLI::App& topo =
      tool.add(Group::machine, "topo", "Show the machine: GPUs, NICs, the paths between them and their rates");
  add_from_option(topo, *input);
  topo.add_flag("--json", options->json, "Print everything as JSON");
  topo.add_flag("--tree", options->tree, "Print a plain-text tree, for issue reports");
  topo.add_flag("--matrix", options->matrix, "Print only the classes, tab-separated as nvidia-smi topo -m does");
  topo.add_flag("--providers", options->providers, "Print what each libfabric provider here can do, in a few lines");
  add_file(topo, "--svg", options->pictures.svg, "Write a picture; - is standard output");
  add_file(topo, "--html", options->pictures.html, "Write a page of its own with picture, matrix and details");
  add_file(topo, "--png", options->pictures.png, "Write a picture for where SVG cannot go; needs rsvg-convert");
  topo.add_option("--theme", options->pictures.theme,
                  "Colours of SVG and PNG: auto follows the viewer, and is light in a PNG")
      ->check(one_of({"auto", "light", "dark"}))
      ->capture_default_str();
  add_topo_devices(tool, topo, input);
  add_topo_checks(tool, topo, input);
  add_topo_files(tool, topo, input);
  topo.footer(R"(Examples:
  fairway topo                                summary, and the class and rate of every path
  fairway topo --html machine.html            the same to look at and to hover over
  fairway topo --from p5.xml --svg p5.svg     a machine recorded elsewhere
  fairway topo nics --gpu 3                   the NICs for GPU3, best first, and why
  fairway topo diff healthy.json sick.json    what differs, costliest first)");
  tool.on_run(topo, [&tool, input, options] { return run(tool, *input, *options); });
}

}  // namespace fairway::tool
