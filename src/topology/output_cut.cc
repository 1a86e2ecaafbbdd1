// size: one way of cutting, with all its marks
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "topology/machine.h"
#include "topology/output.h"
#include "topology/text.h"

// Where one output of a text ends and the next begins.
namespace fairway::topology {
namespace {

using Kind = OutputKind;

constexpr std::size_t kMaxOutputs = 4096;

// Of GPUs' tables: nvidia-smi's path classes, its words on peer access, or others'.
bool is_gpu_heading(std::string_view line) {
  const auto parts = text::words(line);
  const auto at = std::ranges::find(parts, "GPU0");
  if (at == parts.end()) return false;
  const auto next = at + 1;
  return next != parts.end() &&
         (next->starts_with("GPU") || next->starts_with("NIC") || next->starts_with("mlx") || *next == "CPU");
}
Kind kind_of_gpu_table(const std::vector<std::string_view>& lines, std::size_t heading, Kind now) {
  // rocm-smi heads its tables so too, with numbers or links below.
  if (now == Kind::rocm_smi) {
    const auto first = heading + 1 < lines.size() ? text::words(lines[heading + 1]) : std::vector<std::string_view>{};
    if (first.size() < 2 || first[1] != "X") return Kind::unknown;
  }
  for (std::size_t i = heading + 1; i < lines.size() && i < heading + 8; ++i) {
    const auto cells = text::words(lines[i]);
    if (cells.empty() || !cells[0].starts_with("GPU")) continue;
    for (std::size_t c = 1; c < cells.size() && c < 64; ++c) {
      constexpr std::string_view kPeers[] = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};
      if (std::ranges::find(kPeers, cells[c]) != std::end(kPeers)) return Kind::topo_peers;
      if (cells[c] == "MX") return Kind::mx_smi;
    }
    if (cells.size() > 1 && PathClass::parse(cells[1])) return Kind::topo_matrix;
  }
  return Kind::topo_matrix;
}

bool is_noise(std::string_view line) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  if (std::ranges::none_of(line, letter)) return true;
  // "Tue Mar  3 10:15:22 2026" above nvidia-smi's table; "/sys/class/net:" and "total 0" of ls
  const auto parts = text::words(line);
  if ((parts.size() == 2 && parts[0] == "total") || (line.starts_with("/sys/") && line.ends_with(":"))) return true;
  return parts.size() >= 5 && parts.size() <= 7 && parts[0].size() == 3 && parts[3].size() == 8 && parts[3][2] == ':';
}

bool is_log(Kind kind) {
  return kind == Kind::kernel_log || kind == Kind::nccl_log;
}

// Whether a command that printed other things failed in this. ethtool says without root that it may not show all, and
// lspci that a device has no readable product data: both are no failures of what they print.
bool is_failure_beside(Kind kind, std::string_view line) {
  if (kind == Kind::topo_matrix || kind == Kind::topo_peers || is_log(kind) || is_measurement(kind)) return false;
  if (line.front() == ' ' || line.front() == '\t' || !is_failure(line)) return false;
  if (line.find("Operation not permitted") != line.npos) return kind != Kind::ethtool;
  return !line.starts_with("pcilib: sysfs_read_vpd");
}

class Cutter {
 public:
  Cutter(std::string_view content, const std::string& file) : file_(file) {
    if (auto plain = text::as_plain(content); !plain.empty()) {
      plain_ = std::move(plain);
      content = plain_;
    }
    if (content.find('\x1b') != content.npos) {
      clean_ = text::without_escapes(content);
      content = clean_;
    }
    if (kind_of_document(content) == Kind::unknown) {
      clean_ = text::without_wrapping(content);
      content = clean_;
    }
    content_ = content;
    auto by_host = lines_by_host(content_);
    hosts_ = std::move(by_host.hosts);
    for (const auto& line : by_host.lines) {
      lines_.push_back(line.words);
      numbers_.push_back(line.number);
      line_hosts_.push_back(line.host);
    }
  }

