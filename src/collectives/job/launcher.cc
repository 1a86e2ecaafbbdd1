#include "collectives/job/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "collectives/counter_range.h"

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

  // 1 to 65535 - `room`.
  int port(std::string_view name, int room = 0) {
    const int value = number(name);
    if (status_ && (value == 0 || value > 65535 - room))
      refuse(fmt::format("the environment's {} is {}: a port is 1 to {}", name, value, 65535 - room));
    return value;
  }

  // Rank 0's address as the user has set it.
  [[nodiscard]] std::string master() {
    if (!has("MASTER_ADDR")) return "";
    const int at = has("MASTER_PORT") ? port("MASTER_PORT") : kKubernetesPort;
    return host_and_port(text("MASTER_ADDR"), std::to_string(at));
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
    if (!host.empty()) found.master = host_and_port(host, std::to_string(from.port("MASTER_PORT", 1) + 1));
    return found;
  }
  found.launcher = "environment";
  if (!host.empty() && port.empty()) from.refuse("the environment has MASTER_ADDR without MASTER_PORT");
  found.one_host = host.empty() || host == "localhost" || host.starts_with("127.") || host == "::1" ||
                   host == "[::1]" || host == from.whereabouts().host_name();
  if (host.empty())
    found.job = from.whereabouts().session();
  else if (!port.empty())
    found.master = host_and_port(host, std::to_string(from.port("MASTER_PORT")));
  return found;
}

// A launcher of MPI's kind: variables of its own tell each rank its number and what is on its host.
struct Manager {
  std::string_view launcher, rank, size, local_rank;
  std::string_view here;          // how many ranks are on this host
  bool tells_here;                // always
  std::string_view hosts;         // in place of `here`: how many hosts there are
  std::string (*job)(Reader&);    // what no other job of this host has
  std::string (*first)(Reader&);  // rank 0's address where the user sets none; null: unknown
};

std::string open_mpi_job(Reader& from) {
  std::string server = from.text("OMPI_MCA_orte_precondition_transports");
  if (server.empty()) server = from.text("PMIX_SERVER_TMPDIR") + from.text("PMIX_SERVER_URI4");
  return fmt::format("mpirun-{}-{}", from.text("PMIX_NAMESPACE"), server);
}

std::string mpich_job(Reader& from) {
  const std::string above = from.whereabouts().ancestor("hydra_pmi_prox");
  if (above.empty() && !from.has("FAIRWAY_JOB") && !from.has("FAIRWAY_MASTER"))
    from.refuse(
        "MPICH: the launcher's process, which tells jobs apart, cannot be seen from this PID namespace (a container): "
        "set FAIRWAY_JOB to a name that no other job of this host has, the same for all ranks");
  return "mpich-" + above;
}

std::string slurm_step(const Reader& from) {
  return fmt::format("{}.{}", from.text("SLURM_JOB_ID"), from.text("SLURM_STEP_ID"));
}

std::string slurm_job(Reader& from) {
  return fmt::format("slurm-{}-{}-{}", from.text("SLURM_CLUSTER_NAME"), slurm_step(from),
                     from.text("SLURM_RESTART_COUNT", "0"));
}

// Where rank 0 of a step is. Its list is sorted by name, but the first of a heterogeneous step's groups has rank 0, and
// an arbitrary distribution is the user's file.
std::string slurm_host_of_first(Reader& from) {
  const std::vector<std::string> step = hosts_of(from.text("SLURM_STEP_NODELIST"));
  if (from.text("SLURM_DISTRIBUTION").starts_with("arbitrary")) {
    const std::string file = from.text("SLURM_HOSTFILE");
    const auto line = from.whereabouts().first_line(file);
    if (line) return line->substr(0, line->find_first_of(" \t,*:#"));
    from.refuse(
        fmt::format("Slurm: with an arbitrary distribution rank 0 is on the first host of SLURM_HOSTFILE ({}), "
                    "which cannot be read here: set FAIRWAY_MASTER to rank 0's host:port",
                    file));
    return "";
  }
  for (const char* group : {"SLURM_JOB_NODELIST_HET_GROUP_0", "SLURM_JOB_NODELIST_PACK_GROUP_0"}) {
    const std::vector<std::string> hosts = hosts_of(from.text(group), 1);  // a step may lie in another group alone
    if (!hosts.empty() && std::find(step.begin(), step.end(), hosts.front()) != step.end()) return hosts.front();
  }
  return step.empty() ? "" : step.front();
}

