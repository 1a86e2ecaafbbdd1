#include "arguments.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "help.h"

namespace fairway::tool {
namespace {

constexpr std::string_view kUnits = "KMGTP";
constexpr double kMostBytes = 1ULL << 60;

Status no_size(std::string_view text) {
  return {ErrorCode::invalid_argument,
          fmt::format("'{}' is no size: a number of bytes, or one with K, M, G or T such as 4K (4KiB: 4096, 4KB: 4000)",
                      text)};
}

// 10Gb, 8kb: elsewhere a small b is of bits, and who writes it of a size means bits as often as bytes.
Status bits(std::string_view text) {
  const std::string number(text.substr(0, text.find_first_not_of("0123456789.")));
  const std::string unit(text.substr(number.size(), text.size() - number.size() - 1));
  return {ErrorCode::invalid_argument,
          fmt::format("'{}' is in bits: say {}{}B for bytes{}", text, number, unit,
                      unit.size() == 1 ? fmt::format(", or {}{}", number, unit) : std::string())};
}

// The factor of a unit; none if it is not a unit.
std::optional<double> scale_of(std::string unit) {
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::toupper(c); });
  if (unit.empty() || unit == "B") return 1.0;
  const std::size_t power = kUnits.find(unit.front());
  const std::string rest = unit.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "I" && rest != "IB")) return {};
  return std::pow(rest == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

// 4096 as "4K", as it may be typed.
std::string short_size(std::uint64_t bytes) {
  int unit = -1;
  while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) bytes /= 1024, ++unit;
  return unit < 0 ? fmt::format("{}", bytes) : fmt::format("{}{}", bytes, kUnits[static_cast<std::size_t>(unit)]);
}

std::uint64_t checked_size(const std::string& name, const std::string& text, SizeLimits limits) {
  const auto size = parse_size(text);
  if (!size) throw CLI::ValidationError(name, size.status().message());
  if (*size < limits.least || *size > limits.most)
    throw CLI::ValidationError(
        name, fmt::format("'{}' is no size from {} to {}", text, short_size(limits.least), short_size(limits.most)));
  return *size;
}

std::string not_one_of(const std::string& word, const std::vector<std::string>& known, std::string_view shown = {}) {
  const std::string meant = nearest(word, known);
  return fmt::format("'{}' is none of {}{}", word, shown.empty() ? fmt::format("{}", fmt::join(known, ", ")) : shown,
                     meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
}

// Empty, or why --via does not take this word.
std::string wrong_via(const std::string& word, Via what) {
  static const std::vector<std::string> kTransports{"shm", "cuda", "verbs", "tcp", "fabric", "staged"};
  static const std::vector<std::string> kCudaPaths{"nvlink", "pcie", "ipc", "fd"};
  const auto among = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const std::size_t colon = word.find(':');
  const std::string head = word.substr(0, colon);
  if (colon != std::string::npos && colon + 1 < word.size()) {
    if (head == "fabric") return {};
    if (head == "staged") return wrong_via(word.substr(colon + 1), Via::transports);
  } else if (colon == std::string::npos) {
    if (among(kTransports, word) || (what == Via::paths && among(kCudaPaths, word))) return {};
    if (among(kCudaPaths, word))
      return fmt::format("'{}' is a path of the transport cuda that only `fairway bench --via` can force; use cuda",
                         word);
  }
  // Names in other libraries.
  static const std::map<std::string, std::string> kElsewhere{
      {"rdma", "verbs"}, {"ib", "verbs"}, {"roce", "verbs"},     {"sm", "shm"},     {"cma", "shm"},
      {"sysv", "shm"},   {"p2p", "cuda"}, {"efa", "fabric:efa"}, {"sockets", "tcp"}};
  std::vector<std::string> known = kTransports;
  std::string shown = "shm, cuda, verbs, tcp, fabric:PROVIDER, staged:TRANSPORT";
  if (what == Via::paths) {
    known.insert(known.end(), kCudaPaths.begin(), kCudaPaths.end());
    shown += fmt::format(", {}", fmt::join(kCudaPaths, ", "));
  }
  if (const auto other = kElsewhere.find(word); other != kElsewhere.end())
    return fmt::format("'{}' is none of {}; did you mean '{}'?", word, shown, other->second);
  return not_one_of(word, known, shown);
}

bool is_number(std::string_view text, unsigned below) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value < below;
}