  std::vector<Output> cut() {
    if (const auto kind = kind_of_document(content_); kind != Kind::unknown) {
      auto& whole = open(kind);
      whole.text = std::string(content_);
      return std::move(outputs_);
    }
    std::size_t i = 0;
    for (; i < lines_.size() && outputs_.size() < kMaxOutputs; i = std::max(next_, i + 1)) take(i);
    auto out = finish();
    if (i < lines_.size()) {
      auto& rest = out.emplace_back();
      rest.file = file_;
      rest.command = fmt::format("what follows {} outputs", kMaxOutputs);
      rest.numbers = {numbers_[i], numbers_.back()};
      rest.state = ReadState::cut;
      rest.gave =
          fmt::format("{} are not read: give them in texts of their own", text::count(lines_.size() - i, "line"));
    }
    return out;
  }

 private:
  Output& open(Kind kind) {
    current_ = outputs_.size();
    headings_.clear();
    auto& out = outputs_.emplace_back();
    out.kind = kind;
    out.file = file_;
    out.command = command_;
    out.host = host_;
    out.prose = command_.empty() && !fenced_;
    return out;
  }

  void append(std::size_t output, std::size_t line) {
    auto& out = outputs_[output];
    out.text += lines_[line];
    out.text += '\n';
    out.numbers.push_back(numbers_[line]);
  }

  // Between commands and around fences.
  void boundary(std::string_view command, bool heading = false) {
    end_command();
    command_ = text::quote(command, 120);
    heading_ = heading;
    current_.reset();
    logs_.clear();
    failed_.reset();
    said_ = false;
    after_blank_ = false;
  }

  // A command without any output.
  void end_command() {
    if (command_.empty() || said_ || heading_ || is_silent_command(command_)) return;
    auto& out = open(Kind::unknown);
    out.state = ReadState::empty;
    out.gave = "it printed nothing";
    current_.reset();
  }

  // Where the lines of another host begin, whose command is the same.
  void turn_to(std::uint32_t host) {
    if (host == line_host_) return;
    if (line_host_ == 0) host_above_ = host_;
    line_host_ = host;
    said_ = true;  // the command above
    boundary(host == 0 ? std::string() : command_, true);
    host_ = host == 0 ? host_above_ : hosts_[host];
  }

  static bool is_ruler(std::string_view line) {
    line = text::trim(line);
    return line.size() > 3 && line.find_first_not_of('-') == line.npos;
  }

  // The host that a line heads, and nothing else.
  [[nodiscard]] std::string host_headed(std::size_t i) const {
    if (auto host = host_of_ansible(lines_[i]); !host.empty()) return host;
    if (i + 1 < lines_.size()) {
      if (auto host = host_of_salt(lines_[i], lines_[i + 1]); !host.empty()) return host;
    }
    const bool banner = i > 0 && i + 1 < lines_.size() && is_ruler(lines_[i - 1]) && is_ruler(lines_[i + 1]);
    return banner ? host_of_banner(lines_[i]) : std::string();
  }

  void take(std::size_t i) {
    turn_to(line_hosts_[i]);
    const auto line = lines_[i];
    const auto trimmed = text::trim(line);
    if (trimmed.empty()) {
      after_blank_ = true;
      if (current_) append(*current_, i);
      return;
    }
    const bool after_blank = after_blank_;
    if (trimmed.starts_with("```") || trimmed.starts_with("~~~")) {
      // "### ibstat" above a fence is what stands in it.
      const auto above = !fenced_ && !said_ ? command_ : std::string();
      heading_ = heading_ || !above.empty();
      boundary(above, !above.empty());
      return turn_fence();
    }
    if (trimmed.front() == '<' && (trimmed.starts_with("<details") || trimmed.starts_with("</details") ||
                                   trimmed.starts_with("<pre") || trimmed.starts_with("</pre")))
      return boundary({});
    if (is_bare_prompt(trimmed)) return boundary({});
    if (auto host = host_headed(i); !host.empty()) {
      said_ = true;
      boundary(command_, true);
      host_ = std::move(host);
      return;
    }
    if (take_yaml(i)) return;
    if (const auto command = command_of_line(line); !command.empty()) {
      // Who goes elsewhere from here says nothing of this host.
      if (auto host = host_of_prompt(line); !host.empty()) host_ = std::move(host);
      return begin(command, i);
    }
    if (!fenced_) {
      if (auto host = host_of_heading(trimmed); !host.empty()) {
        said_ = true;
        if (host != host_) boundary({});
        host_ = std::move(host);
        return;
      }
    }
    take_words(i, line, trimmed, after_blank);
  }

