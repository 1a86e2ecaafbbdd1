#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "collectives.h"
#include "gpu.h"

namespace fairway::tool::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{120}, kGpuTimeout{30};  // of an operation; RankGroup is more patient
constexpr std::uint32_t kGpuCounters = 1U << 20;  // a communicator takes 10 for each rank, and GpuRank makes many

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Lines to who started this rank. What libraries print goes to standard error: NCCL prints what NCCL_DEBUG asks for.
class Answers {
 public:
  Answers() : file_(::fdopen(::dup(STDOUT_FILENO), "w")) { ::dup2(STDERR_FILENO, STDOUT_FILENO); }
  ~Answers() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  void operator()(const std::string& line) const {
    if (file_ == nullptr) return;
    std::fputs((line + "\n").c_str(), file_);
    (void)std::fflush(file_);
  }

 private:
  std::FILE* const file_;
};

// The next line of standard input, with the engine at work meanwhile: a rank that is not done yet may need its answers.
bool next_line(Engine& engine, std::string& line) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (std::cin.rdbuf()->in_avail() <= 0 && ::poll(&input, 1, 0) == 0) {
    (void)engine.poll({});
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return static_cast<bool>(std::getline(std::cin, line));
}

// send_recv: to the next rank, and from the one before. A rank alone copies.
Status exchange(Communicator& group, const Collective& memory, std::uint64_t size_bytes) {
  if (group.size() == 1) return std::memcpy(memory.output, memory.input, size_bytes), Status();
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  const auto receiving = group.start_receive(memory.output, size_bytes, before);
  if (!receiving) return receiving.status();
  const auto sending = group.start_send(memory.input, size_bytes, next);
  const Status sent = sending ? group.wait(*sending) : sending.status();
  const Status received = group.wait(*receiving);
  return sent ? received : sent;
}

Result<Timed> on_host(Communicator& group, const CollectiveOrder& order) {
  const CollectiveWork& work = order.work;
  const std::uint64_t rounds = order.rounds;
  const CollectiveMemory memory(work, group.rank());
  Timed timed;
  timed.algorithm = work.messages ? "messages" : to_string(group.chosen(memory.call()));
  const auto once = [&] {
    return work.messages ? exchange(group, memory.call(), memory.size_bytes()) : group.run(memory.call());
  };
  for (std::uint64_t i = 0, warm = std::max<std::uint64_t>(1, rounds / 10); i < warm; ++i)
    if (Status status = once(); !status) return status;
  if (Status status = group.run({}); !status) return status;
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < rounds; ++i)
    if (Status status = once(); !status) return status;
  timed.us = us_since(start) / static_cast<double>(rounds);
  timed.wrong = memory.wrong();
  return timed;
}

EngineOptions engine_of(const RankSeat& seat) {
  EngineOptions options;
  options.name = fmt::format("rank-{}", seat.rank);
  options.transports = seat.paths;
  if (seat.gpu)
    options.max_counters = kGpuCounters;
  else
    options.progress = Progress::caller;  // with a GPU a rank's death is noticed while a stream is waited for
  if (!seat.listen.empty()) {
    options.listen = seat.listen;
    options.job_key =
        "fairway bench collectives";  // addresses beyond loopback need one; nobody else is on this network
  }
  if (static_cast<unsigned>(seat.ranks) > std::thread::hardware_concurrency())
    options.spin = std::chrono::microseconds(0);
  return options;
}

Status serve(const RankSeat& seat, const Answers& say) {
  auto engine = Engine::open(engine_of(seat));
  if (!engine) return engine.status();
  say(engine->address());
  std::string line;
  if (!std::getline(std::cin, line)) return {};
  std::istringstream words(line);
  std::vector<std::string> addresses;
  for (std::string address; words >> address;) addresses.push_back(address);
  const auto start = Clock::now();
  auto group = Communicator::create(*engine, seat.rank, addresses, {.timeout = seat.gpu ? kGpuTimeout : kTimeout});
  if (!group) return group.status();
  const double join_ms = us_since(start) / 1e3;
  std::unique_ptr<GpuRank> gpu;
  if (seat.gpu) {
    auto opened = GpuRank::open(*group, *seat.gpu);
    if (!opened) return opened.status();
    gpu = std::move(*opened);
  }
  say(fmt::format("{:.3f}", join_ms));
  while (seat.gpu ? static_cast<bool>(std::getline(std::cin, line)) : next_line(*engine, line)) {
    const auto order = order_of(line);
    if (!order) return order.status();
    const auto timed = gpu ? gpu->run(*order) : on_host(*group, *order);
    if (!timed) return timed.status();
    say(fmt::format("{:.4f} {} {}", timed->us, timed->wrong, timed->algorithm));
  }
  return {};
}

}  // namespace

void be_rank(const RankSeat& seat) {
  const Answers say;
  if (const Status status = serve(seat, say); !status) say(std::string(kCannot) + status.message());
}

}  // namespace fairway::tool::bench
