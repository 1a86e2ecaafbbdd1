#include "cores.h"

#include <chrono>
#include <fstream>

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

std::optional<std::pair<int, int>> two_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::nullopt;
  const int first = ::sched_getcpu();
  if (first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, &allowed)) return std::nullopt;
  const auto here = core_of(first);
  std::optional<int> same_package, any;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (cpu == first || !CPU_ISSET(cpu, &allowed)) continue;
    const auto there = core_of(cpu);
    if (there.first == here.first && there.second != here.second && !same_package) same_package = cpu;
    if (!any) any = cpu;
  }
  if (!any) return std::nullopt;
  return std::pair(first, same_package.value_or(*any));
}

void HeldCore::hold(int cpu) {
  let_go();
  cpu_set_t before;
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof one, &one) == 0) before_ = before;
}

void HeldCore::let_go() {
  if (before_) (void)::sched_setaffinity(0, sizeof *before_, &*before_);
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
