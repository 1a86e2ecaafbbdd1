#include "bench_verbs.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench_case.h"
#include "command.h"

namespace fairway::tool {
namespace {

using namespace bench;
using raw::Action;
using raw::Shape;
using raw::Type;

struct BenchVerbsOptions {
  std::vector<std::string> types, operations, sizes, devices;
  Shape shape;  // what all rows share
  int gid_index = -1;
  double seconds = 0.15;
  std::string json, csv;
};

template <class Enum, std::size_t size>
std::vector<Enum> named(const Enum (&all)[size], const std::vector<std::string>& names) {
  std::vector<Enum> out;
  for (const Enum each : all)
    if (names.empty() || std::find(names.begin(), names.end(), raw::name_of(each)) != names.end()) out.push_back(each);
  return out;
}

// What was named on both sides must go together; what was not is left out where it does not.
Result<raw::Plan> plan_of(const BenchVerbsOptions& options) {
  raw::Plan plan;
  std::vector<std::uint64_t> sizes{8, 64, 4 << 10, 64 << 10, 1 << 20};
  if (!options.sizes.empty()) sizes.clear();
  for (const std::string& text : options.sizes) {
    const auto size = parse_size(text);
    if (!size) return size.status();
    if (*size > raw::kMostMemory / 4)
      return Status(ErrorCode::invalid_argument, "--size " + text + ": sizes up to 256M are measured");
    sizes.push_back(*size);
  }
  for (const Type type : named(raw::kTypes, options.types))
    for (const Action action : named(raw::kActions, options.operations)) {
      Shape shape = options.shape;
      shape.type = type;
      shape.action = action;
      if (const Status status = raw::allowed(type, action, shape.events); !status) {
        if (!options.types.empty() && !options.operations.empty()) return status;
        continue;
      }
      for (const std::uint64_t size : shape.atomic() ? std::vector<std::uint64_t>{8} : sizes) {
        shape.size = size;
        plan.shapes.push_back(shape);
      }
    }
  if (plan.shapes.empty())
    return Status(ErrorCode::invalid_argument, "nothing to measure: no type of queue pair carries these operations");
  plan.drop_what_does_not_fit = options.sizes.empty() || options.types.empty();
  if (options.devices.size() > 2)
    return Status(ErrorCode::invalid_argument, "--device takes one device or port, or two: the measuring side's first");
  if (!options.devices.empty()) {
    plan.from = options.devices.front();
    plan.to = options.devices.back();
  }
  plan.gid_index = options.gid_index;
  plan.seconds_per_row = options.seconds;
  return plan;
}

Exit run_verbs(Tool& tool, const BenchVerbsOptions& options) {
  const auto plan = plan_of(options);
  if (!plan) return tool.misused(plan.status().message());
  for (const std::string* file : {&options.json, &options.csv})
    if (Status status = can_write(*file); !status) return tool.fail(status);
  std::vector<raw::Row> rows;
  Status status;
  {
    const Meter meter(tool.surroundings().stdout_is_tty);
    status = raw::run(*plan, meter, rows);
  }
  if (!status) return status.code() == ErrorCode::invalid_argument ? tool.misused(status.message()) : tool.fail(status);
  std::vector<Fields> all;
  for (const raw::Row& row : rows) all.push_back(raw::fields(row));
  return tell(tool, {{options.json, json_of("fairway-bench-verbs", "bench verbs", all)}, {options.csv, csv_of(all)}},
              raw::table(rows));
}

}  // namespace

void add_bench_verbs(Tool& tool, CLI::App& bench) {
  CLI::App& command = tool.add_below(
      bench, "verbs", "Measure RDMA devices by themselves, without an engine: RC, UC, UD, every operation");
  const auto options = std::make_shared<BenchVerbsOptions>();
  const auto words = [](const auto& all) {
    std::vector<std::string> names;
    for (const auto each : all) names.push_back(raw::name_of(each));
    return names;
  };
  command.add_option("--type", options->types, "Types of queue pair: RC,UC,UD (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(words(raw::kTypes)));
  command
      .add_option("--operation", options->operations,
                  "Which: write,write_immediate,read,send,fetch_add,compare_swap (default: all that the type carries)")
      ->delimiter(',')
      ->check(CLI::IsMember(words(raw::kActions)));
  command.add_option("--size", options->sizes, "Sizes: 8,4K,1M (default: a range); atomics have 8 bytes")
      ->delimiter(',');
  command.add_option("--queue-pairs", options->shape.queue_pairs, "So many, used in turns")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  command
      .add_option("--inline", options->shape.inline_bytes,
                  "Up to so many BYTES a work request carries itself (default: as many as the device can, to 256)")
      ->type_name("BYTES")
      ->check(CLI::Range(0, 4096));
  command
      .add_option("--post-list", options->shape.post_list, "So many work requests a doorbell, the last one signalled")
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command.add_option("--sge", options->shape.gathers, "So many pieces of local memory a work request")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command.add_flag("--events", options->shape.events, "Both sides sleep on the completion channel; else both poll");
  command.add_option("--mtu", options->shape.mtu, "Of the path, in bytes (default: the ports' own)")
      ->check(CLI::IsMember(std::vector<std::uint32_t>{256, 512, 1024, 2048, 4096}));
  command.add_option("--gid", options->gid_index, "Index of the address of both ports (default: as `verbs` chooses)")
      ->type_name("INDEX")
      ->check(CLI::Range(0, 255));
  command
      .add_option("--device", options->devices,
                  "Device or port of the measuring side and of the other: mlx5_0,mlx5_1/1; one: of both")
      ->delimiter(',');
  command.add_option("--seconds", options->seconds, "Measure each row at least so long")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--json", options->json, "Write the rows there; - is stdout")->type_name("FILE");
  command.add_option("--csv", options->csv, "The same as CSV")->type_name("FILE");
  tool.on_run(command, [&tool, options] { return run_verbs(tool, *options); });
}

}  // namespace fairway::tool
