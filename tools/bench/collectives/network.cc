#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives.h"
#include "other_program.h"

namespace fairway::tool::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kInterface = "fairway0";
constexpr std::chrono::milliseconds kMeasured{60};
constexpr int kTurns = 7;  // the best counts: other work on the cores only slows it down

// `ip <words>` there.
Status ip(const sys::NetworkNamespace& there, const std::string& words) {
  std::vector<std::string> command{"ip"};
  std::istringstream text(words);
  for (std::string word; text >> word;) command.push_back(word);
  const sys::InNamespace inside(there);
  if (!inside.status()) return inside.status();
  const auto ran = run_program(command, 30);
  if (!ran) return ran.status();
  if (ran->well) return {};
  return {ErrorCode::unsupported, fmt::format("`ip {}` failed: {}", words, ran->err.substr(0, ran->err.find('\n')))};
}

// Both ways at once, as ranks send and receive; gives what it has sent.
std::uint64_t move_both_ways(int socket, Clock::time_point end) {
  std::vector<char> out(256U << 10, 1), in(256U << 10);
  std::uint64_t sent = 0;
  while (Clock::now() < end) {
    const ssize_t went = ::send(socket, out.data(), out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (went > 0) sent += static_cast<std::uint64_t>(went);
    const ssize_t came = ::recv(socket, in.data(), in.size(), MSG_DONTWAIT);
    pollfd both{socket, POLLIN | POLLOUT, 0};
    if (went <= 0 && came <= 0) (void)::poll(&both, 1, 1);
  }
  return sent;
}

}  // namespace

std::string RankNetwork::why_not() {
  if (::geteuid() != 0) return "--namespaces needs root: it makes network namespaces and cables between them";
  if (!on_path("ip")) return "--namespaces needs the program ip: apt-get install iproute2";
  return "";
}

Result<std::unique_ptr<RankNetwork>> RankNetwork::make(int ranks, int per_host) {
  auto network = std::unique_ptr<RankNetwork>(new RankNetwork);
  network->ranks_ = ranks;
  network->per_host_ = per_host;
  auto hub = sys::NetworkNamespace::make();
  if (!hub) return hub.status();
  network->hub_ = std::move(*hub);
  if (Status status = ip(network->hub_, "link add bridge0 type bridge"); !status) return status;
  if (Status status = ip(network->hub_, "link set dev bridge0 up"); !status) return status;
  for (int rank = 0; rank < ranks; rank += per_host) {
    auto made = sys::NetworkNamespace::make();
    if (!made) return made.status();
    network->hosts_.push_back(std::move(*made));
    const sys::NetworkNamespace& own = network->hosts_.back();
    // ip takes a file for a namespace; the rank's is open in this process.
    for (const std::string& words : {fmt::format("link add rank{} type veth peer name {} netns /proc/{}/fd/{}", rank,
                                                 kInterface, ::getpid(), own.fd()),
                                     fmt::format("link set dev rank{} master bridge0 up", rank)})
      if (Status status = ip(network->hub_, words); !status) return status;
    for (const std::string& words : {std::string("link set dev lo up"),
                                     fmt::format("address add {}/24 dev {}", network->address(rank), kInterface),
                                     fmt::format("link set dev {} up", kInterface)})
      if (Status status = ip(own, words); !status) return status;
  }
  return network;
}

std::string RankNetwork::address(int rank) const {
  return fmt::format("10.78.0.{}", rank / per_host_ + 1);
}

std::string RankNetwork::interface() const {
  return kInterface;
}

std::string RankNetwork::files() const {
  std::string files;
  for (int rank = 0; rank < ranks_; ++rank)
    files += fmt::format("{}/proc/{}/fd/{}", files.empty() ? "" : ":", ::getpid(), of(rank).fd());
  return files;
}

Result<double> RankNetwork::socket_rate() const {
  if (hosts_.size() < 2) return 0.0;
  const auto failed = [] {
    return Status(ErrorCode::system_error, fmt::format("sockets between two namespaces: {}", std::strerror(errno)));
  };
  sockaddr_in at{};
  at.sin_family = AF_INET;
  ::inet_pton(AF_INET, address(0).c_str(), &at.sin_addr);
  socklen_t length = sizeof at;
  auto* where = reinterpret_cast<sockaddr*>(&at);
  sys::Fd listener, first, second;
  {
    const sys::InNamespace inside(hosts_[0]);
    listener = sys::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(listener.get(), where, length) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), where, &length) != 0)
      return failed();
  }
  {
    const sys::InNamespace inside(hosts_[1]);
    second = sys::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(second.get(), where, length) != 0) return failed();
  }
  first = sys::Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!first) return failed();
  double best = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto start = Clock::now();
    const auto end = start + kMeasured;
    std::uint64_t other = 0;
    std::thread thread([&] { other = move_both_ways(second.get(), end); });
    const std::uint64_t sent = move_both_ways(first.get(), end);
    thread.join();
    best =
        std::max(best, static_cast<double>(sent + other) / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

// What all hosts send, at the rate of sockets between two of them; as many pairs at a time as there are cores for.
double network_bound_us(const CollectiveWork& work, int hosts, double socket_rate, unsigned cores) {
  if (socket_rate == 0 || hosts < 2) return 0;
  const double n = hosts, s = static_cast<double>(work.whole());
  const double pairs = std::max(1.0, std::min<double>(n, cores) / 2);
  const double rate = socket_rate * pairs;
  if (work.messages) return n * s / rate * 1e6;  // to the next host
  double sent = 0;
  switch (work.kind) {
    case CollectiveKind::all_reduce: sent = 2 * (n - 1) * s; break;
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all: sent = (n - 1) * s; break;
    case CollectiveKind::gather:
    case CollectiveKind::scatter: sent = (n - 1) / n * s; break;
    case CollectiveKind::all_to_allv:  // the blocks within a host are shorter where it has several ranks
      sent = work.ranks == hosts ? n * s * work.bus_factor() : (n - 1) * s;
      break;
    case CollectiveKind::barrier: break;
  }
  return sent / rate * 1e6;
}

}  // namespace fairway::tool::bench
