#include "collectives/launcher.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "collectives/tag.h"

extern "C" char** environ;  // NOLINT(readability-redundant-declaration)

namespace fairway {
namespace collectives {
namespace {

constexpr int kKubernetesPort = 29511;

// The variables as a launcher's reader sees them. The first that is wrong makes the error.
class Reader {
 public:
  Reader(const Environment& environment, const Whereabouts& whereabouts)
      : environment_(environment), whereabouts_(whereabouts) {}

  [[nodiscard]] bool has(std::string_view name) const { return environment_.contains(name); }
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise = "") const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? std::string(otherwise) : found->second;
  }
  [[nodiscard]] const Whereabouts& whereabouts() const { return whereabouts_; }

  int number(std::string_view name) {
    const auto found = environment_.find(name);
    if (found == environment_.end())
      return refuse(fmt::format("the environment has no {}, beside others of the same launcher", name)), 0;
    const std::string& value = found->second;
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size())
      return refuse(fmt::format("the environment's {} is no number: '{}'", name, value)), 0;
    if (result < 0) return refuse(fmt::format("the environment's {} is {}", name, result)), 0;
    return result;
  }
  int number(std::string_view name, int otherwise) { return has(name) ? number(name) : otherwise; }

  void refuse(std::string text) {
    if (status_) status_ = Status(ErrorCode::invalid_argument, std::move(text));
  }
  [[nodiscard]] const Status& status() const { return status_; }

  // Rank 0's address as the user has set it.
  [[nodiscard]] std::string master() const {
    if (!has("MASTER_ADDR")) return "";
    return fmt::format("{}:{}", text("MASTER_ADDR"), text("MASTER_PORT", std::to_string(kKubernetesPort)));
  }

 private:
  const Environment& environment_;
  const Whereabouts& whereabouts_;
  Status status_;
};

Ranks by_hand(Reader& from) {
  Ranks found;
  found.rank = from.number("RANK");
  found.size = from.number("WORLD_SIZE");
  found.local_rank = from.number("LOCAL_RANK", -1);
  const std::string host = from.text("MASTER_ADDR"), port = from.text("MASTER_PORT");
  if (from.has("TORCHELASTIC_RUN_ID")) {
    found.launcher = "torchrun";
    found.one_host = from.number("LOCAL_WORLD_SIZE") == found.size;
    if (found.one_host)
      found.job = fmt::format("torchrun-{}-{}-{}-{}", from.text("TORCHELASTIC_RUN_ID"),
                              from.text("TORCHELASTIC_RESTART_COUNT", "0"), host, port);
    // At MASTER_PORT torchrun's own store listens.
    if (!host.empty()) found.master = fmt::format("{}:{}", host, from.number("MASTER_PORT") + 1);
    return found;
  }
  found.launcher = "environment";
  if (!host.empty() && port.empty()) from.refuse("the environment has MASTER_ADDR without MASTER_PORT");
  found.one_host =
      host.empty() || host == "localhost" || host.starts_with("127.") || host == from.whereabouts().host_name();
  if (host.empty())
    found.job = from.whereabouts().session();
  else
    found.master = fmt::format("{}:{}", host, port);
  return found;
}

// A launcher of MPI's kind: variables of its own tell each rank its number and what is on its host.
struct Manager {
  std::string_view launcher, rank, size, local_rank;
  std::string_view here;                // how many ranks are on this host
  bool tells_here;                      // always; else all are here where it does not
  std::string_view hosts;               // in place of `here`: how many hosts there are
  std::string (*job)(const Reader&);    // what no other job of this host has
  std::string (*first)(const Reader&);  // rank 0's address where the user sets none; null: unknown
};

std::string open_mpi_job(const Reader& from) {
  std::string server = from.text("OMPI_MCA_orte_precondition_transports");
  if (server.empty()) server = from.text("PMIX_SERVER_TMPDIR") + from.text("PMIX_SERVER_URI4");
  return fmt::format("mpirun-{}-{}", from.text("PMIX_NAMESPACE"), server);
}

std::string mpich_job(const Reader& from) {
  return fmt::format("mpich-{}", from.whereabouts().ancestor("hydra_pmi_prox"));
}

std::string slurm_step(const Reader& from) {
  return fmt::format("{}.{}", from.text("SLURM_JOB_ID"), from.text("SLURM_STEP_ID"));
}

std::string slurm_job(const Reader& from) {
  return fmt::format("slurm-{}-{}-{}", from.text("SLURM_CLUSTER_NAME"), slurm_step(from),
                     from.text("SLURM_RESTART_COUNT", "0"));
}

// All compute the same port, and the steps of a host mostly different ones.
std::string slurm_first(const Reader& from) {
  const std::string first = first_host(from.text("SLURM_STEP_NODELIST"));
  return first.empty() ? "" : fmt::format("{}:{}", first, 20000 + hash_of(slurm_step(from)) % 10000);
}

