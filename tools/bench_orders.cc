#include "bench_orders.h"

#include <array>
#include <charconv>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fairway::tool::bench {

Answer spent(const Engine& engine) {
  Answer answer;
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  answer.cpu_seconds = static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  for (const TransportMetrics& each : engine.metrics().transports) {
    answer.copied += each.copied_bytes;
    answer.calls += each.system_calls;
  }
  return answer;
}

RequestOptions to_poll() {
  RequestOptions options;
  options.deliver = Deliver::to_poll;
  return options;
}

Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kPatience);
  return completion ? completion->status : completion.status();
}

Status finish_hot(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  std::array<Completion, 1> done;
  for (;;) {
    if (engine.poll(done) == 0) continue;  // the engine ends it when the peer goes away
    if (!done[0].status || done[0].id == *id) return done[0].status;
  }
}

EngineOptions engine_options(bool sleeping, const std::vector<std::string>& via) {
  EngineOptions options;
  options.progress = sleeping ? fairway::Progress::threads : fairway::Progress::caller;
  options.transports = via;
  return options;
}

Result<NamedMemory> open_memory(Engine& engine, const std::string& name, std::uint64_t size, Access access) {
  if (name == "shared") {
    auto region = engine.allocate(size, access);
    if (!region) return region.status();
    return NamedMemory{*region, nullptr};
  }
  unsigned node = 0;
  constexpr std::string_view kNuma = "host:numa";
  const bool bound = name.starts_with(kNuma);
  if (bound) {
    const char* end = name.data() + name.size();
    if (const auto read = std::from_chars(name.data() + kNuma.size(), end, node); read.ptr != end || node >= 1024)
      return Status(ErrorCode::invalid_argument, fmt::format("\"{}\": the node is a number, as in host:numa0", name));
  } else if (name != "host") {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("\"{}\" is no memory of this build; there are: host, host:numaN, shared", name));
  }
  void* bytes = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return Status(ErrorCode::resource_exhausted, fmt::format("cannot map {} bytes", size));
  const std::shared_ptr<void> held(bytes, [size](void* at) { ::munmap(at, size); });
  if (bound) {
    constexpr int kBind = 2;  // MPOL_BIND
    std::array<unsigned long, 1024 / (8 * sizeof(unsigned long))> mask{};
    mask[node / (8 * sizeof(unsigned long))] = 1UL << node % (8 * sizeof(unsigned long));
    if (::syscall(SYS_mbind, bytes, size, kBind, mask.data(), 1024UL, 0U) != 0)
      return Status(ErrorCode::invalid_argument, fmt::format("this machine has no NUMA node {} with memory", node));
  }
  std::memset(bytes, 1, size);  // its pages exist before anything is measured
  auto region = engine.register_memory(bytes, size, access);
  if (!region) return region.status();
  return NamedMemory{*region, held};
}

}  // namespace fairway::tool::bench
