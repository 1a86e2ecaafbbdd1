#include <memory>

#include <fmt/format.h>

#include "arguments.h"
#include "bench/bench.h"
#include "bench/rows.h"
#include "command.h"
#include "help.h"
#include "other_process.h"
#include "rdma_flags.h"
#include "recorded.h"

// `fairway explain`: which path bytes would take between two memories, and why not another.
namespace fairway::tool {
namespace {

struct ExplainOptions {
  std::string address, local = "shared", remote = "shared", directory, key;
  std::string from;  // a recorded machine
  std::vector<std::string> via;
  RdmaOptions rdma;
  bool json = false;
};

std::string json_of(const Explanation& path) {
  std::vector<bench::Fields> rows;
  for (const ExplainedLink& link : path.links)
    rows.push_back({{"link", link.name, true},
                    {"used", link.taken ? "true" : "false"},
                    {"reason", link.reason, true},
                    {"expected_low_gbs", bench::known(link.expected_low / 1e9, 2)},
                    {"expected_high_gbs", bench::known(link.expected_high / 1e9, 2)},
                    {"bound", link.bound, true}});
  for (const std::string& note : path.notes) rows.push_back({{"note", note, true}});
  return bench::json_of("fairway-explain", fmt::format("{}: {}", path.peer, path.operation), rows);
}

Exit explain(Tool& tool, const ExplainOptions& options) {
  const auto snapshot = snapshot_of(options.from);
  if (!snapshot) return tool.unreadable(snapshot.status());
  OtherProcess other;
  std::string address = options.address;
  if (address.empty()) {
    std::vector<std::string> words{"bench", "--serve", "--local", options.remote, "--size", "4M"};
    for (const std::string& via : options.via) words.insert(words.end(), {"--via", via});
    const auto flags = words_of(options.rdma);
    words.insert(words.end(), flags.begin(), flags.end());
    const auto started = other.start(words);
    if (!started) return tool.fail(started.status());
    address = *started;
  }
  bench::Settings settings;
  settings.from = options.local;
  settings.to = options.remote;
  settings.via = options.via;
  settings.rdma = options.rdma;
  settings.job_key = options.key;
  settings.directory = options.directory;
  settings.machine = *snapshot;
  settings.most = 4 << 20;
  Explanation taken;
  const auto path = bench::open_path(address, settings, &taken);
  if (!path) return tool.fail(path.status());
  return tool.print(tool.in_flags(options.json ? json_of(taken) : taken.text()));
}

}  // namespace

void add_explain(Tool& tool) {
  CLI::App& command = tool.add(Group::insight, "explain", "Show which path bytes take between two memories, and why");
  const auto options = std::make_shared<ExplainOptions>();
  command.add_option("ADDRESS", options->address,
                     "HOST:PORT of a running `fairway bench --listen` (default: starts a second process here)");
  add_memories(command, options->local, options->remote);
  add_via(command, options->via, "Use only these transports: shm,cuda,verbs,tcp,fabric:PROVIDER,staged:TRANSPORT",
          Via::transports);
  command.add_option("--directory", options->directory,
                     "Directory in which to look up ADDRESS if it is a name: host:port of an engine, "
                     "redis://host:port, etcd://host:port");
  add_recorded_machine(command, options->from);
  command.add_option("--key", options->key, "Job key, the same at both ends; required beyond loopback");
  command.add_flag("--json", options->json, "Print it as JSON");
  add_rdma_flags(command, options->rdma);
  command.footer(
      "Examples:\n"
      "  fairway explain                              between two processes of this host\n"
      "  fairway explain --local gpu:0 --remote gpu:1 between two GPUs\n"
      "  fairway explain node2:7470 --key SECRET      to a host on which `fairway bench --listen` runs");
  tool.on_run(command, [&tool, &command, options] {
    const Status status = check_address(options->address, options->directory, command);
    return status ? explain(tool, *options) : tool.misused(status.message());
  });
}

}  // namespace fairway::tool