std::string wrong_memory(const std::string& name) {
  static const std::vector<std::string> kPlain{"host", "shared", "pinned"};
  if (std::ranges::find(kPlain, name) != kPlain.end()) return {};
  constexpr std::string_view kNuma = "host:numa", kGpu = "gpu:";
  if (name.starts_with(kNuma)) {
    if (is_number(std::string_view(name).substr(kNuma.size()), 1024)) return {};
    return fmt::format("'{}' needs a node number below 1024, as in host:numa0", name);
  }
  if (name.starts_with(kGpu)) {
    const std::string_view rest = std::string_view(name).substr(kGpu.size());
    const std::size_t colon = rest.find(':');
    const std::string_view kind = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
    const bool known = colon == std::string_view::npos || kind == "mapped" || kind == "locked" || kind == "managed";
    if (known && is_number(rest.substr(0, colon), 1024)) return {};
  }
  return not_one_of(name, {"host", "host:numa0", "shared", "pinned", "gpu:0", "gpu:0:mapped", "gpu:0:managed"},
                    kMemoryNames);
}

std::string wrong_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon != std::string::npos && colon > 0 && is_number(std::string_view(address).substr(colon + 1), 65536))
    return {};
  return fmt::format("'{}' is no HOST:PORT, as in 10.0.0.7:4000 or [fd00::7]:4000", address);
}

CLI::Validator check(std::string (*wrong)(const std::string&)) {
  return {[wrong](const std::string& word) { return wrong(word); }, ""};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items(1);
  for (const char each : text)
    if (each == ',')
      items.emplace_back();
    else
      items.back() += each;
  return items;
}

// The one parser of lists. CLI11's own (delimiter) passes over empty items, so that a slip would go unnoticed.
CLI::Option* add_split(CLI::App& command, const std::string& name,
                       const std::function<void(std::vector<std::string>)>& read, const std::string& sentence,
                       CLI::Validator item = {}) {
  const auto read_all = [read](const std::vector<std::string>& arguments) {
    std::vector<std::string> all;
    for (const std::string& argument : arguments)
      for (std::string& each : split(argument)) all.push_back(std::move(each));
    read(std::move(all));
  };
  const auto wrong = [item](const std::string& argument) {
    const std::vector<std::string> items = split(argument);
    std::vector<std::string> named = items;
    std::erase(named, "");
    if (named.empty()) return fmt::format("'{}' names nothing: leave the option out, or give it a value", argument);
    if (named.size() < items.size())
      return fmt::format("'{}' has an empty item; did you mean '{}'?", argument, fmt::join(named, ","));
    for (std::string& each : named)
      if (std::string why = item(each); !why.empty()) return why;
    return std::string();
  };
  return command.add_option_function<std::vector<std::string>>(name, read_all, sentence)
      ->check(CLI::Validator(wrong, item.get_description()));
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::general);
  if (error != std::errc() || text.front() == '-') return no_size(text);
  const auto scale = scale_of(std::string(end, text.data() + text.size()));
  if (!scale) return no_size(text);
  if (text.ends_with('b') && !text.ends_with("ib")) return bits(text);
  const double bytes = number * *scale;
  if (!(bytes >= 1) || bytes > kMostBytes || std::floor(bytes) != bytes) return no_size(text);
  return static_cast<std::uint64_t>(bytes);
}

CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& size, const std::string& sentence,
                      SizeLimits limits) {
  const auto read = [&size, name, limits](const std::string& text) { size = checked_size(name, text, limits); };
  return command.add_option_function<std::string>(name, read, sentence)->type_name("SIZE");
}

CLI::Option* add_sizes(CLI::App& command, const std::string& name, std::vector<std::uint64_t>& sizes,
                       const std::string& sentence, SizeLimits limits) {
  const auto read = [&sizes, name, limits](const std::vector<std::string>& words) {
    sizes.clear();
    for (const std::string& text : words) sizes.push_back(checked_size(name, text, limits));
  };
  return add_split(command, name, read, sentence)->expected(1)->allow_extra_args(false)->take_all()->type_name("SIZE");
}

CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& words,
                      const std::string& sentence, const CLI::Validator& item) {
  const auto read = [&words](std::vector<std::string> items) { words = std::move(items); };
  return add_split(command, name, read, sentence, item)
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->type_name("LIST");
}

CLI::Option* add_arguments(CLI::App& command, const std::string& name, std::vector<std::string>& words,
                           const std::string& sentence, const CLI::Validator& item) {
  return add_split(
      command, name, [&words](std::vector<std::string> items) { words = std::move(items); }, sentence, item);
}

CLI::Option* add_names(CLI::App& command, const std::string& name, std::vector<std::string>& names,
                       const std::string& sentence, const std::vector<std::string>& known) {
  return add_list(command, name, names, sentence, one_of(known));
}

CLI::Validator one_of(const std::vector<std::string>& known) {
  return {[known](const std::string& word) {
            return std::ranges::find(known, word) != known.end() ? std::string() : not_one_of(word, known);
          },
          fmt::format("{{{}}}", fmt::join(known, ","))};
}

CLI::Option* add_via(CLI::App& command, std::vector<std::string>& via, const std::string& sentence, Via what) {
  return add_list(command, "--via", via, sentence, via_word(what));
}

CLI::Validator via_word(Via what) {
  return {[what](const std::string& word) { return wrong_via(word, what); }, ""};
}

CLI::Validator memory_name() {
  return check(wrong_memory);
}

void was_called(CLI::App& command, const char* old, const std::string& now) {
  const auto refuse = [old = std::string(old), now](const std::string&) {
    throw CLI::ValidationError(old, "is called " + now + " now");
  };
  command.add_option_function<std::string>(old, refuse)->group("");
}

void add_memories(CLI::App& command, std::string& local, std::string& remote) {
  const auto add = [&](const char* flag, std::string& memory, std::string sentence) {
    if (!memory.empty()) sentence += " (default: " + memory + ")";
    command.add_option(flag, memory, sentence)->type_name("MEMORY")->check(memory_name());
  };
  add("--local", local, std::string("Memory of this process: ") + kMemoryNames);
  add("--remote", remote, "Memory of the other process");
  was_called(command, "--to", "--remote");
}

void add_recorded_machine(CLI::App& command, std::string& from, const std::string& sentence) {
  add_file(command, "--from", from,
           sentence.empty() ? "A recorded machine, whatever `fairway topo --from` reads, from which expected "
                              "rates are computed (default: inspect this one)"
                            : sentence);
  was_called(command, "--machine", "--from");
}

CLI::Validator number_in(double least, double most) {
  const CLI::Range range(least, most);
  const auto wrong = [range, least, most](const std::string& text) {
    double number = 0;
    (void)std::from_chars(text.data(), text.data() + text.size(), number);
    if (std::isnan(number)) return fmt::format("'{}' is no number from {} to {}", text, least, most);
    return range(text);
  };
  return {wrong, range.get_description()};
}

CLI::Validator host_and_port() {
  return check(wrong_address);
}

Status check_address(const std::string& address, const std::string& directory, const CLI::App& command) {
  if (const std::size_t scheme = directory.find("://"); scheme != std::string::npos) {
    if (!directory.starts_with("redis://") && !directory.starts_with("etcd://"))
      return {ErrorCode::invalid_argument,
              fmt::format("--directory: '{}' is none of HOST:PORT of an engine, redis://HOST:PORT, etcd://HOST:PORT",
                          directory)};
  }
  if (address.empty() || !directory.empty()) return {};
  std::string wrong = wrong_address(address);
  if (wrong.empty()) return {};
  std::vector<std::string> names;
  for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(each->get_name());
  const std::string meant = nearest(address, names);
  if (!meant.empty()) wrong += fmt::format(", and no command; did you mean '{}'?", meant);
  return {ErrorCode::invalid_argument, wrong + (meant.empty() ? "; names are looked up in a --directory" : "")};
}

}  // namespace fairway::tool
