#include "options.h"

#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "arguments.h"
#include "gpu.h"
#include "help.h"

namespace fairway::tool::bench {
namespace {

constexpr int kMostRanks = 64;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

Status refused(const std::string& words) {
  return {ErrorCode::invalid_argument, words};
}

Status fits_hosts(const CollectiveOptions& options) {
  if (options.beside_nccl()) return refused("--beside nccl: it moves GPU memory; add --memory gpu");
  if (options.graph) return refused("--graph: graphs are of GPUs; add --memory gpu");
  if (!options.from.empty()) return refused("--from: it tells what joins GPUs; add --memory gpu");
  if (options.namespaces) {
    if (options.via != std::vector<std::string>{"tcp"})
      return refused("--namespaces: ranks reach each other by tcp there, so --via takes only that");
    for (const std::string& tool : options.beside)
      if (tool != "gloo") return refused(fmt::format("--namespaces: only gloo runs beside it, not {}", tool));
  }
  if (options.per_host > 1 && !options.namespaces)
    return refused("--per-host: without --namespaces all ranks are on this host");
  return {};
}

Status fits_gpus(const CollectiveOptions& options) {
  const auto of_hosts = [](const char* flag, const char* why) {
    return refused(fmt::format("{}: {}; leave it out, or --memory gpu", flag, why));
  };
  if (!options.via.empty()) return of_hosts("--via", "kernels move GPU memory, no transport does");
  if (options.namespaces) return of_hosts("--namespaces", "GPUs of one host reach each other without a network");
  if (options.per_host > 1) return of_hosts("--per-host", "all GPUs are of this host");
  if (options.local) return of_hosts("--local-completion", "on a stream an operation ends for all ranks");
  for (const std::string& tool : options.beside)
    if (tool != "nccl")
      return refused(
          fmt::format("--beside {}: its ranks have host memory; name nccl, or leave out --memory gpu", tool));
  if (options.algorithm == "automatic") return {};
  const bool is_of_gpus = options.algorithm == "one_shot" || options.algorithm == "direct";
  const bool all =
      std::ranges::all_of(options.operations, [](const std::string& name) { return name == "all_reduce"; });
  if (!is_of_gpus || !all)
    return refused(
        fmt::format("--algorithm {}: on GPUs all_reduce has one_shot and direct, and others have none; leave it out",
                    options.algorithm));
  return {};
}

Result<std::vector<int>> ranks_of(const CollectiveOptions& options) {
  if (options.ranks.empty()) return options.on_gpus() ? usual_gpu_ranks() : std::vector<int>{2, 4};
  const int most = options.on_gpus() ? kMostGpuRanks : kMostRanks;
  std::vector<int> all;
  for (const std::string& text : options.ranks) {
    const int ranks = std::atoi(text.c_str());
    if (ranks < 1 || ranks > most || fmt::format("{}", ranks) != text)
      return refused(fmt::format("--ranks: '{}' is no number of 1 to {}{}", text, most,
                                 options.on_gpus() ? ", as many as use each other's GPUs" : ""));
    all.push_back(ranks);
  }
  return all;
}

std::vector<std::uint64_t> sizes_of(const CollectiveOptions& options) {
  if (!options.sizes.empty()) return options.sizes;
  return {8, 64, 512, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
}

}  // namespace

bool CollectiveOptions::beside_nccl() const {
  return std::ranges::find(beside, "nccl") != beside.end();
}

std::optional<GpuPlace> CollectiveOptions::gpu() const {
  if (!on_gpus()) return {};
  return GpuPlace{graph, beside_nccl(), nccl_library};
}

Result<CollectivePlan> plan_of(const CollectiveOptions& options) {
  const auto type = type_of(options.type);
  const auto reduction = reduction_of(options.reduction);
  const auto algorithm = algorithm_of(options.algorithm);
  if (!type) return type.status();
  if (!reduction) return reduction.status();
  if (!algorithm) return algorithm.status();
  if (Status status = options.on_gpus() ? fits_gpus(options) : fits_hosts(options); !status) return status;
  if (!options.nccl_library.empty() && !options.beside_nccl())
    return refused("--nccl-library: nothing uses it; add --memory gpu --beside nccl");
  CollectivePlan plan;
  for (const std::uint64_t size : options.sizes)
    if (size % size_of(*type) != 0)
      return refused(fmt::format("--size: {} bytes are no whole number of {}, of {} bytes each; --type u8 takes any",
                                 size, options.type, size_of(*type)));
  const auto ranks = ranks_of(options);
  if (!ranks) return ranks.status();
  plan.ranks = *ranks;
  for (const std::string& name : options.operations) {
    CollectiveWork work{.type = *type, .reduction = *reduction, .algorithm = *algorithm, .ranks = 0};
    if (Status status = set_operation(work, name); !status) return status;
    work.local = options.local;
    if (work.messages && *algorithm != Algorithm::automatic) return refused("--algorithm: send_recv has none");
    std::vector<CollectiveWork> works;
    for (const std::uint64_t size : name == "barrier" ? std::vector<std::uint64_t>{0} : sizes_of(options)) {
      work.bytes = size;
      works.push_back(work);
    }
    plan.works.push_back(std::move(works));
  }
  return plan;
}

void add_collective_flags(CLI::App& command, CollectiveOptions& options) {
  add_list(command, "--ranks", options.ranks,
           "Numbers of ranks: 2,4,8 (default: 2,4; on GPUs 2, 4 and 8 where there are as many)");
  add_names(command, "--operation", options.operations, "Operations (default: all_reduce)", collective_operations());
  add_sizes(command, "--size", options.sizes, "Bytes of the whole buffer: 8,4K,1MB (default: a range)",
            {1, kMostBytes});
  command.add_option("--type", options.type, "Type of the elements")
      ->check(one_of(collective_types()))
      ->capture_default_str();
  command.add_option("--reduction", options.reduction, "How they are combined")
      ->check(one_of(collective_reductions()))
      ->capture_default_str();
  command.add_option("--algorithm", options.algorithm, "Force one: direct, ring, bruck (default: as the size asks)")
      ->check(one_of({"automatic", "one_shot", "direct", "recursive_doubling", "ring", "binomial", "chain", "bruck",
                      "dissemination", "hierarchical"}));
  command.add_flag("--local-completion", options.local,
                   "What has a root ends at each rank apart from the others, as MPI's does");
  command.add_option("--memory", options.memory, "host, or gpu: each rank has a GPU, and operations go on its stream")
      ->check(one_of({"host", "gpu"}))
      ->capture_default_str();
  command.add_flag("--graph", options.graph,
                   "With --memory gpu: capture the calls into a CUDA graph (default: the host launches each)");
  add_via(command, options.via, "Transports, one after the other (default: shm; tcp with --namespaces)",
          Via::transports);
  command.add_flag(
      "--namespaces", options.namespaces,
      "Give each rank a network namespace, joined by veth pairs and a bridge, as a host of its own; needs root");
  command
      .add_option("--per-host", options.per_host,
                  "With --namespaces: ranks in each, which reach each other by shm; consecutive ones")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  add_names(
      command, "--beside", options.beside,
      "Run these in turns with it, where installed: gloo,mpi,openmpi,mpich; with --memory gpu: nccl (default: none)",
      {"gloo", "mpi", "openmpi", "mpich", "nccl"});
  add_file(command, "--nccl-library", options.nccl_library,
           "With --beside nccl: its library (default: FAIRWAY_NCCL_LIBRARY, else the loader's libnccl.so.2)");
  add_recorded_machine(
      command, options.from,
      "With --memory gpu: a recorded machine, whatever `fairway topo --from` reads, from which expected "
      "times are computed (default: inspect this one)");
  command.add_option("--turns", options.turns, "How often each row is measured; more give a narrower interval")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  command.add_option("--seconds", options.seconds, "Least time to measure each row in each turn")
      ->check(number_in(0.0, 3600.0))
      ->capture_default_str();
  add_file(command, "--json", options.json, "Write the rows as JSON; - is standard output");
  add_file(command, "--csv", options.csv, "Write the rows as CSV; - is standard output");
  add_file(command, "--svg", options.svg, "Draw the rows; - is standard output");
  command.add_flag("--progress", options.progress, "Show progress on stderr (always on a terminal)");
  command.add_option("--rank", options.rank)->group("");
  command.add_option("--listen", options.listen)->group("");
}

}  // namespace fairway::tool::bench
