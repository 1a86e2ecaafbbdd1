#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "topology/contradict.h"
#include "topology/text.h"

// Whose output it is, and whether it is whole.
namespace fairway::topology {
namespace {

using Kind = OutputKind;

bool is_host_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// The first label: tools print names with and without their domain. A container is not another host.
std::string short_host(std::string_view host) {
  if (host.empty() || host.size() > 64 || !std::ranges::all_of(host, is_host_letter)) return {};
  host = host.substr(0, host.find('.'));
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (host.size() == 12 && std::ranges::all_of(host, is_hex)) return {};
  if (host == "localhost") return {};
  return text::lower(host);
}

bool has_digit(std::string_view name) {
  return name.find_first_of("0123456789") != name.npos;
}

// Whether a word with a number is a host's name, and no device's.
bool is_host_name(std::string_view name) {
  const auto letters = name.find_first_of("0123456789");
  if (letters == 0 || letters == name.npos || !std::ranges::all_of(name, is_host_letter)) return false;
  const auto stem = text::lower(name.substr(0, letters));
  constexpr std::string_view kDevices[] = {
      "mlx",  "eth",  "ens", "enp",   "eno",  "ib",    "ibp",     "ibs", "bond", "nvme",  "nic", "rank", "numa",
      "port", "link", "h",   "b",     "a",    "v",     "gb",      "gh",  "l",    "mi",    "pci", "cx",   "step",
      "part", "wlp",  "enx", "rocep", "roce", "irdma", "bnxt_re", "hfi", "efa_", "rdmap", "cxi", "lane"};
  const bool gpu = stem == "gpu" && text::to_u32(name.substr(letters)) && name[letters] != '0';
  const bool gpu0 = stem == "gpu" && name.size() == letters + 1;
  return !gpu && !gpu0 && std::ranges::find(kDevices, stem) == std::end(kDevices);
}

// What pdsh, clush, srun, kubectl and docker compose put before each line: its length, and the name, which may be no
// host's.
struct Prefix {
  std::size_t size = 0;
  std::string_view name;
  bool sure = false;  // by its form alone
};
Prefix prefix_of(std::string_view line) {
  if (line.starts_with("[pod/")) {
    const auto close = line.find("] ");
    if (close == line.npos || close > 120) return {};
    const auto pod = line.substr(5, close - 5);
    return {close + 2, pod.substr(0, pod.find('/')), true};
  }
  const auto end = line.substr(0, 66).find_first_of(": |");
  if (end == line.npos || end == 0) return {};
  const auto name = line.substr(0, end);
  const bool task = name.size() <= 4 && text::to_u32(name).has_value();
  if (!task && !has_digit(name)) return {};
  if (line[end] == ':') {
    if (end + 1 == line.size()) return {end + 1, name};
    return line[end + 1] == ' ' ? Prefix{end + 2, name} : Prefix{};
  }
  const auto bar = line.find_first_not_of(' ', end);
  if (task || bar == line.npos || line[bar] != '|') return {};
  if (bar + 1 == line.size()) return {bar + 1, name};
  return line[bar + 1] == ' ' ? Prefix{bar + 2, name} : Prefix{};
}

}  // namespace

// "Mar 11 09:00:00 gpu-3 kernel: ...", "2026-03-11T09:00:00+0000 gpu-3 kernel: ...", "[ 8.31] gpu-3 kernel: ..."; the
// time may have been taken away.
std::string host_of_log_line(std::string_view line) {
  if (line.starts_with('[')) {
    const auto close = line.find("] ");
    if (close == line.npos || close > 40) return {};
    line.remove_prefix(close + 2);
  }
  const auto at = line.substr(0, 100).find(" kernel: ");
  if (at == line.npos) {
    // "Mar 11 09:00:00 gpu-3 systemd[1]: ..." beside them
    if (line.size() < 20 || line[0] < 'A' || line[0] > 'Z' || line[3] != ' ') return {};
    const auto words = text::words(line.substr(0, 100));
    const bool syslog = words.size() > 4 && words[2].size() == 8 && words[2][2] == ':' && words[4].ends_with(':');
    return syslog ? short_host(words[3]) : std::string();
  }
  const auto words = text::words(line.substr(0, at));
  if (words.empty() || words.size() > 6) return {};
  // Before the name stands a time, or nothing.
  const bool timed = words.size() == 1 || std::any_of(words.begin(), words.end() - 1, [](std::string_view word) {
                       return word.find(':') != word.npos;
                     });
  return timed ? short_host(words.back()) : std::string();
}

std::string host_of(const Output& output) {
  const bool tells = !is_measurement(output.kind) && output.kind != Kind::nccl_log && output.kind != Kind::iblinkinfo &&
                     output.kind != Kind::ibnetdiscover && output.kind != Kind::environment;
  return tells ? output.host : std::string();
}

HostLines lines_by_host(std::string_view content) {
  HostLines out;
  constexpr unsigned kTries = 256;                     // lines of a name that are looked at
  std::map<std::string, unsigned, std::less<>> names;  // those left; 0: one of them is surely of an output
  std::uint32_t number = 0;
  for (const auto line : text::lines(content)) {
    out.lines.push_back({line, ++number, 0});
    const auto prefix = prefix_of(line);
    if (prefix.size == 0) continue;
    auto known = names.find(prefix.name);
    if (known == names.end()) {
      if (names.size() >= 4096) continue;
      const bool host = prefix.sure || text::to_u32(prefix.name) || is_host_name(prefix.name);
      known = names.emplace(prefix.name, host ? kTries : 1).first;
    }
    if (known->second <= 1) continue;
    const auto rest = line.substr(prefix.size);
    const bool sure = prefix.sure || kind_of_line(rest) != Kind::unknown || is_failure(rest);
    known->second = sure ? 0 : known->second - 1;
  }
  std::map<std::string_view, std::uint32_t> hosts;
  for (const auto& [name, left] : names) {
    if (left != 0) continue;
    hosts[name] = static_cast<std::uint32_t>(out.hosts.size());
    const auto host = short_host(name);
    out.hosts.push_back(text::to_u32(name) ? "task " + name : host.empty() ? name : host);
  }
  if (hosts.empty()) return out;
  for (auto& line : out.lines) {
    const auto prefix = prefix_of(line.words);
    const auto host = prefix.size == 0 ? hosts.end() : hosts.find(prefix.name);
    if (host == hosts.end()) continue;
    line.host = host->second;
    line.words.remove_prefix(prefix.size);
  }
  // The lines of several hosts come as they arrive.
  for (auto at = out.lines.begin(); at != out.lines.end();) {
    const auto end = std::find_if(at, out.lines.end(), [](const HostLine& line) { return line.host == 0; });
    std::stable_sort(at, end, [](const HostLine& a, const HostLine& b) { return a.host < b.host; });
    at = end == out.lines.end() ? end : end + 1;
  }
  return out;
}

std::string host_of_banner(std::string_view line) {
  line = text::trim(line);
  if (const auto count = line.find(" ("); count != line.npos && line.ends_with(')')) line = line.substr(0, count);
  if (line.size() > 120 || !has_digit(line) || line.front() == '-' || line.front() == '[') return {};
  const bool plain = std::ranges::all_of(line, is_host_letter);
  if (plain) return is_host_name(line) ? short_host(line) : std::string();
  const bool set =
      std::ranges::all_of(line, [](char c) { return is_host_letter(c) || c == '[' || c == ']' || c == ','; });
  return set ? text::lower(line) : std::string();
}

std::string host_of_salt(std::string_view line, std::string_view next) {
  if (!line.ends_with(':') || !next.starts_with("    ") || next.size() == 4) return {};
  line.remove_suffix(1);
  return is_host_name(line) ? short_host(line) : std::string();
}

std::string host_of_ansible(std::string_view line) {
  line = line.substr(0, 120);
  if (line.find(" | ") == line.npos) return {};
  const auto words = text::words(line);
  if (words.size() < 3 || words[1] != "|") return {};
  constexpr std::string_view kStates[] = {"CHANGED", "SUCCESS", "FAILED", "FAILED!", "UNREACHABLE!"};
  if (std::ranges::find(kStates, words[2]) == std::end(kStates)) return {};
  return short_host(words[0]);
}

std::string host_of_prompt(std::string_view line) {
  line = text::trim(line);
  if (line.starts_with('(')) {  // "(base) user@host:~$"
    const auto close = line.find(") ");
    if (close != line.npos && close < 40) line.remove_prefix(close + 2);
  }
  if (line.starts_with('[')) line.remove_prefix(1);
  const auto at = line.substr(0, 80).find('@');
  if (at != line.npos && at > 0 && line.substr(0, at).find(' ') == line.npos) {
    const auto rest = line.substr(at + 1);
    return short_host(rest.substr(0, rest.find_first_of(": ]$#>~")));
  }
  const auto sign = line.find("$ ");
  if (sign == line.npos || sign == 0 || sign >= 40) return {};
  return short_host(line.substr(0, std::min(sign, line.find(':'))));
}

// "**node1**", "## gpu-03": one word with a number, and no device's.
std::string host_of_heading(std::string_view line) {
  line = text::trim(line);
  const auto first = line.find_first_not_of("#*= \t");
  const auto last = line.find_last_not_of("#*=: \t");
  if (first == line.npos || first == 0 || last < first) return {};
  const auto name = line.substr(first, last - first + 1);
  return is_host_name(name) ? short_host(name) : std::string();
}

bool is_cut_word(std::string_view word, std::initializer_list<std::string_view> whole) {
  const auto low = text::lower(word);
  bool begins = false;
  for (const auto one : whole) {
    if (one == low) return false;
    begins = begins || one.starts_with(low);
  }
  return begins && !low.empty();
}

std::string cut_off(const Output& output) {
  std::string_view last;
  std::size_t number = 0;
  std::size_t at = 0;
  std::size_t gpus = 0;
  std::optional<std::uint64_t> attached;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (text::trim(line).empty()) continue;
    last = line;
    at = number;
    if (output.kind != Kind::smi_query) continue;
    if (line.starts_with("Attached GPUs") && line.find(':') != line.npos)
      attached = text::leading_unsigned(text::trim(line.substr(line.find(':') + 1)));
    gpus += line.starts_with("GPU ") ? 1 : 0;
  }
  if (last.empty() || is_failure(last) || last.find(" lost") != last.npos) return {};
  const auto trimmed = text::trim(last);
  const auto colon = trimmed.find(':');
  const auto key = text::lower(text::trim(trimmed.substr(0, colon)));
  const auto value = colon == trimmed.npos ? std::string_view{} : text::trim(trimmed.substr(colon + 1));
  const auto half = [&] {
    return fmt::format("it ends within a line: {}: \"{}\"", output.at(at), text::quote(trimmed, 60));
  };
  switch (output.kind) {
    case Kind::smi_query:
      if (attached && gpus > 0 && gpus < *attached && output.command.find(" -i") == std::string::npos &&
          output.command.find("--id") == std::string::npos)
        return fmt::format("it says {} GPUs, and {} of them can be read", *attached, gpus);
      if (trimmed.find(" : ") == trimmed.npos && !trimmed.ends_with(':') && last.front() == ' ') return half();
      return {};
    case Kind::nvlink:
      if (key.starts_with("link") && (value.empty() || (value.front() == '<' && value.back() != '>'))) return half();
      // "25 G", "26.5"
      if (key.starts_with("link") && text::leading_double(value) && value.find(':') == value.npos &&
          !value.ends_with("/s"))
        return half();
      return {};
    case Kind::ibstat:
    case Kind::ibstatus:
    case Kind::ibv_devinfo: {
      if (colon == trimmed.npos) return last.front() == ' ' || last.front() == '\t' ? half() : std::string();
      // "GID[0]:" and "Port 1:" head what follows, and "device_cap_flags:" its list.
      if (value.empty() && (key == "state" || key == "rate" || key == "physical state" || key == "phys state" ||
                            key == "sm lid" || key == "base lid" || key == "lmc" || key == "link layer" ||
                            key == "link_layer" || key == "capability mask" || key == "port guid" ||
                            key == "node guid" || key == "active_mtu" || key == "port_lid"))
        return half();
      auto word = text::lower(value);
      if (const auto number_end = word.find(": "); number_end != std::string::npos) word = word.substr(number_end + 2);
      if (key == "state" && is_cut_word(word, {"active", "down", "initializing", "init", "armed", "port_active (4)",
                                               "port_down (1)", "port_init (2)", "port_armed (3)"}))
        return half();
      if ((key == "physical state" || key == "phys state") &&
          is_cut_word(word, {"linkup", "polling", "disabled", "sleep", "linkerrorrecovery"}))
        return half();
      if ((key == "link layer" || key == "link_layer") && is_cut_word(word, {"infiniband", "ethernet", "ib"}))
        return half();
      return {};
    }
    default: return {};
  }
}

}  // namespace fairway::topology
