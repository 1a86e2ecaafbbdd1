#include <algorithm>

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
  if (host.empty() || host.size() > 64 || !std::all_of(host.begin(), host.end(), is_host_letter)) return {};
  host = host.substr(0, host.find('.'));
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (host.size() == 12 && std::all_of(host.begin(), host.end(), is_hex)) return {};
  if (host == "localhost") return {};
  return text::lower(host);
}

// "Mar 11 09:00:00 gpu-3 kernel: ...", "2026-03-11T09:00:00+0000 gpu-3 kernel: ..."
std::string host_of_log_line(std::string_view line) {
  const auto at = line.substr(0, 100).find(" kernel: ");
  if (at == line.npos || line.starts_with('[')) return {};
  const auto words = text::words(line.substr(0, at));
  if (words.size() < 2 || words.size() > 4 || words[words.size() - 2].find(':') == line.npos) return {};
  return short_host(words.back());
}

// What a pair of hosts, or a job, prints names other hosts by right.
bool tells_of_one_host(const Output& output) {
  return output.kind != Kind::unknown && output.kind != Kind::failure && !is_measurement(output.kind) &&
         output.kind != Kind::nccl_log && output.kind != Kind::iblinkinfo && output.kind != Kind::ibnetdiscover &&
         output.kind != Kind::environment;
}

}  // namespace

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
  const auto letters = name.find_first_of("0123456789");
  if (letters == 0 || letters == name.npos || !std::all_of(name.begin(), name.end(), is_host_letter)) return {};
  const auto stem = text::lower(name.substr(0, letters));
  constexpr std::string_view kDevices[] = {"mlx",  "eth", "ens",  "enp",  "eno",  "ib",   "ibp", "ibs",  "bond",
                                           "nvme", "nic", "rank", "numa", "port", "link", "h",   "b",    "a",
                                           "v",    "gb",  "gh",   "l",    "mi",   "pci",  "cx",  "step", "part"};
  const bool gpu = stem == "gpu" && text::to_u32(name.substr(letters)) && name[letters] != '0';
  const bool gpu0 = stem == "gpu" && name.size() == letters + 1;
  if (gpu || gpu0 || std::find(std::begin(kDevices), std::end(kDevices), stem) != std::end(kDevices)) return {};
  return short_host(name);
}

TextRead several_hosts(const std::vector<Output>& outputs) {
  std::vector<std::string> hosts;
  std::string where;
  const auto meet = [&](const std::string& host, const Output& output, std::size_t line) {
    if (host.empty() || std::find(hosts.begin(), hosts.end(), host) != hosts.end() || hosts.size() >= 64) return;
    hosts.push_back(host);
    if (hosts.size() == 2) where = output.at(line);
  };
  for (const auto& output : outputs) {
    if (!tells_of_one_host(output)) continue;
    meet(output.host, output, 1);
    if (output.kind != Kind::kernel_log) continue;
    std::size_t number = 0;
    for (const auto line : text::lines(output.text)) meet(host_of_log_line(line), output, ++number);
  }
  if (hosts.size() < 2) return {};
  std::string names;
  for (std::size_t i = 0; i < hosts.size() && i < 8; ++i) names += (i == 0 ? "" : ", ") + hosts[i];
  if (hosts.size() > 8) names += ", ...";
  return {where, "hosts", ReadState::contradicted,
          fmt::format("{} hosts in one text: {}: split it, or use `fairway doctor fleet`", hosts.size(), names)};
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
