#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Texts as people give them - a file of one command, a paste of several, a bug report - cut into the outputs that they
// hold, each recognised by content. What nobody understands is kept too: it is named in reports.
namespace fairway::topology {

enum class OutputKind : std::uint8_t {
  unknown,
  failure,  // the words of a command that failed
  // whole machines
  snapshot,
  fabric_snapshot,
  hwloc_xml,
  nccl_xml,
  topo_matrix,
  // GPUs
  topo_peers,
  gpu_query,
  smi_query,
  smi_table,
  nvlink,
  rocm_smi,
  amd_smi,
  mx_smi,
  hl_smi,
  npu_smi,
  driver_version,
  fabric_manager,  // systemctl status nvidia-fabricmanager
  // PCI
  lspci,
  lspci_drawing,
  sysfs_links,
  iommu_types,
  sysfs_files,
  // RDMA devices
  ibv_devinfo,
  ibv_devices,
  ibdev2netdev,
  ibstat,
  ibstatus,
  show_gids,
  rdma_link,
  rdma_statistic,
  mlxconfig,
  mlxlink,
  perfquery,
  iblinkinfo,
  ibnetdiscover,
  // network
  ip_link,
  ip_brief,
  bonding,
  ethtool,
  ethtool_statistics,
  qos,
  // host
  lscpu,
  numactl,
  kernel_log,
  cmdline,
  modules,
  limits,
  ulimit,
  meminfo,
  sysctl,
  uname,
  disk_free,
  environment,
  collect_env,
  // libraries
  nccl_log,
  ucx_info,
  ucx_log,
  fi_info,
  // measurements
  perftest,
  nccl_tests,
  nvbandwidth,
  bench,
  p2p_test,
  osu,
  imb,
  ucx_perftest,
  iperf,
  nixlbench,
  rows,  // a CSV of measured rows
};
// How people call it: "nvidia-smi topo -m".
std::string_view to_string(OutputKind kind);
bool is_measurement(OutputKind kind);

enum class ReadState : std::uint8_t {
  read,
  not_used,        // understood, and of no use here: `gave` says why
  not_understood,  // no known output
  failed,          // the command failed, or its output is no whole one
  empty,
  contradicted,  // another output says something else
  cut,           // read, and its end is missing
};
std::string_view to_string(ReadState state);
std::optional<ReadState> read_state_from(std::string_view text);

// One output, and what became of it.
struct Output {
  OutputKind kind = OutputKind::unknown;
  std::string file;     // for messages
  std::string command;  // as a prompt or a heading above it names it: "ethtool -S eth0"; else empty
  std::string text;
  std::vector<std::uint32_t> numbers;  // of the text's lines in the file, from 1
  bool prose = false;                  // words around outputs, which no fence or prompt marks as one
  ReadState state = ReadState::not_understood;
  std::string gave;  // "2 GPUs, 2 NICs", or why it was not read
  std::string host;  // as the prompt or the heading above names it; else empty
  std::string cut;   // how it was cut off; empty: it is whole

  // "report.txt:12" of the text's line, from 1.
  [[nodiscard]] std::string at(std::size_t line) const;
  void read_as(std::string what);
  void fail(std::string why);
};

// What was read of one text or source, for reports.
struct TextRead {
  std::string where;  // "topo.txt", "report.txt:12-30", "/sys"
  std::string what;   // "nvidia-smi topo -m"; of what is not understood its command or its first words
  ReadState state = ReadState::read;
  std::string gave;
  friend bool operator==(const TextRead&, const TextRead&) = default;
};

// The outputs of a text, in its order; an empty text gives one that is empty. Time is linear in the text.
std::vector<Output> cut_outputs(std::string_view content, const std::string& file);

// What one line is surely part of.
OutputKind kind_of_line(std::string_view line);
// The same of lines that other outputs may have too: they count where no known output is at hand.
OutputKind weak_kind_of_line(std::string_view line);
// "NAME=value", whatever the value says; not the kernel's command line.
bool is_assignment(std::string_view line);
// Whether a line that no output is known by may be part of one of this kind; the line is not blank.
bool may_hold(OutputKind kind, std::string_view line, bool after_blank);
// Of a text that stands by itself: XML and JSON.
OutputKind kind_of_document(std::string_view content);
// Of an output whose content says too little, by its command: `ulimit -l`.
OutputKind kind_of_command(std::string_view command);
// The command of a prompt, or of a line that heads an output; empty: the line is neither.
std::string_view command_of_line(std::string_view line);
// A prompt behind which nothing was typed.
bool is_bare_prompt(std::string_view line);
// The host that a prompt, or a heading of one word, names, in lower case; empty: none.
std::string host_of_prompt(std::string_view line);
std::string host_of_heading(std::string_view line);
// The same of a name between two rules, as `clush -b` and dshbak print it ("node[1-3] (3)"), of ansible's
// "node1 | CHANGED | rc=0 >>", and of a line of a system's log.
std::string host_of_banner(std::string_view line);
std::string host_of_ansible(std::string_view line);
std::string host_of_salt(std::string_view line, std::string_view next);  // "node1:" above lines to the right of it
std::string host_of_log_line(std::string_view line);

// The lines of a text. Where tools that run on several hosts put a name before each ("node1: ", "[pod/a/b] "), it is
// taken away, and the lines of one host stand together.
struct HostLine {
  std::string_view words;
  std::uint32_t number = 0;  // in the text, from 1
  std::uint32_t host = 0;    // of `hosts`; 0: no name stood before it
};
struct HostLines {
  std::vector<HostLine> lines;
  std::vector<std::string> hosts{""};
};
HostLines lines_by_host(std::string_view content);
// Whose the output is, where it tells of one host: what a pair of hosts, or a job, prints names others by right.
std::string host_of(const Output& output);
// Commands that print nothing when all is well.
bool is_silent_command(std::string_view command);
// Whether these are the words of a command that failed, or found nothing.
bool is_failure(std::string_view line);

struct JobVariable {
  std::string name, value;
};

// The variables of NCCL, UCX and libfabric that a line of a shell, or of a launcher, sets for a job: "NCCL_DEBUG=INFO",
// "export UCX_TLS=rc", "mpirun -x NCCL_IB_HCA=mlx5_0 ./a.out", "docker run -e NCCL_NET=IB".
std::vector<JobVariable> job_variables(std::string_view line);

// The variable that two lines of a pod's YAML set: "- name: NCCL_DEBUG" and "value: INFO".
std::optional<JobVariable> variable_of_yaml(std::string_view line, std::string_view next);

// Whether words begin with a command that programs of jobs are started by, or with a program's path.
bool starts_a_job(std::string_view words);

}  // namespace fairway::topology
