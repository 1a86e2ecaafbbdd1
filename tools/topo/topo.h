#pragma once

#include <memory>
#include <string>

#include "command.h"
#include "render/phrases.h"
#include "topology/machine.h"

// What the files of `fairway topo` share.
namespace fairway::tool {

// The source of the machine. `fairway topo` and its subcommands share one.
struct TopoInput {
  std::string from;  // a file or folder; empty: the machine this runs on
};

// Adds --from.
void add_from_option(CLI::App& command, TopoInput& input);

// What --from names, or this machine.
Result<topology::Fabric> read_fabric(const TopoInput& input, bool keep_identities = false);
// The same, for commands that need exactly one machine.
Result<topology::Machine> read_machine(const TopoInput& input, bool keep_identities = false);
// Reports why it could not be read: exit 2 for a file of --from, 1 for this machine.
Exit cannot_read(const Tool& tool, const TopoInput& input, const Status& status);
// One machine from a file.
Result<topology::Machine> read_machine_file(const std::string& path);

render::TextStyle text_style(const Tool& tool);

// What `fairway predict` expects of the machine's paths, with the calibration beside the file where there is one. Keeps
// its own copy of the machine. Fails if that calibration cannot be read.
Result<render::ExpectRate> expect_rates(const topology::Machine& machine, const TopoInput& input);

struct PictureFiles {
  std::string svg;
  std::string html;
  std::string png;
  std::string theme = "auto";
  [[nodiscard]] bool any() const { return !svg.empty() || !html.empty() || !png.empty(); }
};
// `expect` serves the page of a single machine.
Status write_pictures(const topology::Fabric& fabric, const render::ExpectRate& expect, const PictureFiles& files);
// By rsvg-convert.
Status write_png(const std::string& svg, const std::string& path);

// The commands below `fairway topo`.
void add_topo_devices(Tool& tool, CLI::App& topo, const std::shared_ptr<TopoInput>& input);
void add_topo_checks(Tool& tool, CLI::App& topo, const std::shared_ptr<TopoInput>& input);
void add_topo_files(Tool& tool, CLI::App& topo, const std::shared_ptr<TopoInput>& input);

}  // namespace fairway::tool
