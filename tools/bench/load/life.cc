#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "target.h"

// The cost of an idle engine, and how soon a process's end is detected and a new one is usable.
namespace fairway::tool::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kBound{1000};  // the peer timeout of the engine that measures
constexpr unsigned kPeers = 64;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

Status idle_over(const LoadPlan& plan, const std::string& path, std::vector<LoadRow>& rows) {
  if (Status status = plan.progress(fmt::format("idle {}", path)); !status) return status;
  OtherProcess others;
  const auto addresses = others.start(words_of(serve_of(plan, path, kPeers, 4096)));
  if (!addresses) return addresses.status();
  EngineOptions options;
  options.rdma = plan.rdma;
  auto from = LoadEngine::open(options, plan, path, 4096);
  if (!from) return from.status();
  std::istringstream words(*addresses);
  for (std::string address; words >> address;)
    if (const auto peer = from->engine.connect(address, std::chrono::seconds(20)); !peer) return peer.status();
  std::this_thread::sleep_for(milliseconds(1500));  // link proofs and the discovery of this machine
  std::vector<double> parts;
  for (int i = 0; i < 5; ++i) {
    const double before = cpu_seconds();
    const auto start = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(plan.seconds));
    parts.push_back((cpu_seconds() - before) * 1e5 / ms_since(start));
  }
  LoadRow row{"idle", path, fmt::format("{} peers, nothing to do", kPeers), "% of a core"};
  row.p50 = percentile_of(parts, 0.5);
  row.target = 0.5;
  rows.push_back(row);
  return {};
}

// When that peer is declared down; negative: not within the bound.
double ms_until_down(Engine& engine, PeerId peer, Clock::time_point start) {
  std::array<PeerEvent, 1> events;
  while (ms_since(start) < 20'000) {
    while (engine.poll_peer_events(events) == 1)
      if (events[0].kind == PeerEvent::Kind::down && events[0].peer == peer) return ms_since(start);
    (void)engine.wait_peer_event(std::chrono::seconds(1));
  }
  return -1;
}

// Writes to an undisturbed peer all the time; the longest write.
class Neighbour {
 public:
  Neighbour(LoadEngine& from, const LoadTarget& to)
      : thread_([this, &from, to] {
          while (!stop_.load() && status_) {
            const auto start = Clock::now();
            status_ = write_once(from, to, 4096);
            times_.push_back(ms_since(start));
            std::this_thread::sleep_for(std::chrono::microseconds(500));
          }
        }) {}
  ~Neighbour() { (void)end(); }
  Status end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  std::vector<double>& times() { return times_; }  // once ended

 private:
  std::atomic<bool> stop_{false};
  Status status_;
  std::vector<double> times_;
  std::thread thread_;
};

struct Life {
  std::vector<double> killed, killed_large, restarted, frozen;
};
enum class LifeEnd : std::uint8_t { killed, killed_large, frozen };  // large: with kLoadBytes of memory

// A peer is started, connected and killed; started again at the same address, connected and written to; frozen.
Status live_and_die(const LoadPlan& plan, LoadEngine& from, const std::string& path, LifeEnd end, Life& life) {
  OtherProcess other;
  const auto address = other.start(words_of(serve_of(plan, path, 1, end == LifeEnd::killed_large ? kLoadBytes : 4096)));
  if (!address) return address.status();
  const auto to = LoadTarget::meet(from.engine, *address);
  if (!to) return to.status();
  if (Status status = write_once(from, *to, 4096); !status) return status;
  const auto late = [](double ms) {
    return ms < 0 ? Status(ErrorCode::timed_out, "a peer's end was not reported within 20 s") : Status();
  };
  if (end == LifeEnd::frozen) {
    const auto start = Clock::now();
    other.signal(SIGSTOP);
    life.frozen.push_back(ms_until_down(from.engine, to->peer, start));
    other.kill();
    return late(life.frozen.back());
  }
  auto start = Clock::now();
  other.kill();
  std::vector<double>& told = end == LifeEnd::killed ? life.killed : life.killed_large;
  told.push_back(ms_until_down(from.engine, to->peer, start));
  if (Status status = late(told.back()); !status || end == LifeEnd::killed_large) return status;
  const auto again = other.start(words_of(serve_of(plan, path, 1, 4096, *address)));
  if (!again) return again.status();
  start = Clock::now();
  const auto new_one = LoadTarget::meet(from.engine, *again);
  if (!new_one) return new_one.status();
  if (Status status = write_once(from, *new_one, 4096); !status) return status;
  life.restarted.push_back(ms_since(start));
  return {};
}

Status life_over(const LoadPlan& plan, const std::string& path, std::vector<LoadRow>& rows) {
  if (Status status = plan.progress(fmt::format("peers of {} that end", path)); !status) return status;
  OtherProcess stays;
  const auto address = stays.start(words_of(serve_of(plan, path, 1, 4096)));
  if (!address) return address.status();
  EngineOptions options;
  options.peer_timeout = kBound;
  options.rdma = plan.rdma;
  auto from = LoadEngine::open(options, plan, path, 4096);
  if (!from) return from.status();
  const auto to = LoadTarget::meet(from->engine, *address);
  if (!to) return to.status();
  Neighbour neighbour(*from, *to);
  Life life;
  for (const auto& [end, times] : {std::pair(LifeEnd::killed, 20), {LifeEnd::killed_large, 5}, {LifeEnd::frozen, 4}})
    for (int i = 0; i < times; ++i)
      if (Status status = live_and_die(plan, *from, path, end, life); !status) return status;
  if (Status status = neighbour.end(); !status)
    return status.with_context("a write to a peer that nothing happened to");
  const auto add = [&](const char* what, const char* how, std::vector<double>& times, double target, double last) {
    LoadRow row{what, path, how, "ms"};
    row.p50 = percentile_of(times, 0.5);
    row.p99 = percentile_of(times, last);
    row.target = target;
    rows.push_back(row);
  };
  add("killed", "until the event that it is down, 20 times", life.killed, 20, 1);
  add("killed", "the same, with 64 MiB of memory, 5 times", life.killed_large, 20, 1);
  add("restarted", "from its first word to a write done, 20 times", life.restarted, 100, 1);
  add("frozen", "until the event, bound 1000 ms, 4 times", life.frozen, 1.1 * static_cast<double>(kBound.count()), 1);
  add("neighbour", "4 KiB writes to another peer meanwhile", neighbour.times(), 0, 0.99);
  return {};
}

}  // namespace

Status measure_idle(const LoadPlan& plan, std::vector<LoadRow>& rows) {
  for (const std::string& path : plan.paths)
    if (Status status = idle_over(plan, path, rows); !status) return status;
  return {};
}

Status measure_life(const LoadPlan& plan, std::vector<LoadRow>& rows) {
  for (const std::string& path : plan.paths)
    if (Status status = life_over(plan, path, rows); !status) return status;
  return {};
}

}  // namespace fairway::tool::bench
