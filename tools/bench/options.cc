#include "options.h"

#include <algorithm>

#include "arguments.h"
#include "command.h"
#include "help.h"
#include "rdma_flags.h"

namespace fairway::tool::bench {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{64} << 30;  // bytes of a request
constexpr Operation kOperations[] = {Operation::write, Operation::read,      Operation::send,      Operation::notify,
                                     Operation::count, Operation::fetch_add, Operation::send_local};

}  // namespace

Result<Plan> plan_of(const BenchOptions& options, std::vector<std::uint64_t> sizes) {
  Plan plan;
  plan.sizes = options.sizes.empty() ? std::move(sizes) : options.sizes;
  for (const Operation operation : kOperations)
    if (options.operations.empty()
            ? operation != Operation::fetch_add && operation != Operation::send_local
            : std::ranges::find(options.operations, name_of(operation)) != options.operations.end())
      plan.operations.push_back(operation);
  plan.settings.sleeping = options.sleep;
  plan.settings.pages = options.pages;
  plan.settings.depth = options.depth;
  plan.settings.job_key = options.job_key;
  plan.settings.directory = options.directory;
  plan.settings.machine = options.from;
  plan.settings.rdma = options.rdma;
  plan.seconds_per_row = options.seconds;
  const std::uint64_t largest = *std::ranges::max_element(plan.sizes);
  const std::uint64_t one = std::max<std::uint64_t>(1, options.pages);
  if (largest > kMost / one) return Status(ErrorCode::invalid_argument, "--pages times --size is more than 64 GiB");
  plan.settings.most = std::max<std::uint64_t>(largest * one, 4 << 20);
  return plan;
}

void add_sizes_flag(CLI::App& command, BenchOptions& options) {
  add_sizes(command, "--size", options.sizes, "Message sizes: 8,4K,1MB (default: a range)", {1, kMost});
}

void add_output_flags(CLI::App& command, BenchOptions& options) {
  add_file(command, "--json", options.json, "Write the rows as JSON; - is standard output");
  add_file(command, "--csv", options.csv, "Write the rows as CSV; - is standard output");
  command.add_flag("--progress", options.progress, "Show progress on stderr (always on a terminal)");
}

void add_common_flags(CLI::App& command, BenchOptions& options) {
  add_sizes_flag(command, options);
  std::vector<std::string> names;
  for (const Operation each : kOperations) names.push_back(name_of(each));
  add_names(command, "--operation", options.operations, "Operations (default: all but fetch_add and send_local)",
            names);
  command
      .add_option("--pages", options.pages,
                  "Move this many scattered pages of that size in each request (default: one piece)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20));
  command.add_option("--depth", options.depth, "Writes or reads in flight at once; times are per operation")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{64}))
      ->capture_default_str();
  command.add_option("--seconds", options.seconds, "Least time to measure each row")
      ->check(number_in(0.0, 3600.0))
      ->capture_default_str();
  add_recorded_machine(command, options.from);
  command.add_flag("--sleep", options.sleep, "Wait in the kernel on both sides (default: poll)");
  add_output_flags(command, options);
  add_rdma_flags(command, options.rdma);
}

void add_memory_flags(CLI::App& command, BenchOptions& options) {
  add_memories(command, options.local, options.remote);
  add_names(command, "--memory", options.kinds,
            "Kinds of memory for gpu:N in --local and --remote, one after the other (default: device)",
            {"device", "managed", "pinned", "pageable", "shared"});
}

Status check_outputs(const BenchOptions& options) {
  const std::pair<const char*, std::string> outputs[] = {{"--json", options.json}, {"--csv", options.csv}};
  if (Status status = one_output_each(outputs); !status) return status;
  for (const auto& [flag, file] : outputs)
    if (Status status = can_write(file); !status) return status;
  return {};
}

}  // namespace fairway::tool::bench
