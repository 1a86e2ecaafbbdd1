#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "target.h"

// The cost of submit(), and the latency of a sleeping pair on busy cores.
namespace fairway::tool::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Clock::time_point after_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A loop over one socket whose both ends sleep in the kernel: `size` bytes there, eight back. The helper forked for it
// ends with it.
class SleepingLoop {
 public:
  explicit SleepingLoop(std::uint64_t size) : bytes_(size) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* at = reinterpret_cast<sockaddr*>(&address);
    const bool listens =
        ::bind(listener, at, length) == 0 && ::listen(listener, 1) == 0 && ::getsockname(listener, at, &length) == 0;
    pid_ = listens ? ::fork() : -1;
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      socket_ = ::accept(listener, nullptr, nullptr);
      without_delay();
      while (receive(bytes_.size()) && send(8)) continue;
      ::_exit(0);
    }
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    open_ = pid_ > 0 && ::connect(socket_, at, length) == 0;
    without_delay();
    ::close(listener);
  }
  ~SleepingLoop() {
    ::close(socket_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  SleepingLoop(const SleepingLoop&) = delete;
  SleepingLoop& operator=(const SleepingLoop&) = delete;

  bool once() { return open_ && send(bytes_.size()) && receive(8); }

 private:
  void without_delay() const {
    const int one = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  bool send(std::size_t size) const {
    return ::send(socket_, bytes_.data(), size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }
  bool receive(std::size_t size) {
    return ::recv(socket_, bytes_.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  std::vector<std::byte> bytes_;
  int socket_ = -1;
  pid_t pid_ = -1;
  bool open_ = false;
};

// Keeps threads busy while it lives.
class BusyThreads {
 public:
  explicit BusyThreads(unsigned count) {
    for (unsigned i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) continue;
      });
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& each : threads_) each.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

enum class Submits { by_caller, to_one_awake, to_one_asleep };  // who moves what is submitted

const char* text_of(Submits who) {
  if (who == Submits::by_caller) return "caller's progress";
  return who == Submits::to_one_awake ? "worker awake" : "worker asleep";
}

// Times only the call, for one write at a time.
Status submit_over(const LoadPlan& plan, const std::string& path, Submits who, std::vector<LoadRow>& rows) {
  OtherProcess other;
  const auto address = other.start(words_of(serve_of(plan, path, 1, kLoadBytes)));
  if (!address) return address.status();
  EngineOptions options;
  if (who == Submits::by_caller) options.progress = fairway::Progress::caller;
  if (who == Submits::to_one_awake) options.spin = std::chrono::seconds(1);
  options.rdma = plan.rdma;
  auto from = LoadEngine::open(options, plan, path, kLoadBytes);
  if (!from) return from.status();
  const auto to = LoadTarget::meet(from->engine, *address);
  if (!to) return to.status();
  for (const std::uint64_t size :
       {std::uint64_t{8}, std::uint64_t{4} << 10, std::uint64_t{64} << 10, std::uint64_t{1} << 20, kLoadBytes}) {
    if (Status status = plan.progress(fmt::format("submit {} {}", path, size_text(size))); !status) return status;
    std::vector<double> times;
    const auto until = after_seconds(plan.seconds);
    while (times.size() < 100 || (Clock::now() < until && times.size() < 20'000)) {
      if (who == Submits::to_one_asleep) std::this_thread::sleep_for(std::chrono::microseconds(500));
      const auto start = Clock::now();
      const auto id = from->engine.write(to->peer, Extent{{from->ours.region.id, 0, size}, {to->memory.id, 0}});
      times.push_back(us_since(start));
      if (!id) return id.status();
      const auto done = from->engine.wait(*id, std::chrono::seconds(30));
      if (!done || !done->status) return done ? done->status : done.status();
    }
    LoadRow row{"submit", path, fmt::format("{}, {}", size_text(size), text_of(who)), "us"};
    row.p50 = percentile_of(times, 0.5);
    row.p99 = percentile_of(times, 0.99);
    row.target = who == Submits::to_one_asleep ? 0 : 5;
    rows.push_back(row);
  }
  return {};
}

}  // namespace

Status measure_submit(const LoadPlan& plan, std::vector<LoadRow>& rows) {
  for (const std::string& path : plan.paths)
    for (const Submits who : {Submits::by_caller, Submits::to_one_awake, Submits::to_one_asleep})
      if (Status status = submit_over(plan, path, who, rows); !status) return status;
  return {};
}

namespace {

constexpr std::uint64_t kBusySize = 4 << 10;

// Both ends sleep until something arrives; ours and the raw loop in turn.
Status busy_over(const LoadPlan& plan, const std::string& path, fairway::Progress progress, unsigned busy,
                 SleepingLoop& loop, std::vector<LoadRow>& rows) {
  const bool caller = progress == fairway::Progress::caller;
  if (Status status = plan.progress(fmt::format("{} beside {} busy threads", path, busy)); !status) return status;
  OtherProcess other;
  const auto address = other.start(words_of(serve_of(plan, path, 1, kBusySize)));
  if (!address) return address.status();
  EngineOptions options;
  options.progress = progress;
  options.rdma = plan.rdma;
  auto from = LoadEngine::open(options, plan, path, kBusySize);
  if (!from) return from.status();
  const auto to = LoadTarget::meet(from->engine, *address);
  if (!to) return to.status();
  const BusyThreads beside(busy);
  std::vector<double> ours, raw;
  const auto until = after_seconds(plan.seconds * (busy == 0 ? 1 : 4));
  while (ours.size() < 200 || Clock::now() < until) {
    for (int i = 0; i < 50; ++i) {
      const auto start = Clock::now();
      if (Status status = write_once(*from, *to, kBusySize); !status) return status;
      ours.push_back(us_since(start));
    }
    for (int i = 0; i < 50; ++i) {
      const auto start = Clock::now();
      if (!loop.once()) return {ErrorCode::system_error, "the helper process of the raw loop has ended"};
      raw.push_back(us_since(start));
    }
  }
  LoadRow row{"busy", path, fmt::format("4 KiB, {} progress, {} busy threads", caller ? "caller's" : "worker's", busy),
              "us"};
  row.p50 = percentile_of(ours, 0.5);
  row.p99 = percentile_of(ours, 0.99);
  row.beside_p99 = percentile_of(raw, 0.99);
  row.target = busy == 0 ? 0 : (caller ? 1.5 : 2) * row.beside_p99;
  rows.push_back(row);
  return {};
}

}  // namespace

Status measure_busy(const LoadPlan& plan, std::vector<LoadRow>& rows) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  SleepingLoop loop(kBusySize);  // first: it forks
  for (const std::string& path : plan.paths)
    for (const auto progress : {fairway::Progress::caller, fairway::Progress::threads})
      for (const unsigned busy : {0u, cores})
        if (Status status = busy_over(plan, path, progress, busy, loop, rows); !status) return status;
  return {};
}

}  // namespace fairway::tool::bench
