#include "bench_options.h"

#include <algorithm>

#include "command.h"
#include "help.h"
#include "rdma_flags.h"
#include "words.h"

namespace fairway::tool::bench {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{64} << 30;  // bytes of a request
constexpr Operation kOperations[] = {Operation::write,  Operation::read,  Operation::send,
                                     Operation::notify, Operation::count, Operation::fetch_add};

}  // namespace

Result<Plan> plan_of(const BenchOptions& options, std::vector<std::uint64_t> sizes) {
  Plan plan;
  plan.sizes = options.sizes.empty() ? std::move(sizes) : options.sizes;
  for (const Operation operation : kOperations)
    if (options.operations.empty() ? operation != Operation::fetch_add
                                   : std::find(options.operations.begin(), options.operations.end(),
                                               name_of(operation)) != options.operations.end())
      plan.operations.push_back(operation);
  plan.settings.sleeping = options.sleep;
  plan.settings.pages = options.pages;
  plan.settings.depth = options.depth;
  plan.settings.job_key = options.job_key;
  plan.settings.directory = options.directory;
  plan.settings.machine = options.machine;
  plan.settings.rdma = options.rdma;
  plan.seconds_per_row = options.seconds;
  const std::uint64_t largest = *std::max_element(plan.sizes.begin(), plan.sizes.end());
  const std::uint64_t one = std::max<std::uint64_t>(1, options.pages);
  if (largest > kMost / one) return Status(ErrorCode::invalid_argument, "--pages times --size is more than 64 GiB");
  plan.settings.most = std::max<std::uint64_t>(largest * one, 4 << 20);
  return plan;
}

void add_sizes_flag(CLI::App& command, BenchOptions& options) {
  add_sizes(command, "--size", options.sizes, "Sizes: 8,4K,1MB (default: a range)", {1, kMost});
}

void add_output_flags(CLI::App& command, BenchOptions& options) {
  command.add_option("--json", options.json, "Write the rows there; - is stdout")->type_name("FILE");
  command.add_option("--csv", options.csv, "The same as CSV")->type_name("FILE");
  command.add_flag("--progress", options.progress, "Say on stderr what is measured; on a terminal always");
}

void add_common_flags(CLI::App& command, BenchOptions& options) {
  add_sizes_flag(command, options);
  std::vector<std::string> names;
  for (const Operation each : kOperations) names.push_back(name_of(each));
  add_names(command, "--operation", options.operations, "Which (default: all but fetch_add)", names);
  command.add_option("--pages", options.pages, "So many pages of that size in each request, scattered")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20));
  command
      .add_option("--depth", options.depth, "So many writes or reads on their way at once; the time is each one's part")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{64}))
      ->capture_default_str();
  command.add_option("--seconds", options.seconds, "Measure each row at least so long")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command
      .add_option("--machine", options.machine,
                  "A snapshot that says what this machine is, for what to expect; else it is looked at")
      ->type_name("FILE")
      ->check(no_empty_name());
  command.add_flag("--sleep", options.sleep, "Both sides wait in the kernel; else both poll");
  add_output_flags(command, options);
  add_rdma_flags(command, options.rdma);
}

void add_memory_flags(CLI::App& command, BenchOptions& options) {
  command.add_option("--from", options.from, std::string("Memory of this process: ") + kMemoryNames)
      ->type_name("MEMORY")
      ->check(memory_name());
  command.add_option("--to", options.to, "Memory of the other process")->type_name("MEMORY")->check(memory_name());
  add_names(command, "--memory", options.kinds, "What gpu:N of --from and --to is made of, one kind after the other",
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