  // "- name: NCCL_DEBUG" and "  value: INFO" of a pod's environment.
  bool take_yaml(std::size_t i) {
    const auto variable = i + 1 < lines_.size() ? variable_of_yaml(lines_[i], lines_[i + 1]) : std::nullopt;
    if (!variable) return false;
    said_ = fence_said_ = true;
    if (!current_ || outputs_[*current_].kind != Kind::environment) open(Kind::environment);
    auto& out = outputs_[*current_];
    out.text += fmt::format("{}='{}'\n", variable->name, variable->value);
    out.numbers.push_back(numbers_[i]);
    next_ = i + 2;
    return true;
  }

  // A block that holds commands and nothing else says what to run, not that they print nothing.
  void turn_fence() {
    fenced_ = !fenced_;
    has_fences_ = true;
    if (!fenced_ && !fence_said_) {
      const auto begin = outputs_.begin() + static_cast<std::ptrdiff_t>(std::min(before_fence_, outputs_.size()));
      outputs_.erase(
          std::remove_if(begin, outputs_.end(), [](const Output& one) { return one.state == ReadState::empty; }),
          outputs_.end());
    }
    before_fence_ = outputs_.size();
    fence_said_ = false;
  }

  void begin(std::string_view command, std::size_t i) {
    // "# ibstat" may be root's prompt; these are headings.
    const auto line = text::trim(lines_[i]);
    // "==> FILE <==": what `tail` or `head`, the command above, prints.
    if (line.starts_with("==> ")) said_ = true;
    boundary(command, line.starts_with("##") || line.starts_with("- ") || line.starts_with("* ") ||
                          line.starts_with("==") || line.starts_with('`'));
    const auto whole = whole_command(command, i);
    const auto set = job_variables(whole);
    if (set.empty() && !command.starts_with("export ")) return;
    // What it sets is what it says.
    said_ = true;
    open(Kind::environment);
    append(*current_, i);
    auto& out = outputs_.back();
    out.text = set.empty() ? std::string(command) + "\n" : std::string();
    out.numbers.clear();
    for (const auto& one : set) out.text += fmt::format("{}='{}'\n", one.name, one.value);
    out.numbers.assign(std::max<std::size_t>(set.size(), 1), numbers_[i]);
    current_.reset();
  }

  // With the lines that it goes on in, behind a backslash at each end.
  std::string whole_command(std::string_view command, std::size_t i) {
    std::string whole(command);
    while (whole.ends_with('\\') && i + 1 < lines_.size() && whole.size() < 16 * 1024) {
      whole.back() = ' ';
      auto more = text::trim(lines_[++i]);
      if (more.starts_with("> ")) more.remove_prefix(2);  // the shell's second prompt
      whole += more;
      next_ = i + 1;
    }
    return whole;
  }

