#include "sim/simulation.h"

#include <algorithm>
#include <utility>

#include "sim/host.h"

namespace fairway::sim {

Simulation::Simulation(SimulationOptions options) : options_(std::move(options)), random_(options_.seed) {
  events_.reserve(256);
}

Simulation::~Simulation() = default;

void Simulation::at(Time when, Handler handler, void* object, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t order = (random_.next() << 32) | sequence_++;
  events_.push_back({std::max(when, now_), order, handler, object, a, b});
  std::push_heap(events_.begin(), events_.end(), later);
}

bool Simulation::step(Time limit) {
  if (events_.empty() || events_.front().at > limit) return false;
  std::pop_heap(events_.begin(), events_.end(), later);
  const Event event = events_.back();
  events_.pop_back();
  now_ = event.at;
  mix(event.at ^ event.a << 17);
  if (++events_run_ > options_.most_events) stuck("more than " + std::to_string(options_.most_events) + " events");
  if (now_ > options_.most_time) stuck("more than " + std::to_string(options_.most_time / kSecond) + " s passed");
  event.handler(event.object, event.a, event.b);
  return true;
}

void Simulation::run_until(Time time) {
  while (step(time)) {
  }
  now_ = std::max(now_, time);
}

void Simulation::stuck(const std::string& why) {
  note(kNoHost, [&] { return "STUCK: " + why; });
  if (++times_stuck_ == 1 && options_.stuck) options_.stuck(why);
  constexpr std::uint32_t kTries = 1000;
  if (times_stuck_ > kTries && options_.hopeless) options_.hopeless(why);
  if (now_ > options_.most_time) options_.most_time = now_ + kSecond;
  if (events_run_ > options_.most_events) options_.most_events = events_run_ + 1000;
  for (const auto& host : hosts_) host->bury();
}

std::uint64_t Simulation::drifting_clocks() const {
  return static_cast<std::uint64_t>(std::ranges::count_if(hosts_, [](const auto& host) { return host->drift() != 0; }));
}

Host& Simulation::add_host(std::size_t place) {
  hosts_.push_back(std::make_unique<Host>(*this, hosts_.size(), place));
  return *hosts_.back();
}

void Simulation::set_partition(std::size_t a, std::size_t b, bool on) {
  if (on)
    partitions_.insert(std::minmax(a, b));
  else
    partitions_.erase(std::minmax(a, b));
  note(kNoHost, [&] {
    return "hosts " + std::to_string(a) + " and " + std::to_string(b) + (on ? " are partitioned" : " see each other");
  });
}

void Simulation::write(std::uint64_t host, const std::string& text) {
  std::string micros = std::to_string(now_ / 1000);
  micros.insert(0, 9 - std::min<std::size_t>(9, micros.size()), ' ');
  std::string nanos = std::to_string(now_ % 1000);
  nanos.insert(0, 3 - nanos.size(), '0');
  options_.trace(micros + "." + nanos + " us  " + (host == kNoHost ? "  --" : "h" + std::to_string(host) + "  ") +
                 "  " + text);
}

}  // namespace fairway::sim
