// fairway topo snapshot, export, catalog: what is written for other times and other programs.
#include <fmt/format.h>

#include "arguments.h"
#include "help.h"
#include "topo.h"
#include "topology/catalog.h"
#include "topology/load.h"

namespace fairway::tool {
namespace {

struct SnapshotChoices {
  std::string file;
  bool keep_identities = false;
};
struct ExportOptions {
  std::string format;  // only one so far; scripts name it, so that another one can become the default
  std::string output = "-";
};

Exit run_snapshot(Tool& tool, const TopoInput& input, const SnapshotChoices& options) {
  Result<topology::Fabric> fabric = read_fabric(input, options.keep_identities);
  if (!fabric) return cannot_read(tool, input, fabric.status());
  topology::SnapshotOptions how;
  how.keep_identities = options.keep_identities;
  const Result<std::string> text = fabric->machines.size() == 1 ? topology::write_snapshot(fabric->machines[0], how)
                                                                : topology::write_snapshot(*fabric, how);
  if (!text) return tool.fail(text.status());
  const Status written = write_file(options.file, text.value());
  return written ? Exit::done : tool.fail(written);
}

Exit run_export(Tool& tool, const TopoInput& input, const ExportOptions& options) {
  Result<topology::Machine> machine = read_machine(input);
  if (!machine) return cannot_read(tool, input, machine.status());
  const Result<topology::Exported> exported = topology::export_nccl_xml(*machine);
  if (!exported) return tool.fail(exported.status());
  const Status written = write_file(options.output, exported->text);
  if (!written) return tool.fail(written);
  // On stderr: what is exported may go to stdout.
  for (const topology::Note& note : exported->lost) {
    tool.remark(fmt::format("left out: {}{}{}", note.subject, note.subject.empty() ? "" : ": ", note.text));
  }
  return Exit::done;
}

}  // namespace

void add_topo_files(Tool& tool, CLI::App& topo, const std::shared_ptr<TopoInput>& input) {
  CLI::App& snapshot = tool.add_below(topo, "snapshot", "Record the machine in a file that every --from reads");
  auto snapshot_options = std::make_shared<SnapshotChoices>();
  add_file(snapshot, "FILE", snapshot_options->file, "File to write; - is standard output")->required();
  snapshot.add_flag("--keep-identities", snapshot_options->keep_identities,
                    "Keep serial numbers, GUIDs, MACs, addresses and the host's name, which are scrubbed otherwise");
  add_from_option(snapshot, *input);
  snapshot.footer("Example:\n  fairway topo snapshot host.json");
  tool.on_run(snapshot, [&tool, input, snapshot_options] { return run_snapshot(tool, *input, *snapshot_options); });

  CLI::App& exporter = tool.add_below(topo, "export", "Write the machine for NCCL (NCCL_TOPO_FILE)");
  auto export_options = std::make_shared<ExportOptions>();
  exporter.add_option("FORMAT", export_options->format, "nccl")->required()->check(one_of({"nccl"}));
  add_file(exporter, "-o,--output", export_options->output, "File to write (default: standard output)");
  add_from_option(exporter, *input);
  exporter.footer(
      "What the format cannot say of this machine is listed on stderr.\n"
      "Example:\n"
      "  fairway topo export nccl -o topo.xml; NCCL_TOPO_FILE=topo.xml ./job");
  tool.on_run(exporter, [&tool, input, export_options] { return run_export(tool, *input, *export_options); });

  CLI::App& catalog = tool.add_below(topo, "catalog",
                                     "Print the generations of PCIe, NVLink, InfiniBand and their rates, with sources");
  auto as_json = std::make_shared<bool>(false);
  catalog.add_flag("--json", *as_json, "Print it as JSON");
  catalog.footer("Example:\n  fairway topo catalog | grep NVLink");
  tool.on_run(catalog, [&tool, as_json] {
    return tool.print(*as_json ? topology::catalogue_json() : topology::catalogue_text());
  });
}

}  // namespace fairway::tool
