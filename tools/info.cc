// `fairway info`: what this build is, which variables it reads, which transports work here, and its limits.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fairway/fairway.h"

#include "bench/rows.h"
#include "command.h"
#include "help.h"
#include "variables.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace fairway::tool {
namespace {

struct Set {
  std::string name, value, note;
};

bool is_secret(std::string_view name) {
  return name == "FAIRWAY_JOB_KEY";
}

// The variables that are set, those that nothing reads among them.
std::vector<Set> set_variables() {
  std::vector<Set> found;
  std::vector<std::string> names;
  for (const Variable& each : variables()) names.emplace_back(each.name);
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view line(*each);
    const std::size_t equals = line.find('=');
    if (!line.starts_with("FAIRWAY_") || equals == std::string_view::npos) continue;
    Set one{std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)), {}};
    const auto known = std::ranges::find(variables(), one.name, &Variable::name);
    if (known == variables().end()) {
      const std::string meant = nearest(one.name, names);
      one.note = meant.empty() ? "nothing reads it" : fmt::format("nothing reads it; did you mean {}?", meant);
    } else {
      one.note = fmt::format("{}: {}", known->of, known->does);
    }
    if (is_secret(one.name)) one.value = fmt::format("({} characters)", one.value.size());
    found.push_back(std::move(one));
  }
  std::ranges::sort(found, {}, &Set::name);
  return found;
}

struct Way {
  std::string name;
  Status works;  // else why not
};

// What an engine says that has to do with that transport alone.
std::vector<Way> transports() {
  std::vector<Way> found;
  for (const char* name : {"shm", "cuda", "verbs", "fabric", "tcp"}) {
    EngineOptions options;
    options.transports = {name};
    found.push_back({name, Engine::open(options).status()});
  }
  return found;
}

struct Limit {
  std::string name, value, note;
};

std::string bytes_of(std::uint64_t bytes) {
  if (bytes >= std::uint64_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{} KiB", bytes >> 10);
}

std::string of_process(int resource, bool is_size) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "not known";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return is_size ? bytes_of(limit.rlim_cur) : std::to_string(limit.rlim_cur);
}

std::vector<Limit> limits() {
  const EngineOptions engine;
  std::vector<Limit> found{
      {"transfers in use", std::to_string(engine.max_transfers), "EngineOptions::max_transfers"},
      {"regions", std::to_string(engine.max_regions), "max_regions"},
      {"remote regions", std::to_string(engine.max_remote_regions), "max_remote_regions"},
      {"peers", std::to_string(engine.max_peers), "max_peers"},
      {"silence of a peer", fmt::format("{} ms", engine.peer_timeout.count()), "peer_timeout"},
      {"cores", std::to_string(std::max(1u, std::thread::hardware_concurrency())), "that this process may use"},
      {"locked memory", of_process(RLIMIT_MEMLOCK, true), "ulimit -l, of this shell: what NICs may pin"},
      {"open files", of_process(RLIMIT_NOFILE, false), "ulimit -n, of this shell"},
  };
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) == 0)
    found.push_back({"shared memory", bytes_of(std::uint64_t{room.f_bavail} * room.f_frsize),
                     fmt::format("free in /dev/shm, of {}", bytes_of(std::uint64_t{room.f_blocks} * room.f_frsize))});
  else
    found.push_back({"shared memory", "none", "/dev/shm cannot be looked at"});
  return found;
}

Exit info(Tool& tool, bool as_json, bool every) {
  const auto set = set_variables();
  const auto ways = transports();
  const auto all_limits = limits();
  if (as_json) {
    std::vector<bench::Fields> rows;
    const auto add = [&](const char* kind, const std::string& name, const std::string& value, const std::string& note) {
      rows.push_back({{"kind", kind, true}, {"name", name, true}, {"value", value, true}, {"note", note, true}});
    };
    add("build", "version", std::string(version()), std::string(features()));
    for (const Set& each : set) add("variable", each.name, each.value, each.note);
    if (every)
      for (const Variable& each : variables())
        add("known variable", std::string(each.name), std::string(each.otherwise),
            fmt::format("{}: {}", each.of, each.does));
    for (const Way& each : ways)
      add("transport", each.name, each.works ? "works" : "does not work", tool.in_flags(each.works.message()));
    for (const Limit& each : all_limits) add("limit", each.name, each.value, each.note);
    return tool.print(bench::json_of("fairway-info", "fairway info", rows));
  }
  std::string text = fmt::format("fairway {}\nbuilt with {}\n\nVariables that are set\n", version(), features());
  if (set.empty()) text += "  none\n";
  for (const Set& each : set) text += fmt::format("  {}={}  ({})\n", each.name, each.value, each.note);
  if (every) {
    text += "\nVariables\n";
    for (const Variable& each : variables())
      text += fmt::format("  {:27} {} ({}; without it: {})\n", each.name, each.does, each.of, each.otherwise);
  }
  text += "\nTransports\n";
  for (const Way& each : ways)
    text += fmt::format("  {:27} {}\n", each.name, each.works ? "works here" : tool.in_flags(each.works.message()));
  text += "\nLimits\n";
  for (const Limit& each : all_limits) text += fmt::format("  {:27} {}  ({})\n", each.name, each.value, each.note);
  if (!every) text += "\n`fairway info --variables` lists every variable that is read.\n";
  return tool.print(text);
}

}  // namespace

void add_info(Tool& tool) {
  CLI::App& command =
      tool.add(Group::tool, "info", "Show versions, variables that are set, transports that work here, and limits");
  const auto as_json = std::make_shared<bool>(false), every = std::make_shared<bool>(false);
  command.add_flag("--json", *as_json, "Print it as JSON");
  command.add_flag("--variables", *every, "List every variable of the environment that Fairway reads, too");
  command.footer(
      "A FAIRWAY_ variable that nothing reads is named.\nExamples:\n"
      "  fairway info\n"
      "  FAIRWAY_TRANSPORT=tcp fairway info     a misspelt variable");
  tool.on_run(command, [&tool, as_json, every] { return info(tool, *as_json, *every); });
}

}  // namespace fairway::tool
