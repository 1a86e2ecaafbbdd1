#pragma once

#include <string>
#include <vector>

#include "topology/machine.h"

namespace fairway::render {

struct TestMachine {
  std::string name;  // the file's, without its folder
  std::string path;
};
// The project's recorded machines: every snapshot of tests/machines; none in a build that cannot read them.
std::vector<TestMachine> recorded_machines();
// Recordings of others beside the sources; empty where they are absent.
std::vector<TestMachine> fixture_machines();
// The one of recorded_machines() or fixture_machines() of that name; a failed test and an empty fabric where it is
// absent.
topology::Fabric load_machine(const TestMachine& machine);

// Two GPUs and two NICs below one switch each, on two sockets; one GPU's link at half its width; a bonded NIC with a
// leg down; a management port. Every text in it that comes from outside holds characters that mean something to XML.
topology::Machine awkward_machine();

std::string read_text(const std::string& path);
std::string golden_folder();

}  // namespace fairway::render
