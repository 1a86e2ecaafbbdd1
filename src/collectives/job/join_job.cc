// Communicator::join(): the ranks of a job meet, by a folder on one host or by names in a directory, and join.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/job/launcher.h"
#include "collectives/state.h"
#include "sys/address.h"

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

// What a process is beside its environment: its host, its session, the processes above it.
namespace fairway::collectives {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// "192.0.2.1", "[fd00::1]".
std::string host_of(const sys::SocketAddress& address) {
  const std::string text = address.text();
  return text.substr(0, text.rfind(':'));
}

// This host's address on the way there; empty: there is none.
std::string way_to(const sys::SocketAddress& there) {
  const int way = ::socket(there.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (way < 0) return "";
  sys::SocketAddress own;
  own.size = sizeof own.storage;
  // Connecting sends nothing.
  const bool known = ::connect(way, there.data(), there.size) == 0 &&
                     ::getsockname(way, reinterpret_cast<sockaddr*>(&own.storage), &own.size) == 0;
  ::close(way);
  return known ? host_of(own) : "";
}

// Where others may reach this host: the address of its default route, else that of the first interface.
std::string own_address_beyond() {
  for (const char* far : {"192.0.2.1", "2001:db8::1"})  // of documentation: nobody has them
    if (const auto there = sys::numeric_address({far, 9}))
      if (std::string own = way_to(*there); !own.empty() && !own.starts_with("127.") && own != "[::1]") return own;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> held(all, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || (one->ifa_flags & IFF_UP) == 0) continue;
      sys::SocketAddress address;
      address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.storage, one->ifa_addr, address.size);
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
      if (!address.is_loopback() && (family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)))
        return host_of(address);
    }
  return "";
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string full_host_name() {
  const std::string own = host_name();
  addrinfo wanted = {};
  wanted.ai_flags = AI_CANONNAME;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(own.c_str(), nullptr, &wanted, &found) != 0 || found == nullptr) return own;
  const Addresses held(found, ::freeaddrinfo);
  return found->ai_canonname != nullptr ? found->ai_canonname : own;
}

std::string session() {
  const int leader = ::getsid(0);
  return fmt::format("session-{}-{}", leader, facts_of(leader).started);
}

std::string ancestor(std::string_view name) {
  int process = ::getppid();
  for (ProcessFacts facts = facts_of(process); process > 1; facts = facts_of(process)) {
    if (facts.state == 'X' || facts.name.starts_with(name)) break;
    process = facts.parent;
  }
  if (process <= 1) {
    constexpr std::uint64_t kFirst = 0xEFFFFFFC;  // the kernel's PROC_PID_INIT_INO: of the namespace that sees all
    if (process_namespace() != kFirst) return "";
    process = ::getppid();
  }
  return fmt::format("{}-{}", process, facts_of(process).started);
}

std::optional<std::string> line_of_file(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos && line[begin] != '#') return line.substr(begin);
  }
  return std::nullopt;
}

}  // namespace

ProcessFacts facts_of(int process) {
  ProcessFacts facts;
  // Its first thread, which started with it: of the process's own file QEMU tells each thread another start.
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return facts;
  std::istringstream fields(text.substr(close + 1));
  char state = 'X';
  if (!(fields >> state >> facts.parent)) return facts;
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  if (!(fields >> facts.started)) return facts;
  facts.name = text.substr(open + 1, close - open - 1);
  facts.state = state == 'Z' ? 'X' : state;
  return facts;
}

std::uint64_t process_namespace() {
  struct stat found {};
  return ::stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

Result<std::string> address_of(const std::string& host, bool beyond, Timeout most) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const sys::HostPort where{bracketed ? host.substr(1, host.size() - 2) : host, 9};
  auto found = sys::resolve_address_within(where, most);
  if (!found)
    return Status(found.status().code() == ErrorCode::timed_out ? ErrorCode::timed_out : ErrorCode::unreachable,
                  fmt::format("{} has no address: {}", host, found.status().message()));
  const bool is_name = !sys::numeric_address(where) && where.host != "localhost";
  std::stable_sort(found->begin(), found->end(), [](const sys::SocketAddress& a, const sys::SocketAddress& b) {
    return std::pair(a.is_loopback(), a.family() != AF_INET) < std::pair(b.is_loopback(), b.family() != AF_INET);
  });
  const auto reached = std::find_if(found->begin(), found->end(), [](const auto& one) { return !way_to(one).empty(); });
  const sys::SocketAddress& best = reached != found->end() ? *reached : found->front();
  if (is_name && beyond && best.is_loopback())
    if (std::string own = own_address_beyond(); !own.empty()) return own;
  return host_of(best);
}

std::string own_address(const std::string& towards, Timeout most) {
  const auto there = address_of(towards, true, most);
  if (!there) return "";
  const bool v6 = there->starts_with('[');
  const auto numeric = sys::numeric_address({v6 ? there->substr(1, there->size() - 2) : *there, 9});
  return numeric ? way_to(*numeric) : "";
}

Whereabouts of_this_process() {
  return {host_name, full_host_name, session, ancestor, line_of_file};
}

}  // namespace fairway::collectives
