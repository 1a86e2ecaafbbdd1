#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "fairway/fairway.h"

#include "arguments.h"
#include "bench/rows.h"
#include "command.h"
#include "rdma_flags.h"
#include "via.h"

// `fairway ping`: whether an engine answers, over which links, and how fast.
namespace fairway::tool {
namespace {

using Clock = std::chrono::steady_clock;

struct PingOptions {
  std::string address, directory, key;
  std::vector<std::string> via;
  unsigned count = 1000;
  RdmaOptions rdma;
  bool json = false;
};

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Exit ping(Tool& tool, const PingOptions& options) {
  EngineOptions wanted;
  use_only(wanted, options.via);
  wanted.rdma = options.rdma;
  wanted.job_key = options.key;
  wanted.directory = options.directory;
  if (!options.key.empty()) wanted.listen = "0.0.0.0:0";
  auto engine = Engine::open(wanted);
  if (!engine) return tool.fail(engine.status());
  const auto start = Clock::now();
  const auto peer = engine->connect(options.address);
  if (!peer) return tool.fail(peer.status());
  const double met = us_since(start);
  const auto links = engine->explain(*peer);
  if (!links) return tool.fail(links.status());
  std::vector<bench::Fields> rows{{{"peer", links->peer, true}, {"connected_ms", bench::known(met / 1000, 3)}}};
  for (const ExplainedLink& link : links->links)
    rows.push_back({{"link", link.name, true}, {"used", link.taken ? "true" : "false"}, {"reason", link.reason, true}});
  const auto tell = [&](const std::string& words) {
    return tool.print(options.json ? bench::json_of("fairway-ping", "fairway ping " + options.address, rows) : words);
  };
  std::string text = fmt::format("{} answers; connected and verified in {:.2f} ms\n", links->peer, met / 1000);
  for (const ExplainedLink& link : links->links) text += fmt::format("  {}  {}\n", link.name, link.reason);
  if (!options.json) tool.print(tool.in_flags(text));

  // Any engine answers; bytes need memory that it publishes, as `fairway bench --listen` does.
  const Timeout far_away(static_cast<std::int64_t>(2 * met));  // microseconds: connecting took several round trips
  const auto target = engine->lookup(*peer, "bench-target", std::chrono::milliseconds(300) + far_away);
  if (!target) return tell("it publishes no \"bench-target\", so no bytes were moved\n");
  std::array<std::uint64_t, 1> word{};
  const auto memory = engine->register_memory(word.data(), sizeof word, Access::none);
  if (!memory) return tool.fail(memory.status());
  std::vector<double> times;
  for (unsigned i = 0; i < options.count; ++i) {
    const auto began = Clock::now();
    const auto id = engine->read(*peer, Extent{{memory->id, 0, 8}, {target->id, 0}});
    if (!id) return tool.fail(id.status());
    const auto done = engine->wait(*id, std::chrono::seconds(10));
    if (!done || !done->status) return tool.fail(done ? done->status : done.status());
    times.push_back(us_since(began));
  }
  std::ranges::sort(times);
  const double median = times[times.size() / 2], p99 = times[times.size() * 99 / 100];
  rows.push_back({{"reads_of_8_bytes", fmt::format("{}", times.size())},
                  {"min_us", bench::known(times.front(), 2)},
                  {"median_us", bench::known(median, 2)},
                  {"p99_us", bench::known(p99, 2)},
                  {"max_us", bench::known(times.back(), 2)}});
  tell(fmt::format("{} reads of 8 bytes: min {:.1f}, median {:.1f}, p99 {:.1f}, max {:.1f} us\n", times.size(),
                   times.front(), median, p99, times.back()));
  return engine->deregister(*memory) ? Exit::done : Exit::failed;
}

}  // namespace

void add_ping(Tool& tool) {
  CLI::App& command = tool.add(Group::traffic, "ping", "Check that an engine answers, over which links and how fast");
  const auto options = std::make_shared<PingOptions>();
  command.add_option("ADDRESS", options->address, "HOST:PORT of an engine, or its name in --directory")->required();
  add_via(command, options->via, "Use only these transports: shm,cuda,verbs,tcp,fabric:PROVIDER,staged:TRANSPORT",
          Via::transports);
  command.add_option("--directory", options->directory,
                     "Directory in which to look up ADDRESS if it is a name: host:port of an engine, "
                     "redis://host:port, etcd://host:port");
  command.add_option("--count", options->count, "Number of 8-byte reads")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
  command.add_option("--key", options->key, "Job key, the same at both ends; required beyond loopback");
  command.add_flag("--json", options->json, "Print it as JSON");
  add_rdma_flags(command, options->rdma);
  command.footer(
      "Examples:\n"
      "  fairway bench --listen 127.0.0.1:7470 &      an engine that answers\n"
      "  fairway ping 127.0.0.1:7470");
  tool.on_run(command, [&tool, &command, options] {
    const Status status = check_address(options->address, options->directory, command);
    return status ? ping(tool, *options) : tool.misused(status.message());
  });
}

}  // namespace fairway::tool
