#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/time.h"
#include "sim/random.h"

namespace fairway::sim {

class Host;

struct SimulationOptions {
  std::uint64_t seed = 1;
  std::function<void(const std::string& line)> trace;  // one line per event worth reading; empty: none, at no cost
  // Called when nothing can ever happen again although someone waits, or a limit below is passed. The simulation then
  // wakes everyone, unfreezes every host and extends its limits, so that a test can report and wind up.
  std::function<void(const std::string& why)> stuck;
  // Called when that did not help. Must not return.
  std::function<void(const std::string& why)> hopeless;
  Time most_time = 600 * kSecond;
  std::uint64_t most_events = 20'000'000;
};

// Virtual time and everything that happens in it: one heap of events in the order of (time, seeded tie-break). One
// thread owns a simulation and all that lives in it; two simulations share nothing.
class Simulation {
 public:
  using Handler = void (*)(void* object, std::uint64_t a, std::uint64_t b);

  explicit Simulation(SimulationOptions options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  Time now() const { return now_; }
  Random& random() { return random_; }

  // Calls handler(object, a, b) at `when`. There is no way to take it back: handlers check whether they still apply,
  // and objects live as long as the simulation.
  void at(Time when, Handler handler, void* object, std::uint64_t a = 0, std::uint64_t b = 0);
  void in(Time delay, Handler handler, void* object, std::uint64_t a = 0, std::uint64_t b = 0) {
    at(after(now_, delay), handler, object, a, b);
  }

  // Runs the next event, if it is due by `limit`. False: none was; time stays.
  bool step(Time limit = kNever);
  // Runs what is due by `time`, which it then is.
  void run_until(Time time);
  // Runs until `done` or `time`; whether it was done.
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

  // Hosts are numbered in the order of their making and live as long as the simulation.
  Host& add_host() { return add_host(hosts_.size()); }
  Host& add_host(std::size_t place);  // at the place of a host that was killed: the machine restarted
  std::size_t host_count() const { return hosts_.size(); }
  Host& host(std::size_t index) { return *hosts_[index]; }

  // No byte passes between the two hosts, in either direction, until it is lifted.
  void set_partition(std::size_t a, std::size_t b, bool on);
  bool partitioned(std::size_t a, std::size_t b) const { return (partitions_[a] >> b & 1) != 0; }

  // What happened so far, in one number: equal for two runs that did the same.
  std::uint64_t hash() const { return hash_; }
  std::uint64_t events_run() const { return events_run_; }
  void mix(std::uint64_t fact) { hash_ = (hash_ ^ fact) * 0x9e3779b97f4a7c15; }

  // Traces what `text()` returns; nothing is built when nobody reads.
  template <std::invocable Text>
  void note(std::uint64_t host, Text text) {
    if (options_.trace) write(host, text());
  }
  static constexpr std::uint64_t kNoHost = ~std::uint64_t{0};

  static constexpr std::size_t kMaxHosts = 64;

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
  std::vector<Event> events_;  // a heap
  std::uint32_t sequence_ = 0;
  std::uint64_t events_run_ = 0;
  std::uint32_t times_stuck_ = 0;
  std::uint64_t hash_ = 0x243f6a8885a308d3;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::uint64_t partitions_[kMaxHosts] = {};
};

}  // namespace fairway::sim
