#include <algorithm>
#include <unordered_set>

#include "topology/commands/command_text.h"
#include "topology/output.h"
#include "topology/text.h"

// Commands in a text: at prompts, and as headings of what they printed.
namespace fairway::topology {
namespace {

constexpr std::string_view kCommands[] = {"nvidia-smi",
                                          "lspci",
                                          "ibv_devinfo",
                                          "ibv_devices",
                                          "ibstat",
                                          "ibstatus",
                                          "ibdev2netdev",
                                          "show_gids",
                                          "rdma",
                                          "ethtool",
                                          "ip",
                                          "ifconfig",
                                          "cat",
                                          "grep",
                                          "dmesg",
                                          "journalctl",
                                          "lscpu",
                                          "numactl",
                                          "lsmod",
                                          "sysctl",
                                          "uname",
                                          "ulimit",
                                          "df",
                                          "free",
                                          "env",
                                          "printenv",
                                          "export",
                                          "ls",
                                          "mlxlink",
                                          "mlxconfig",
                                          "mlnx_qos",
                                          "mlxfwmanager",
                                          "mst",
                                          "iblinkinfo",
                                          "ibnetdiscover",
                                          "perfquery",
                                          "ibdiagnet",
                                          "ucx_info",
                                          "fi_info",
                                          "ib_write_bw",
                                          "ib_read_bw",
                                          "ib_send_bw",
                                          "ib_write_lat",
                                          "iperf3",
                                          "ucx_perftest",
                                          "nvbandwidth",
                                          "mpirun",
                                          "srun",
                                          "torchrun",
                                          "python",
                                          "python3",
                                          "docker",
                                          "sudo",
                                          "rocm-smi",
                                          "amd-smi",
                                          "mx-smi",
                                          "hl-smi",
                                          "hostname",
                                          "nvcc",
                                          "lstopo",
                                          "hwloc-ls",
                                          "modinfo",
                                          "systemctl",
                                          "dcgmi",
                                          "cd",
                                          "source",
                                          "module",
                                          "ssh",
                                          "ompi_info",
                                          "all_reduce_perf",
                                          "nixlbench",
                                          "setpci",
                                          "tc",
                                          "dcb",
                                          "devlink",
                                          "ibping",
                                          "find",
                                          "head",
                                          "tail",
                                          "awk",
                                          "fairway",
                                          "lsb_release",
                                          "dpkg",
                                          "rpm",
                                          "kubectl",
                                          "perftest",
                                          "pdsh",
                                          "clush",
                                          "ansible",
                                          "stern",
                                          "parallel-ssh",
                                          "pssh",
                                          "lstopo-no-graphics"};

constexpr std::size_t kMaxCommand = 4096;

bool is_command(std::string_view words) {
  std::string_view name;
  do {  // "sudo NCCL_DEBUG=INFO all_reduce_perf"
    words = text::trim(words);
    name = words.substr(0, std::min(words.find_first_of(" \t"), words.size()));
    words.remove_prefix(name.size());
  } while (!name.empty() && (name == "sudo" || name.find('=') != name.npos));
  name = name.substr(name.rfind('/') + 1);
  static const std::unordered_set<std::string_view> known(std::begin(kCommands), std::end(kCommands));
  return known.contains(name);
}

// "nvidia-smi topo -m", "ibstat", "./all_reduce_perf -b 8" on a line of its own, without a prompt; no sentence about
// it.
bool is_bare_command(std::string_view line) {
  if (line.empty() || line.front() == ' ' || line.front() == '\t' || line.back() == '.') return false;
  const bool command = line.size() <= 200 && is_command(line);
  if (!command && !starts_a_job(line)) return false;
  const auto all = text::words(line);
  // "mpirun -np 16 -x NCCL_NET=IB ./a.out": what it sets has signs that sentences have too.
  if (all.size() > 1 && (all[1].starts_with('-') || all[1] == "run") && starts_a_job(line) &&
      !job_variables(line).empty())
    return true;
  if (!command) return false;
  // "cat /sys/class/net/eth0/speed", "lspci -vv | grep -E 'LnkSta|LnkCap'"
  if (all.size() > 1 && (all[1].starts_with('/') || (all[1].starts_with('-') && line.find(" | ") != line.npos)))
    return line.find(": ") == line.npos;
  if (line.find_first_of(":=|<>[") != line.npos) return false;
  return all.size() == 1 || std::any_of(all.begin() + 1, all.end(), [](auto word) { return word.starts_with('-'); });
}

}  // namespace

bool is_silent_command(std::string_view command) {
  const auto all = text::words(command);
  constexpr std::string_view kSilent[] = {"cd",  "export",   "source", "module", "sudo",
                                          "ssh", "modprobe", "exit",   "logout", "clear"};
  return all.empty() || std::ranges::find(kSilent, all[0]) != std::end(kSilent);
}

namespace {

// "root@node1:~# ": where such a prompt ends, whatever follows it; npos: there is none.
std::size_t end_of_prompt(std::string_view line) {
  if (host_of_prompt(line).empty() || line.find('@') == line.npos) return line.npos;
  for (const auto* end : {"$ ", "# "}) {
    const auto at = line.substr(0, 120).find(end);
    if (at == line.npos || at == 0) continue;
    const auto before = line.substr(0, at);
    const bool bracket = before.front() == '[' && before.ends_with(']');
    const bool path = before.ends_with('~') || before.find(":/") != before.npos || before.find(":~") != before.npos;
    if ((bracket || path) && text::words(before).size() <= 3) return at + 2;
  }
  return line.npos;
}

}  // namespace

bool is_bare_prompt(std::string_view line) {
  line = text::trim(line);
  if (line == "$") return true;  // "#" alone stands in many outputs
  if (line.size() > 120 || !(line.ends_with('$') || line.ends_with('#'))) return false;
  const auto longer = std::string(line) + " ";
  return end_of_prompt(longer) == longer.size();
}

std::string_view command_of_line(std::string_view line) {
  const auto trimmed = text::trim(line);
  if (trimmed.size() > kMaxCommand) return {};
  if (trimmed.starts_with("$ ")) return text::trim(trimmed.substr(2));
  // "==> /proc/cmdline <==" of head and tail
  if (trimmed.starts_with("==> ") && trimmed.ends_with(" <==")) return trimmed.substr(4, trimmed.size() - 8);
  // "Every 1.0s: ethtool -S eth0 | grep discard      node1: Tue Mar  3 ..." of watch
  if (const auto every = trimmed.find("s: "); trimmed.starts_with("Every ") && every < 16) {
    const auto rest = text::trim(trimmed.substr(every + 3));
    return rest.substr(0, rest.find("   "));
  }
  // "PS C:\\Users\\me> ssh node1 nvidia-smi", "➜  ~ nvidia-smi" and "❯ nvidia-smi" of zsh
  if (trimmed.starts_with("PS ") && trimmed.size() > 5 && trimmed[4] == ':') {
    const auto sign = trimmed.find("> ");
    if (sign != trimmed.npos) return text::trim(trimmed.substr(sign + 2));
  }
  for (const std::string_view sign : {"➜", "❯"}) {
    if (!trimmed.starts_with(sign)) continue;
    const auto rest = text::trim(trimmed.substr(sign.size()));
    if (is_command(rest)) return rest;
    const auto blank = rest.find(' ');  // behind the folder
    return blank == rest.npos ? rest : text::trim(rest.substr(blank));
  }
  // "node1$ "
  const auto sign = trimmed.find("$ ");
  if (sign != trimmed.npos && sign > 0 && sign < 40 && trimmed.substr(0, sign).find(' ') == trimmed.npos) {
    const auto command = text::trim(trimmed.substr(sign + 2));
    if (is_command(command)) return command;
  }
  // "user@host:~$ ", "[root@host ~]# "
  const auto at = trimmed.substr(0, 80).find('@');
  if (at != trimmed.npos && at > 0) {
    for (const auto* end : {"$ ", "# ", "> "}) {
      const auto prompt = trimmed.find(end, at);
      if (prompt == trimmed.npos || prompt > 120) continue;
      const auto before = trimmed.substr(0, prompt);
      const auto command = text::trim(trimmed.substr(prompt + 2));
      if (text::words(before).size() <= 3 && is_command(command)) return command;
    }
    if (const auto end = end_of_prompt(trimmed); end != trimmed.npos) return text::trim(trimmed.substr(end));
  }
  // "# lspci -vvv", "=== ibstat ===", "### `nvidia-smi topo -m`", "+ lscpu"
  const auto first = trimmed.find_first_not_of("#=*-+%>`: \t");
  const auto last = trimmed.find_last_not_of("#=*-`: \t");
  if (first == trimmed.npos) return {};
  const auto bare = trimmed.substr(first, last - first + 1);
  const bool decorated = first > 0 || (trimmed.ends_with(':') && trimmed.size() < 80);
  if (decorated) return is_command(bare) ? bare : std::string_view{};
  return is_bare_command(line) ? trimmed : std::string_view{};
}

OutputKind kind_of_command(std::string_view command) {
  const auto has = [command](std::string_view word) { return command.find(word) != command.npos; };
  if (has("uname -r")) return OutputKind::uname;
  if (has("ulimit")) return OutputKind::ulimit;
  if (has("/proc/cmdline")) return OutputKind::cmdline;
  if (has("/proc/sys/") || has("sysctl")) return OutputKind::sysctl;
  // "cat 0000:81:00.0/current_link_width" below /sys/bus/pci/devices
  const auto all = text::words(command);
  if (std::ranges::any_of(all, [](auto word) { return is_sysfs_path(word); })) return OutputKind::sysfs_files;
  if (has("/sys/") && (has("/infiniband/") || has("/net/") || has("/pci/devices/") || has("/devices/pci")))
    return OutputKind::sysfs_files;
  if (has("ibv_devinfo -l") || has("ibv_devinfo --list") || has("ibstat -l") || has("ibstat --list_of_cas"))
    return OutputKind::ibv_devices;
  if (has("ethtool -S") || has("ethtool --statistics")) return OutputKind::ethtool_statistics;
  if (has("dmesg") || has("journalctl")) return OutputKind::kernel_log;
  const auto words = text::words(command);
  // perftest that ended before its heading
  for (const auto word : words) {
    if (word == "sudo" || word.find('=') != word.npos) continue;
    const auto name = word.substr(word.rfind('/') + 1);
    if (name.starts_with("ib_") && (name.ends_with("_bw") || name.ends_with("_lat"))) return OutputKind::perftest;
    break;
  }
  if (!words.empty() && (words[0] == "env" || words[0] == "printenv")) return OutputKind::environment;
  return OutputKind::unknown;
}

// Settings of jobs in the lines that start them.

namespace {

// The words of a shell's line, without quotes, up to its end or a comment; "A=1; B=2" are two.
std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> out;
  std::string word;
  bool any = false;
  char quote = 0;
  const auto end = [&] {
    if (any) out.push_back(std::move(word));
    word.clear();
    any = false;
  };
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      any = true;
    } else if (c == ' ' || c == '\t' || c == ';' || c == '&' || c == '|') {
      end();
    } else if (c == '#' && !any) {
      break;
    } else {
      word += c;
      any = true;
    }
  }
  end();
  return out;
}

