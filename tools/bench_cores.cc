#include "bench_cores.h"

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

bool order_off(double us, double bytes) {
  constexpr double kHandOverUs = 300, kBytesPerUs = 200;
  return us > kHandOverUs + bytes / kBytesPerUs;
}

}  // namespace fairway::tool::bench
