#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sim/simulate.h"

// seeds <first> <count>: 0 when every seed of the campaign passes, else 1 and the first that does not.
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::uint64_t first = std::strtoull(argv[1], nullptr, 10);
  const std::uint64_t count = std::strtoull(argv[2], nullptr, 10);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    fairway::SimulationRequest request;
    request.seed = seed;
    request.hopeless = [seed](const std::string& why) {
      std::printf("seed %llu: hopeless: %s\n", static_cast<unsigned long long>(seed), why.c_str());
      std::fflush(stdout);
      std::_Exit(1);
    };
    const auto report = fairway::simulate(request);
    if (report.passed) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), report.failure.c_str());
    return 1;
  }
  return 0;
}
