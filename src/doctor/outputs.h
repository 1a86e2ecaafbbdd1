#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"
#include "doctor/gather.h"
#include "doctor/measurement.h"
#include "topology/output.h"

// The readers of outputs that give facts. Each returns what it gave, in words; empty: it understood nothing.
namespace fairway::doctor {

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
