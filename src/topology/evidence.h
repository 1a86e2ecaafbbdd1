#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "topology/machine.h"
#include "topology/output.h"

// A file or folder as evidence about one machine: read once, cut into outputs, each read by its one reader.
namespace fairway::topology {

struct Evidence {
  Machine machine;         // complete and valid; empty where nothing describes it
  bool described = false;  // whether anything said what the machine is made of
  // All outputs, in the order of files. Those that say nothing of the machine's parts are left at `not_understood`,
  // with their kind, for other readers.
  std::vector<Output> outputs;
  // Of the other hosts whose outputs are in the same texts; none of them has hosts of its own.
  std::vector<Evidence> hosts;
  std::string host;              // its name, where there are several
  std::vector<TextRead> others;  // what is no text: captured trees, folders, files that could not be read
};

// A file, a folder of files, or a captured tree, which may have files beside sys/ and proc/. Fails if the path cannot
// be read, or is a document (snapshot, XML) that is none.
Result<Evidence> read_evidence(const std::string& path);
Result<Evidence> evidence_of(std::string_view content, const std::string& path);

// Reads the outputs that describe parts of the machine, adds them to `machine`, and keeps it in the evidence. Fails
// where the only output is a document that cannot be read.
Status build_machine(const std::string& path, Machine machine, Evidence& evidence);

// Why there is no machine: what was given, and what became of it.
Status not_described(const Evidence& evidence, const std::string& path);
// For reports: `others`, then the outputs. An output whose reader is `not_understood` is named by its first words.
std::vector<TextRead> texts_of(const Evidence& evidence);

}  // namespace fairway::topology
