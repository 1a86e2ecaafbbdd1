#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>

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
// Threads of ours lost their cores some times a second; each loss may have cost tens of milliseconds.
bool lost_cores(const CoreUse& use);
// Whether a p99 is the scheduler's, however good the median.
bool is_late(double p99_us, double bytes, const CoreUse& use);

// CPUs of which some are chosen, however many the machine may have: one cpu_set_t has 1024. A value.
class Cpus {
 public:
  using Ask = int (*)(pid_t, std::size_t, cpu_set_t*);  // ::sched_getaffinity's form

  Cpus() = default;        // none
  explicit Cpus(Ask ask);  // those that the calling thread may use; none where the kernel does not say
  [[nodiscard]] Cpus only(int cpu) const;
  [[nodiscard]] bool has(int cpu) const;
  // One more than the highest number that it could have.
  [[nodiscard]] int end() const { return static_cast<int>(bytes() * 8); }
  [[nodiscard]] bool use() const;  // by the calling thread, from now on

 private:
  [[nodiscard]] std::size_t bytes() const { return sets_.size() * sizeof(cpu_set_t); }
  std::vector<cpu_set_t> sets_;
};

// Two of the CPUs that this process may use: of one package and of two cores, as far as there are such. None: it has
// one.
std::optional<std::pair<int, int>> two_cores();

// Keeps the calling thread on one CPU, from hold() until let_go() or its end. Without that the scheduler at times
// leaves two processes that poll, and that a pipe has just woken, on one CPU for milliseconds.
class HeldCore {
 public:
  HeldCore() = default;
  ~HeldCore() { let_go(); }
  HeldCore(const HeldCore&) = delete;
  HeldCore& operator=(const HeldCore&) = delete;
  void hold(int cpu);
  void let_go();

 private:
  std::optional<Cpus> before_;
};

}  // namespace fairway::tool::bench