  void take_words(std::size_t i, std::string_view line, std::string_view trimmed, bool after_blank) {
    said_ = fence_said_ = true;
    const auto now = current_ ? outputs_[*current_].kind : Kind::unknown;
    // The value of a variable may hold the words of any output.
    if (now == Kind::environment && !after_blank && is_assignment(trimmed)) return append(*current_, i);
    auto kind = belongs_by_indent(now, line, trimmed) ? Kind::unknown : kind_of_line(line);
    // What a program that measures logs through UCX is its own.
    if (kind == Kind::ucx_log && is_measurement(now)) kind = Kind::unknown;
    if (is_log(kind)) {
      // The log of several hosts is as many outputs.
      const auto own = kind == Kind::kernel_log ? host_of_log_line(line) : std::string();
      const auto host = own.empty() ? host_ : own;
      auto log = logs_.find({kind, host});
      if (log == logs_.end()) {
        const auto kept = current_;
        open(kind).host = host;
        log = logs_.emplace(std::pair{kind, host}, *current_).first;
        current_ = kept;
      }
      append(log->second, i);
      return;
    }
    if (kind == Kind::topo_matrix) {
      const bool heading = is_gpu_heading(line) || (now != Kind::topo_matrix && now != Kind::topo_peers);
      // mx-smi prints one matrix, its own.
      const bool own = now == Kind::mx_smi && outputs_[*current_].text.find("GPU0") == std::string::npos;
      kind = heading && !own ? kind_of_gpu_table(lines_, i, now) : Kind::unknown;
    }
    const bool known = now != Kind::unknown;
    if (known && kind == Kind::unknown && is_failure_beside(now, line)) return fail_beside(i);
    if (kind == Kind::unknown && (!known || after_blank || !may_hold(now, line, after_blank)))
      kind = weak_kind_of_line(line);
    // A line that is surely of an output, old or new, ends the doubt.
    after_blank_ = after_blank && known && kind == Kind::unknown;
    if (kind != Kind::unknown) {
      const bool again = kind == now && ((kind == Kind::topo_matrix && is_gpu_heading(line)) ||
                                         kind == Kind::topo_peers || trimmed.starts_with("Ethernet Channel Bonding") ||
                                         kind == Kind::ethtool_statistics || headings_.contains(headed(kind, line)));
      if (!current_ || kind != now || again) start(kind);
    } else if (!current_ || (known && !may_hold(now, line, after_blank))) {
      open(Kind::unknown);
    }
    append(*current_, i);
    // Told of again it is another output: of a later time, or of another host.
    if (auto heads = headed(kind, line); !heads.empty()) headings_.insert(std::move(heads));
  }

  // A line of the command's own on what it could not do: a text of its own, which the reports name.
  void fail_beside(std::size_t i) {
    const auto kept = current_;
    const bool more = failed_ && outputs_[*failed_].command == command_;
    if (!more) {
      open(Kind::failure).fail(text::quote(text::trim(lines_[i]), 120));
      failed_ = current_;
    }
    append(*failed_, i);
    if (more) {
      auto& failure = outputs_[*failed_];
      failure.gave = fmt::format("{} (and {})", failure.gave.substr(0, failure.gave.rfind(" (and ")),
                                 text::count(failure.numbers.size() - 1, "line") + " more");
    }
    current_ = kept;
  }

  // Lines below a heading that stand to the right of it.
  static bool belongs_by_indent(Kind now, std::string_view line, std::string_view trimmed) {
    if (line.front() != ' ' && line.front() != '\t') return false;
    switch (now) {
      case Kind::lspci:
      case Kind::ibv_devinfo:
      case Kind::ibstat:
      case Kind::ibstatus:
      case Kind::smi_query:
      case Kind::nvlink:
      case Kind::ethtool:
      case Kind::ethtool_statistics:
      case Kind::mlxconfig:
      case Kind::mlxlink:
      case Kind::amd_smi:
      case Kind::ip_link:
      case Kind::numactl:
        return !trimmed.starts_with("GPU0") && trimmed.find(" BW Test") == trimmed.npos &&
               trimmed.find("NVRM: Xid") == trimmed.npos;
      default: return false;
    }
  }

  // What a line heads, by its first words: a device, or a table; empty: it heads nothing.
  static std::string headed(Kind kind, std::string_view line) {
    std::size_t words = 0;
    switch (kind) {
      case Kind::disk_free:
      case Kind::ip_brief: words = 1; break;
      case Kind::smi_query:
      case Kind::ibstat:
      case Kind::ibv_devinfo:
      case Kind::nvlink:
      case Kind::rdma_link: words = 2; break;
      case Kind::ibdev2netdev: words = 3; break;
      case Kind::ibstatus: words = 5; break;
      default: break;
    }
    if (words == 0 || line.front() == ' ' || line.front() == '\t') return {};
    std::string out;
    for (const auto word : text::words(line)) {
      if (words-- == 0) break;
      out += std::string(word) + " ";
    }
    return out;
  }

  void start(Kind kind) {
    // What stands below its prompt is one output, whatever its first lines are.
    if (current_ && !command_.empty() && outputs_[*current_].kind == Kind::unknown && !has_failed(*current_, kind)) {
      outputs_[*current_].kind = kind;
      return;
    }
    open(kind);
  }

  [[nodiscard]] bool has_failed(std::size_t output, Kind kind) const {
    const auto all = text::lines(outputs_[output].text);
    return std::ranges::any_of(all, [kind](auto line) { return !line.empty() && is_failure_beside(kind, line); });
  }