// "NCCL_IB_HCA"
bool is_name(std::string_view word) {
  if (!word.starts_with("NCCL_") && !word.starts_with("UCX_") && !word.starts_with("FI_")) return false;
  return word.size() > 4 && std::ranges::all_of(word, [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

bool add(std::string_view word, std::vector<JobVariable>& out) {
  const auto equals = word.find('=');
  if (equals == word.npos || !is_name(word.substr(0, equals))) return false;
  out.push_back({std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))});
  return true;
}

}  // namespace

std::vector<JobVariable> job_variables(std::string_view line) {
  std::vector<JobVariable> out;
  if (line.find("NCCL_") == line.npos && line.find("UCX_") == line.npos && line.find("FI_") == line.npos) return out;
  const auto words = shell_words(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (add(word, out)) continue;
    // "--env=NAME=VALUE", "--export=ALL,NAME=VALUE"
    if (word.starts_with("--")) {
      for (const auto part : text::split(word.substr(std::min(word.find('='), word.size() - 1) + 1), ','))
        add(part, out);
      continue;
    }
    // "-genv NAME VALUE" of MPICH, "setenv NAME VALUE", "set -x NAME VALUE"
    const bool next_is_value = word == "-genv" || word == "-env" || word == "setenv" || word == "-x" || word == "-gx";
    if (next_is_value && i + 2 < words.size() && is_name(words[i + 1]) && (word != "-x" || words[i - 1] == "set"))
      out.push_back({words[i + 1], words[i + 2]});
  }
  return out;
}

