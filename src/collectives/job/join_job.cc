// Communicator::join(): the ranks of a job meet, by a folder on one host or by names in a directory, and join.
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "collectives/job/launcher.h"
#include "collectives/job/meeting_place.h"
#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

namespace {

// What has been found out before the engine opens.
struct Job {
  Ranks ranks;
  std::string name;  // of the communicator
  EngineOptions engine;
  Time deadline;
  std::stop_token stop;

  [[nodiscard]] std::string name_of(int rank) const { return fmt::format("{}/rank-{}", name, rank); }
};

Status invalid(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

// Pods of one job start one after the other, and have names once they run.
Result<std::string> address_of_master(const Job& job, const std::string& host) {
  for (;;) {
    auto address = address_of(host, !job.engine.job_key.empty(), until(job.deadline));
    const bool may_come = job.ranks.launcher == "Kubernetes" && until(job.deadline).count() > 0;
    if (address || !may_come || job.stop.stop_requested()) return address;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Status listen_towards(const std::string& host, Job& job) {
  if (job.engine.listen != EngineOptions().listen) return {};  // the caller has chosen
  const std::string own = own_address(host, until(job.deadline));
  if (own.empty()) return {ErrorCode::unreachable, fmt::format("no way to {}", host)};
  job.engine.listen = own + ":0";
  return {};
}

// The engine's options where the ranks find each other by name in a directory that is given, or that rank 0 serves.
Status meet_by_names(Job& job) {
  const Ranks& ranks = job.ranks;
  const bool here = ranks.one_host || ranks.size == 1;
  if (!here && job.engine.job_key.empty())
    return invalid(fmt::format("{}: the ranks are on several hosts: set FAIRWAY_JOB_KEY, the same secret for all",
                               ranks.launcher));
  job.engine.name = job.name_of(ranks.rank);
  const std::size_t colon = std::min(ranks.master.rfind(':'), ranks.master.size());
  const std::string master = ranks.master.substr(0, colon), port = ranks.master.substr(colon);
  if (!job.engine.directory.empty()) {
    if (here) return {};
    return listen_towards(master.empty() ? of_this_process().host_name() : master, job);
  }
  if (master.empty())
    return invalid(
        fmt::format("{}: the ranks are on several hosts: set MASTER_ADDR to that of rank 0", ranks.launcher));
  const auto address = address_of_master(job, master);
  if (!address)
    return Status(address.status().code(),
                  fmt::format("rank 0's host {}: set FAIRWAY_MASTER to rank 0's address and a port (host:port)",
                              address.status().message()))
        .with_peer("rank 0");
  job.engine.directory = *address + port;
  if (ranks.rank != 0) return listen_towards(*address, job);
  job.engine.listen = *address + port;
  return {};
}

// The engines of rank 0 of this process's jobs, each with a directory that it serves at its address: a second
// communicator of the same job has the same address, and its ranks meet in the directory of the first.
struct Served {
  std::mutex mutex;  // guards the map
  std::map<std::string, std::weak_ptr<Engine>> at;
};

// For the process's life: a communicator may be a static object.
Served& served() {
  static Served* const all = new Served;
  return *all;
}

Result<std::shared_ptr<Engine>> open_engine(const EngineOptions& options) {
  auto engine = Engine::open(options);
  if (!engine) return engine.status();
  return std::make_shared<Engine>(std::move(*engine));
}

// Rank 0's, that serves the directory, unless this process has one that does; that lives as long.
Result<std::shared_ptr<Engine>> open_serving(EngineOptions options) {
  const std::string address = std::exchange(options.directory, "serve");
  Served& all = served();
  const std::lock_guard lock(all.mutex);
  if (auto first = all.at[address].lock(); first && first->is_open()) {
    options.directory = address;
    options.listen = address.substr(0, address.rfind(':')) + ":0";
    auto second = open_engine(options);
    if (!second) return second;
    Engine* const own = second->get();
    return std::shared_ptr<Engine>(own, [first, held = *second](Engine*) mutable { held.reset(); });
  }
  auto engine = open_engine(options);
  if (engine) all.at[address] = *engine;
  return engine;
}

}  // namespace

Result<Communicator> Communicator::join(const JobOptions& options) {
  if (Status status = check_options(options.communicator); !status) return status.with_context("CommunicatorOptions");
  const Environment environment = environment_of(options.environment);
  auto ranks = detect(environment, of_this_process());
  if (!ranks) return ranks.status();
  Job job{std::move(*ranks), options.communicator.name, options.engine,
          after(Clock::now(), options.communicator.timeout), options.stop};
  if (job.engine.job_key.empty()) job.engine.job_key = value_of(environment, "FAIRWAY_JOB_KEY");

  const auto join_at = [&](const std::shared_ptr<Engine>& engine, std::span<const std::string> addresses) {
    return State::create(*engine, engine, job.ranks.rank, addresses, options.communicator, job.deadline, job.stop);
  };
  if (job.ranks.size - 1 > static_cast<int>(job.engine.max_peers))
    return Status(ErrorCode::resource_exhausted,
                  fmt::format("{}: a job of {} ranks, and an engine has at most {} peers: raise "
                              "EngineOptions::max_peers",
                              job.ranks.launcher, job.ranks.size, job.engine.max_peers));

  if (!job.engine.directory.empty() || job.ranks.job.empty() || !(job.ranks.one_host || job.ranks.size == 1)) {
    const bool serves = job.engine.directory.empty() && job.ranks.rank == 0;
    if (Status status = meet_by_names(job); !status) return status;
    const auto engine = serves ? open_serving(job.engine) : open_engine(job.engine);
    if (!engine) return engine.status();
    std::vector<std::string> names;
    for (int rank = 0; rank < job.ranks.size; ++rank) names.push_back(job.name_of(rank));
    return join_at(*engine, names);
  }

  if (job.engine.name.empty()) job.engine.name = job.name_of(job.ranks.rank);
  auto place = MeetingPlace::open(fmt::format("{}/{}", job.ranks.job, job.name), job.ranks.rank, job.ranks.size,
                                  job.deadline, job.stop);
  if (!place) return place.status();
  if (Status status = place->enter(); !status) return status;
  auto joined = [&]() -> Result<Communicator> {
    const auto key = place->key();
    if (!key) return key.status();
    if (job.engine.job_key.empty()) job.engine.job_key = *key;
    const auto engine = open_engine(job.engine);
    if (!engine) return engine.status();
    const auto addresses = place->exchange((*engine)->address());
    if (!addresses) return addresses.status();
    return join_at(*engine, *addresses);
  }();
  if (!joined)
    place->leave();
  else if (job.ranks.rank == 0)
    place->remove();  // all have joined, so all have read it
  return joined;
}

}  // namespace fairway
