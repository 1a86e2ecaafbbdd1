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

// ---- the readers of outputs that give facts ----

// Each returns what it gave, in words; empty: it understood nothing.

// What readers see and fill.
struct Gathered {
  const topology::Machine& machine;
  Facts& facts;
  std::vector<Measurement>& measured;
};

// Reads an output by its kind and says in it what became of it.
void read_output(topology::Output& output, const Gathered& to);
// Joins facts that two outputs give together: the type of an IOMMU group and its devices.
void join_facts(Facts& facts);

// What tools could not read of GPUs, or say of lost ones: facts "lost.GPU1" (or by bus id) and "unread.GPU1".
class ErrorCells {
 public:
  // Looks at one cell; `whose` is "GPU1" or a bus id.
  void see(const std::string& whose, std::string_view field, std::string_view value, const std::string& where);
  void tell(Facts& facts) const;

 private:
  struct Of {
    std::size_t cells = 0;
    bool lost = false;
    std::string words;
    std::string where;
  };
  std::map<std::string, Of> by_gpu_;
};
// The words of a failed command: the GPUs that it calls lost.
std::string read_failure(const topology::Output& output, const Gathered& to);

// The interface that a command or a file's name is about: "ethtool -S eth0".
std::string interface_of(const topology::Output& output, const topology::Machine& machine);

std::string read_limits(const topology::Output& output, const Gathered& to);
std::string read_ulimit(const topology::Output& output, const Gathered& to);
std::string read_cmdline(const topology::Output& output, const Gathered& to);
std::string read_meminfo(const topology::Output& output, const Gathered& to);
std::string read_modules(const topology::Output& output, const Gathered& to);
std::string read_mlxconfig(const topology::Output& output, const Gathered& to);
std::string read_qos(const topology::Output& output, const Gathered& to);
std::string read_driver_version(const topology::Output& output, const Gathered& to);
std::string read_variables(const topology::Output& output, const Gathered& to);
std::string read_smi_query(const topology::Output& output, const Gathered& to);
std::string read_smi_table(const topology::Output& output, const Gathered& to);
std::string read_gpu_query_facts(const topology::Output& output, const Gathered& to);
std::string read_collect_env(const topology::Output& output, const Gathered& to);
std::string read_nvlink_errors(const topology::Output& output, const Gathered& to);
std::string read_lspci_capabilities(const topology::Output& output, const Gathered& to);
std::string read_kernel_log(const topology::Output& output, const Gathered& to);
std::string read_sysctl(const topology::Output& output, const Gathered& to);
std::string read_uname(const topology::Output& output, const Gathered& to);
std::string read_disk_free(const topology::Output& output, const Gathered& to);
std::string read_iommu_types(const topology::Output& output, const Gathered& to);
std::string read_ip_statistics(const topology::Output& output, const Gathered& to);
std::string read_ethtool_modes(const topology::Output& output, const Gathered& to);
std::string read_ethtool_statistics(const topology::Output& output, const Gathered& to);
std::string read_mlxlink_facts(const topology::Output& output, const Gathered& to);
std::string read_iblinkinfo(const topology::Output& output, const Gathered& to);
std::string read_perfquery(const topology::Output& output, const Gathered& to);
std::string read_ibnetdiscover(const topology::Output& output, const Gathered& to);
std::string read_hl_smi_errors(const topology::Output& output, const Gathered& to);
std::string read_nccl_log(const topology::Output& output, const Gathered& to);
std::string read_ucx_log(const topology::Output& output, const Gathered& to);
std::string read_fabric_manager(const topology::Output& output, const Gathered& to);
std::string read_ucx_info(const topology::Output& output, const Gathered& to);
std::string read_fi_info(const topology::Output& output, const Gathered& to);

}  // namespace fairway::doctor