constexpr Manager kOpenMpi{"Open MPI",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           true,
                           "",
                           open_mpi_job,
                           nullptr};
constexpr Manager kMpich{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", false,
                         "",      mpich_job,  nullptr};
constexpr Manager kSlurm{"Slurm",    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                         "",         true,           "SLURM_STEP_NUM_NODES", slurm_job,
                         slurm_first};

template <const Manager& kBy>
Ranks managed(Reader& from) {
  Ranks found;
  found.launcher = kBy.launcher;
  found.rank = from.number(kBy.rank);
  found.size = from.number(kBy.size);
  found.local_rank = from.number(kBy.local_rank, -1);
  if (!kBy.hosts.empty())
    found.one_host = from.number(kBy.hosts) == 1;
  else
    found.one_host = (kBy.tells_here ? from.number(kBy.here) : from.number(kBy.here, found.size)) == found.size;
  if (found.one_host) found.job = kBy.job(from);
  found.master = from.master();
  if (found.master.empty() && kBy.first != nullptr) found.master = kBy.first(from);
  return found;
}

Ranks kubernetes(Reader& from) {
  Ranks found;
  found.launcher = "Kubernetes";
  found.local_rank = 0;
  found.rank = from.number("JOB_COMPLETION_INDEX");
  if (!from.has("WORLD_SIZE")) {
    from.refuse(
        "an indexed job of Kubernetes does not tell its pods how many they are: set WORLD_SIZE to `completions`");
    return found;
  }
  found.size = from.number("WORLD_SIZE");
  found.one_host = found.size == 1;
  found.master = from.master();
  if (!found.master.empty()) return found;
  std::string name = from.whereabouts().full_host_name();
  if (name.find('.') == std::string::npos) name = from.text("HOSTNAME", from.whereabouts().host_name());
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string first = name.substr(0, dot), index = std::to_string(found.rank);
  if (!first.ends_with("-" + index)) {
    from.refuse(fmt::format(
        "this pod's name is {}, not that of an indexed job: set MASTER_ADDR to the pod with index 0", first));
    return found;
  }
  found.master =
      fmt::format("{}0{}:{}", first.substr(0, first.size() - index.size()), name.substr(dot), kKubernetesPort);
  return found;
}

}  // namespace

Environment environment_of(const char* const* lines) {
  Environment made;
  if (lines == nullptr) lines = environ;
  for (; lines != nullptr && *lines != nullptr; ++lines) {
    const std::string_view line(*lines);
    if (const std::size_t is = line.find('='); is != std::string_view::npos)
      made.emplace(line.substr(0, is), line.substr(is + 1));
  }
  return made;
}

std::string value_of(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::string first_host(std::string_view nodes) {
  const std::size_t end = nodes.find_first_of("[,");
  if (end == std::string_view::npos) return std::string(nodes);
  std::string host(nodes.substr(0, end));
  if (nodes[end] == ',') return host;
  const std::string_view list = nodes.substr(end + 1);
  host += list.substr(0, list.find_first_of("-,]"));
  const std::size_t close = list.find(']');
  if (close == std::string_view::npos) return host;
  const std::string_view rest = list.substr(close + 1);
  return host.append(rest.substr(0, rest.find_first_of(",[")));
}

Result<Ranks> detect(const Environment& environment, const Whereabouts& whereabouts) {
  struct Launcher {
    std::string_view sign;  // the variable that only it sets
    Ranks (*read)(Reader&);
  };
  constexpr Launcher kLaunchers[] = {{"RANK", by_hand},
                                     {kOpenMpi.rank, managed<kOpenMpi>},
                                     {kMpich.rank, managed<kMpich>},
                                     {kSlurm.size, managed<kSlurm>},
                                     {"JOB_COMPLETION_INDEX", kubernetes}};
  for (const Launcher& launcher : kLaunchers) {
    if (!environment.contains(launcher.sign)) continue;
    Reader from(environment, whereabouts);
    Ranks found = launcher.read(from);
    if (!from.status()) return from.status();
    if (found.rank >= found.size)
      return Status(ErrorCode::invalid_argument,
                    fmt::format("{}: rank {} of {}: there is no such rank", found.launcher, found.rank, found.size));
    if (found.one_host && from.has("FAIRWAY_JOB")) found.job = "job-" + from.text("FAIRWAY_JOB");
    if (from.has("FAIRWAY_MASTER")) {
      found.master = from.text("FAIRWAY_MASTER");
      found.job.clear();
    }
    return found;
  }
  return Status(ErrorCode::not_found,
                "no launcher has said which rank this is: start it by torchrun, mpirun or srun, or set RANK and "
                "WORLD_SIZE (and MASTER_ADDR, MASTER_PORT on several hosts)");
}

}  // namespace collectives

Result<Ranks> detect_ranks(const char* const* environment) {
  return collectives::detect(collectives::environment_of(environment), collectives::of_this_process());
}

}  // namespace fairway