  std::vector<Output> finish() {
    end_command();
    std::vector<Output> out;
    std::optional<std::size_t> unknown;
    for (auto& one : outputs_) {
      if (one.kind == Kind::unknown && one.state != ReadState::empty && !recognise_whole(one)) continue;
      // What no prompt sets apart is one piece, however it lies.
      if (one.kind == Kind::unknown && one.command.empty() && one.state == ReadState::not_understood) {
        one.prose = one.prose && has_fences_;
        if (unknown && out[*unknown].prose == one.prose && out[*unknown].host == one.host) {
          out[*unknown].text += one.text;
          out[*unknown].numbers.insert(out[*unknown].numbers.end(), one.numbers.begin(), one.numbers.end());
          continue;
        }
        unknown = out.size();
      } else if (unknown && *unknown + 1 == out.size() && is_remark_above(out.back(), one)) {
        out.pop_back();
        unknown.reset();
      }
      out.push_back(std::move(one));
    }
    if (out.empty()) {
      current_.reset();
      command_.clear();
      outputs_.clear();
      auto& nothing = open(Kind::unknown);
      nothing.state = ReadState::empty;
      nothing.prose = false;
      nothing.gave = "it is empty";
      out.push_back(std::move(nothing));
    }
    return out;
  }

  // Lines of "# ..." right above the first line of an output.
  static bool is_remark_above(const Output& remark, const Output& output) {
    if (remark.numbers.empty() || output.numbers.empty() || remark.numbers.back() + 1 != output.numbers.front())
      return false;
    const auto lines = text::lines(remark.text);
    return std::ranges::all_of(lines, [](auto line) { return line.starts_with('#') || text::trim(line).empty(); });
  }

  // By its command, as a document, or as a failure; false: it is nothing.
  static bool recognise_whole(Output& one) {
    if (one.kind = kind_of_document(one.text); one.kind != Kind::unknown) return true;
    bool any = false;
    for (const auto line : text::lines(one.text)) {
      if (is_noise(line)) continue;
      any = true;
      // ibdiagnet marks what it found so, among what it did.
      if (!is_failure(line) || (line.starts_with("-E- ") && one.text.find("-I- ") != std::string::npos)) continue;
      one.kind = Kind::failure;
      one.fail(text::quote(text::trim(line), 120));
      return true;
    }
    if (any) one.kind = kind_of_command(one.command);
    return any;
  }

  std::string plain_;
  std::string clean_;
  std::string_view content_;
  std::string file_;
  std::vector<std::string_view> lines_;
  std::vector<std::uint32_t> numbers_;     // of the lines in the text
  std::vector<std::uint32_t> line_hosts_;  // of `hosts_`, by the names before lines
  std::vector<std::string> hosts_;
  std::size_t next_ = 0;  // the line behind a command of several
  std::uint32_t line_host_ = 0;
  std::string host_above_;  // before the lines with names
  std::vector<Output> outputs_;
  std::optional<std::size_t> current_;
  std::map<std::pair<Kind, std::string>, std::size_t> logs_;
  std::optional<std::size_t> failed_;  // the command's text of failures beside its output
  std::string command_;
  std::string host_;                // of the prompt or the heading above
  std::set<std::string> headings_;  // of devices in the current output
  bool said_ = false;
  bool heading_ = false;  // the command is a heading's, which may have its output elsewhere
  bool fenced_ = false;
  bool has_fences_ = false;
  bool fence_said_ = false;       // whether the fence holds more than commands
  std::size_t before_fence_ = 0;  // outputs
  bool after_blank_ = false;
};

}  // namespace

std::vector<Output> cut_outputs(std::string_view content, const std::string& file) {
  return Cutter(content, file).cut();
}

std::string Output::at(std::size_t line) const {
  const auto number = line > 0 && line <= numbers.size() ? numbers[line - 1] : static_cast<std::uint32_t>(line);
  return fmt::format("{}:{}", file, number);
}

void Output::read_as(std::string what) {
  state = ReadState::read;
  gave = std::move(what);
}

void Output::fail(std::string why) {
  state = ReadState::failed;
  gave = std::move(why);
}

}  // namespace fairway::topology
