#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench_verbs.h"
#include "transport/verbs/queue_pair.h"

namespace fairway::tool::bench::raw {

namespace verbs = transport::verbs;
using Clock = std::chrono::steady_clock;

// What the other end needs to know of this one's port and memory.
struct Place {
  verbs::PortAddress address;
  std::uint32_t mtu = 0;  // bytes
  bool atomics = false;
  std::uint64_t out = 0, in = 0;  // its memory
  std::uint32_t key = 0;
};

// What came to a receive.
struct Arrival {
  std::uint32_t place = 0;  // the slot that it was posted for
  std::uint32_t immediate = 0;
  std::uint32_t bytes = 0;
};

// One process's end: a port, memory that goes out and memory that comes in, queue pairs. A resource of one thread.
class End {
 public:
  // `device`: a port or a device; empty: any. `area`: bytes of memory each way.
  static Result<std::unique_ptr<End>> open(const std::string& device, int gid_index);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  [[nodiscard]] const verbs::Port& port() const { return *port_; }
  [[nodiscard]] Place place() const;
  Status reserve(std::uint64_t area);  // memory each way

  // New queue pairs, for that shape; then each gets its peer.
  Result<std::vector<verbs::Endpoint>> make_pairs(const Shape& shape, std::uint32_t path_mtu);
  Status connect(std::span<const verbs::Endpoint> theirs, const Place& there);
  [[nodiscard]] bool is_inline() const { return inline_; }

  [[nodiscard]] std::byte* out(std::uint32_t slot) { return memory_ + slot * shape_.stride(); }
  [[nodiscard]] std::byte* in(std::uint32_t slot) { return memory_ + area_ + slot * shape_.stride(); }

  // By one doorbell, the last of them signalled. `room` says whether the queue has some.
  [[nodiscard]] bool room(std::uint32_t pair, std::uint32_t count) const { return underway_[pair] + count <= depth_; }
  Status post(std::uint32_t pair, std::uint32_t first, std::uint32_t count, std::uint64_t seed);
  Status post_receives(std::uint32_t slots, bool by_lists);  // for that many operations, as they will arrive

  // Takes completions until done(). False: nothing came for so long. Sleeps where the shape says so.
  template <class Done>
  Result<bool> wait(Done done, std::chrono::milliseconds patience);
  Result<int> poll();  // how many completions there were
  // Since forget(): of sends, operations; of receives, in their order on each pair.
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  [[nodiscard]] std::uint64_t arrived() const { return arrived_; }
  [[nodiscard]] const std::vector<std::vector<Arrival>>& arrivals() const { return arrivals_; }
  void forget();
  [[nodiscard]] Counts& counts() { return counts_; }

 private:
  explicit End(std::unique_ptr<verbs::Port> port) : port_(std::move(port)) {}
  Result<int> sleep(std::chrono::milliseconds most);
  Status failed(const char* what) const;

  std::unique_ptr<verbs::Port> port_;
  Shape shape_;
  Place there_;
  std::byte* memory_ = nullptr;  // out, in, then the header of datagrams
  std::uint64_t area_ = 0;
  verbs::abi::MemoryRegion* region_ = nullptr;
  std::vector<std::unique_ptr<verbs::QueuePair>> pairs_;
  std::vector<verbs::Endpoint> own_;
  std::uint32_t depth_ = 0;
  bool inline_ = false;
  std::vector<verbs::abi::SendRequest> requests_;
  std::vector<verbs::abi::Gather> gathers_;
  std::vector<std::uint32_t> underway_;  // by pair
  std::uint64_t sent_ = 0, arrived_ = 0;
  std::vector<std::vector<Arrival>> arrivals_;
  Counts counts_;
};

template <class Done>
Result<bool> End::wait(Done done, std::chrono::milliseconds patience) {
  constexpr unsigned kLook = 1024;  // polls between looks at the clock
  Clock::time_point until{};
  for (unsigned idle = 0; !done();) {
    auto got = poll();
    if (got && *got == 0 && shape_.events) got = sleep(patience);
    if (!got) return got.status();
    if (*got > 0) {
      idle = 0;
      until = {};
      continue;
    }
    if (++idle % kLook != 0 && !shape_.events) continue;
    const auto now = Clock::now();
    if (until == Clock::time_point{}) until = now + patience;
    if (now >= until) return done();
    if (!shape_.events) std::this_thread::yield();
  }
  return true;
}

}  // namespace fairway::tool::bench::raw
