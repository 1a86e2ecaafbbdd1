#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/time.h"

namespace fairway::sim {

// A seeded random stream (SplitMix64: Steele, Lea, Flood, OOPSLA 2014). A value; the same seed gives the same stream on
// every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // A number in [0, bound); 0 when bound is 0.
  std::uint64_t below(std::uint64_t bound) { return static_cast<std::uint64_t>((Wide{next()} * bound) >> 64); }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(std::uint32_t per_mille) { return below(1000) < per_mille; }
  Random fork() { return Random(next()); }

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t state_;
};

class Host;
class SimNetwork;

struct SimulationOptions {
  std::uint64_t seed = 1;
  // Receives one line per notable event; empty: no trace, at no cost.
  std::function<void(const std::string& line)> trace;
  // Called when someone waits and no event is left, or when a limit below is exceeded. The simulation then wakes every
  // task, thaws every host and extends its limits, so that a test can report the failure and finish.
  std::function<void(const std::string& why)> stuck;
  // Called when that did not help. Must not return.
  std::function<void(const std::string& why)> hopeless;
  Time most_time = 600 * kSecond;
  std::uint64_t most_events = 20'000'000;
  bool steady = false;                  // a wake always takes the same time: for measuring in virtual time
  bool steady_ways = false;             // so do an empty way's bytes, which sockets then take and hand over whole
  std::uint64_t most_window = 4 << 20;  // that a socket's grows to: Linux's default in net.ipv4.tcp_wmem
  Time drift = 0;  // hosts' clocks run faster than the simulation's, each by up to so many millionths
};

// How the network treats bytes from one host to another.
struct Path {
  bool cut = false;                    // nothing arrives; the other direction has its own
  std::uint64_t bytes_per_second = 0;  // of all connections and links together; 0: no limit
  Time delay = 0;                      // beyond what the network takes anyway
  std::uint32_t longest = 0;           // segments beyond so many bytes are swallowed; 0: none are
  Time busy_until = 0;                 // with bytes on their way, at that rate

  // When so many bytes that leave now are through.
  Time through(Time now, std::uint64_t bytes) {
    busy_until = std::max(busy_until, now);
    if (bytes_per_second != 0) busy_until += bytes * kSecond / bytes_per_second;
    return busy_until + delay;
  }
};

// Virtual time and all events in it: one heap ordered by (time, seeded tie-break). One thread owns a simulation and
// everything in it; two simulations share nothing.
class Simulation {
 public:
  using Handler = void (*)(void* object, std::uint64_t a, std::uint64_t b);

  explicit Simulation(SimulationOptions options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  Time now() const { return now_; }
  Random& random() { return random_; }
  bool steady() const { return options_.steady; }
  bool steady_ways() const { return options_.steady_ways; }
  std::uint64_t most_window() const { return options_.most_window; }
  Time drift() const { return options_.drift; }

  // Calls handler(object, a, b) at `when`. An event cannot be cancelled: its handler checks whether it still applies,
  // and objects live as long as the simulation.
  void at(Time when, Handler handler, void* object, std::uint64_t a = 0, std::uint64_t b = 0);
  void in(Time delay, Handler handler, void* object, std::uint64_t a = 0, std::uint64_t b = 0) {
    at(after(now_, delay), handler, object, a, b);
  }

  // Runs the next event if it is due by `limit`. False: none was due; time does not advance.
  bool step(Time limit = kNever);
  // Runs all events due by `time` and advances to it.
  void run_until(Time time);
  // Runs until `done` or `time`. Returns whether `done` became true.
  template <std::predicate Done>
  bool run_until(Time time, Done done) {
    while (!done())
      if (!step(time)) {
        if (time != kNever) now_ = std::max(now_, time);
        return done();
      }
    return true;
  }
  void stuck(const std::string& why);
  bool was_stuck() const { return times_stuck_ != 0; }

  // Hosts are numbered in order of creation and live as long as the simulation.
  Host& add_host() { return add_host(hosts_.size()); }
  Host& add_host(std::size_t place);  // at the place of a killed host: the machine restarted
  Host& host(std::size_t index) { return *hosts_[index]; }
  std::uint64_t drifting_clocks() const;  // hosts whose clocks run faster
  // Of the hosts at an address, restarted ones too; each adds its own.
  std::vector<SimNetwork*>& networks_at(const std::string& address) { return networks_[address]; }

  // Starts or ends a partition: while it lasts, no byte passes between the two hosts in either direction.
  void set_partition(std::size_t a, std::size_t b, bool on);
  bool partitioned(std::size_t a, std::size_t b) const {
    return !partitions_.empty() && partitions_.contains(std::minmax(a, b));
  }

  // From one host to another, as good as can be until somebody changes it.
  Path& path(std::size_t from, std::size_t to) { return paths_[{from, to}]; }
  Path* changed_path(std::size_t from, std::size_t to) {
    const auto found = paths_.empty() ? paths_.end() : paths_.find({from, to});
    return found == paths_.end() ? nullptr : &found->second;
  }
  // Whether nothing arrives that way.
  bool blocked(std::size_t from, std::size_t to) {
    const Path* path = changed_path(from, to);
    return partitioned(from, to) || (path != nullptr && path->cut);
  }

  // A hash of everything that happened so far: equal for two runs that did the same.
  std::uint64_t hash() const { return hash_; }
  std::uint64_t events_run() const { return events_run_; }
  void mix(std::uint64_t fact) { hash_ = (hash_ ^ fact) * 0x9e3779b97f4a7c15; }

  // Traces what `text()` returns; does not call it when there is no trace.
  template <std::invocable Text>
  void note(std::uint64_t host, Text text) {
    if (options_.trace) write(host, text());
  }
  static constexpr std::uint64_t kNoHost = ~std::uint64_t{0};

 private:
  struct Event {
    Time at;
    std::uint64_t order;
    Handler handler;
    void* object;
    std::uint64_t a, b;
  };
  static bool later(const Event& x, const Event& y) { return x.at != y.at ? x.at > y.at : x.order > y.order; }
  void write(std::uint64_t host, const std::string& text);

  SimulationOptions options_;
  Random random_;
  Time now_ = kMillisecond;
  std::vector<Event> events_;  // a heap, by time
  std::uint32_t sequence_ = 0;
  std::uint64_t events_run_ = 0;
  std::uint32_t times_stuck_ = 0;
  std::uint64_t hash_ = 0x243f6a8885a308d3;
  std::unordered_map<std::string, std::vector<SimNetwork*>> networks_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::set<std::pair<std::size_t, std::size_t>> partitions_;  // the lower index first
  std::map<std::pair<std::size_t, std::size_t>, Path> paths_;
};

}  // namespace fairway::sim
