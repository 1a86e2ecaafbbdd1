#include "cores.h"

#include <cerrno>
#include <chrono>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>

namespace fairway::tool::bench {

CoreWatch::Reading CoreWatch::read() {
  Reading reading;
  reading.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  reading.switches = static_cast<std::uint64_t>(usage.ru_nivcsw);
  // cpu  user nice system idle iowait irq softirq steal
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  for (int column = 0; column < 8; ++column) {
    std::uint64_t ticks = 0;
    if (!(file >> ticks)) break;
    reading.all += ticks;
    if (column == 7) reading.stolen = ticks;
  }
  return reading;
}

CoreWatch::CoreWatch() : start_(read()) {}

CoreUse CoreWatch::use() const {
  const Reading now = read();
  CoreUse use;
  const double seconds = now.seconds - start_.seconds;
  if (seconds > 0) use.switches_per_second = static_cast<double>(now.switches - start_.switches) / seconds;
  if (now.all > start_.all)
    use.stolen = static_cast<double>(now.stolen - start_.stolen) / static_cast<double>(now.all - start_.all);
  return use;
}

std::string busy_text(const CoreUse& use, bool polls) {
  constexpr double kSwitches = 50;  // a second; a thread alone on its core has a few
  constexpr double kStolen = 0.05;
  std::string text;
  if (polls && use.switches_per_second > kSwitches)
    text = fmt::format("{:.0f} involuntary context switches a second", use.switches_per_second);
  if (use.stolen > kStolen)
    text += fmt::format("{}{:.0f} % of the cores' time stolen by the host", text.empty() ? "" : ", ", 100 * use.stolen);
  return text;
}

namespace {

// Package and core of a CPU; -1 where the kernel does not say.
std::pair<int, int> core_of(int cpu) {
  const auto number = [cpu](const char* name) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, name));
    int value = -1;
    file >> value;
    return file ? value : -1;
  };
  return {number("physical_package_id"), number("core_id")};
}

}  // namespace

Cpus::Cpus(Ask ask) {
  // The kernel refuses a set with fewer places than the machine may have CPUs, and does not say how many those are.
  constexpr std::size_t kMost = 1024;  // a million CPUs
  for (sets_.resize(1); sets_.size() <= kMost; sets_.resize(sets_.size() * 2)) {
    for (cpu_set_t& set : sets_) CPU_ZERO(&set);
    if (ask(0, bytes(), sets_.data()) == 0) return;
    if (errno != EINVAL) break;
  }
  sets_.clear();
}

bool Cpus::has(int cpu) const {
  return cpu >= 0 && cpu < end() && CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes(), sets_.data());
}

bool Cpus::use() const {
  return !sets_.empty() && ::sched_setaffinity(0, bytes(), sets_.data()) == 0;
}

Cpus Cpus::only(int cpu) const {
  Cpus one;
  one.sets_.resize(sets_.size());
  CPU_ZERO_S(bytes(), one.sets_.data());
  if (has(cpu)) CPU_SET_S(static_cast<std::size_t>(cpu), bytes(), one.sets_.data());
  return one;
}

std::optional<std::pair<int, int>> two_cores() {
  const Cpus allowed(::sched_getaffinity);
  const int first = ::sched_getcpu();
  if (!allowed.has(first)) return std::nullopt;
  const auto here = core_of(first);
  std::optional<int> same_package, any;
  for (int cpu = 0; cpu < allowed.end(); ++cpu) {
    if (cpu == first || !allowed.has(cpu)) continue;
    const auto there = core_of(cpu);
    if (there.first == here.first && there.second != here.second && !same_package) same_package = cpu;
    if (!any) any = cpu;
  }
  if (!any) return std::nullopt;
  return std::pair(first, same_package.value_or(*any));
}

void HeldCore::hold(int cpu) {
  let_go();
  Cpus before(::sched_getaffinity);
  if (before.only(cpu).use()) before_ = std::move(before);
}

void HeldCore::let_go() {
  if (before_) (void)before_->use();
  before_.reset();
}

bool order_off(double us, double bytes) {
  constexpr double kHandOverUs = 300, kBytesPerUs = 200;
  return us > kHandOverUs + bytes / kBytesPerUs;
}

bool lost_cores(const CoreUse& use) {
  constexpr double kFewSwitches = 5;
  return use.switches_per_second > kFewSwitches;
}

bool is_late(double p99_us, double bytes, const CoreUse& use) {
  return order_off(p99_us, bytes) && lost_cores(use);
}

}  // namespace fairway::tool::bench
