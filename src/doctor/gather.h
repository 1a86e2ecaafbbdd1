#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "doctor/facts.h"
#include "doctor/measurement.h"
#include "topology/machine.h"
#include "topology/output.h"

// Where facts come from. A reader records why it could not read what it could not; none needs root.
namespace fairway::doctor {

// A machine and the facts about it.
struct Case {
  topology::Machine machine;
  Facts facts;
  std::vector<topology::TextRead> read;  // the texts or sources they are from, and what became of each
  std::vector<Measurement> measured;     // rates that stand among the texts
  // Which outputs said what a machine's sources say, by the source's name: "ibstat, report.txt:3".
  std::map<std::string, std::string> said_by;
  std::string host;         // its name, where the texts are of several hosts
  std::vector<Case> hosts;  // the other ones, each by itself
};

// This machine. `environment`: the job's NCCL_* variables, read by the caller.
Result<Case> look_around(const std::map<std::string, std::string>& environment);
// A recording: what `fairway doctor --save` wrote, or anything that `fairway topo --from` reads, and outputs that give
// facts alone (docs/doctor.md lists them). Fails if nothing of it is understood.
Result<Case> read_case(const std::string& path);

// What --save writes: the machine's snapshot and the facts, as JSON. unsupported if the build has no JSON.
Result<std::string> write_case(const Case& one);
bool is_case(std::string_view text);
Result<Case> parse_case(std::string_view text, const std::string& name);

// The readers. `root` has sys/ and proc/ below it; "" is this machine.
void read_kernel_facts(const std::string& root, const topology::Machine& machine, Facts& facts);
void read_pci_facts(const std::string& root, const topology::Machine& machine, Facts& facts);
// The registers of one PCI function, from the bytes of its config file.
void read_config_space(std::string_view bytes, const std::string& prefix, const std::string& where, Facts& facts);
// Outputs of commands in a text, of which those that give facts are read; false if there are none.
bool read_pasted(std::string_view text, const std::string& name, const topology::Machine& machine, Facts& facts);
// What this machine's NIC drivers report: ethtool statistics, PFC, mlx5 bonds, devlink parameters.
void read_link_facts(const topology::Machine& machine, Facts& facts);
// By NVML, opened at run time.
void read_nvml_facts(const topology::Machine& machine, Facts& facts);
// NCCL_* as facts, and the topology file that NCCL_TOPO_FILE names, compared with the machine.
void read_environment(const std::map<std::string, std::string>& environment, const std::string& where,
                      const topology::Machine& machine, Facts& facts);

}  // namespace fairway::doctor