// All compute the same port, and the steps of a host mostly different ones.
std::string slurm_first(Reader& from) {
  const std::string first = slurm_host_of_first(from), here = from.text("SLURMD_NODENAME");
  if (first.empty() || from.has("FAIRWAY_MASTER")) return "";
  const std::string port = std::to_string(20000 + hash_of(slurm_step(from)) % 10000);
  if (from.number("SLURM_PROCID") == 0 && !here.empty() && here != first)
    from.refuse(
        fmt::format("Slurm: rank 0 is on {} and not on {}, the first host of {}: set FAIRWAY_MASTER={} for all "
                    "ranks",
                    here, first, from.text("SLURM_STEP_NODELIST"), host_and_port(here, port)));
  return host_and_port(first, port);
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
  found.master = from.master();
  const bool named = !found.master.empty() || from.has("FAIRWAY_MASTER");
  if (!kBy.hosts.empty()) {
    found.one_host = from.number(kBy.hosts) == 1;
  } else if (kBy.tells_here || from.has(kBy.here) || found.size == 1) {
    found.one_host = (kBy.tells_here ? from.number(kBy.here) : from.number(kBy.here, found.size)) == found.size;
  } else {
    // Slurm's own PMI, Flux and others tell a rank's number alone.
    found.one_host = from.has("FAIRWAY_JOB");
    if (!found.one_host && !named)
      from.refuse(
          fmt::format("{}: the environment has no {}, so nothing says which ranks share a host: set FAIRWAY_JOB "
                      "to a name of the job's own if all do, else MASTER_ADDR to rank 0's host",
                      kBy.rank, kBy.here));
  }
  if (found.one_host) found.job = kBy.job(from);
  if (found.master.empty() && !found.one_host && kBy.first != nullptr) found.master = kBy.first(from);
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

std::string host_and_port(const std::string& host, std::string_view port) {
  const bool bare = host.find(':') != std::string::npos && !host.starts_with('[');
  return fmt::format("{}{}{}:{}", bare ? "[" : "", host, bare ? "]" : "", port);
}

std::vector<std::string> hosts_of(std::string_view nodes, std::size_t most) {
  std::vector<std::string> hosts;
  const std::function<void(const std::string&)> add = [&](const std::string& item) {  // "rack[03-05,9]-ib"
    const std::size_t open = item.find('['), close = std::min(item.find(']'), item.size());
    if (open == std::string::npos) return hosts.push_back(item);
    const std::string behind = item.substr(std::min(close + 1, item.size()));
    std::string list = item.substr(open + 1, close - open - 1);
    for (std::size_t end = 0; !list.empty() && hosts.size() < most; list.erase(0, end + 1)) {
      end = std::min(list.find(','), list.size());
      const std::size_t dash = std::min(list.find('-'), end);
      const std::string low = list.substr(0, dash), high = dash < end ? list.substr(dash + 1, end - dash - 1) : low;
      const long from = std::atol(low.c_str()), to = std::max(from, std::atol(high.c_str()));
      for (long number = from; number <= to && hosts.size() < most; ++number)
        add(fmt::format("{}{:0{}}{}", item.substr(0, open), number, low.size(), behind));
      if (end == list.size()) break;
    }
  };
  std::string item;
  bool inside = false;  // brackets
  for (const char c : nodes) {
    if (hosts.size() >= most) return hosts;
    inside = c == '[' || (inside && c != ']');
    if (c != ',' || inside)
      item += c;
    else if (!item.empty())
      add(std::exchange(item, {}));
  }
  if (!item.empty() && hosts.size() < most) add(item);
  return hosts;
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
  // Slurm's PMI plugins set MPICH's variables beside its own, but not what MPICH's launcher says of a host. MPICH's in
  // a job of Slurm does.
  const bool is_slurm = environment.contains(kSlurm.size) && !environment.contains(kMpich.here) &&
                        value_of(environment, kSlurm.size) == value_of(environment, kMpich.size) &&
                        value_of(environment, kSlurm.rank) == value_of(environment, kMpich.rank);
  for (const Launcher& launcher : kLaunchers) {
    if (!environment.contains(launcher.sign) || (is_slurm && launcher.sign == kMpich.rank)) continue;
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
      const std::string port = found.master.substr(std::min(found.master.rfind(':'), found.master.size()));
      if (found.master.starts_with(':') || port.size() < 2 || port.find_first_not_of("0123456789", 1) != port.npos ||
          std::atol(port.c_str() + 1) > 65535)
        return Status(ErrorCode::invalid_argument,
                      fmt::format("the environment's FAIRWAY_MASTER is no host:port: '{}'", found.master));
    }
    return found;
  }
  if (environment.contains("PMI_PORT"))
    return Status(ErrorCode::not_found,
                  "mpiexec was started with -pmi-port, and so does not tell the ranks who they are: leave that out");
  return Status(ErrorCode::not_found,
                "no launcher has said which rank this is: start it by torchrun, mpirun or srun, or set RANK and "
                "WORLD_SIZE (and MASTER_ADDR, MASTER_PORT on several hosts)");
}

}  // namespace collectives

Result<Ranks> detect_ranks(const char* const* environment) {
  return collectives::detect(collectives::environment_of(environment), collectives::of_this_process());
}

}  // namespace fairway