std::optional<JobVariable> variable_of_yaml(std::string_view line, std::string_view next) {
  const auto value_of = [](std::string_view words, std::string_view key) -> std::optional<std::string_view> {
    words = text::trim(words);
    if (words.starts_with("- ")) words = text::trim(words.substr(2));
    if (!words.starts_with(key)) return {};
    words = text::trim(words.substr(key.size()));
    if (words.size() > 1 && (words.front() == '"' || words.front() == '\'') && words.back() == words.front())
      words = words.substr(1, words.size() - 2);
    return words;
  };
  const auto name = value_of(line, "name:");
  if (!name || !is_name(*name)) return {};
  const auto value = value_of(next, "value:");
  if (!value) return {};
  return JobVariable{std::string(*name), std::string(*value)};
}

bool starts_a_job(std::string_view words) {
  words = text::trim(words);
  const auto word = words.substr(0, words.find_first_of(" \t"));
  if (word.empty()) return false;
  const auto name = word.substr(word.rfind('/') + 1);
  constexpr std::string_view kNames[] = {
      "mpirun",  "mpiexec", "mpiexec.hydra", "srun",       "torchrun",  "docker",     "podman",  "kubectl",
      "python",  "python3", "bash",          "sh",         "sudo",      "env",        "numactl", "taskset",
      "timeout", "nsys",    "deepspeed",     "accelerate", "vllm",      "ray",        "prun",    "aprun",
      "jsrun",   "nohup",   "exec",          "sglang",     "apptainer", "singularity"};
  if (std::ranges::find(kNames, name) != std::end(kNames)) return true;
  return word.starts_with("./") || word.starts_with('/') || word.starts_with("../") || name.ends_with("_perf") ||
         name.ends_with(".sh") || name.ends_with(".py") || name.ends_with("_perftest") || name.starts_with("ib_");
}

}  // namespace fairway::topology
