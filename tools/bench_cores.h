#pragma once

#include <cstdint>
#include <string>

// Whether other work had the cores while something was measured.
namespace fairway::tool::bench {

struct CoreUse {
  double switches_per_second = 0;  // of our threads, against their will
  double stolen = 0;               // by the host of a virtual machine: the share of all cores' time
};

// From its making on. A value.
class CoreWatch {
 public:
  CoreWatch();
  [[nodiscard]] CoreUse use() const;

 private:
  struct Reading {
    double seconds = 0;
    std::uint64_t switches = 0, stolen = 0, all = 0;
  };
  static Reading read();
  Reading start_;
};

// Empty, or what of it makes the times of a thread that polls the scheduler's rather than the path's.
std::string busy_text(const CoreUse& use, bool polls);
// Whether `us` for `bytes` is so slow that a wait for a core must be in it: ten times what a slow machine takes.
bool order_off(double us, double bytes);

}  // namespace fairway::tool::bench
