#pragma once

#include "core/runtime.h"
#include "sys/thread_executor.h"

// The Runtime of the operating system: clock, randomness, threads and TCP.
namespace fairway::sys {

// CLOCK_MONOTONIC for now(), CLOCK_REALTIME for unix_ns(). Stateless; any thread.
class SystemClock final : public Clock {
 public:
  Time now() override;
  Time about(Reading& last) override;
  std::uint64_t unix_ns() override;
};

// The kernel's random generator (getrandom). Stateless; any thread.
class SystemRng final : public Rng {
 public:
  void fill(std::span<std::byte> out) override;
};

// TCP over IPv4 and IPv6. Stateless; any thread. Tasks passed to it must come from this library's ThreadExecutor.
class TcpNetwork final : public Network {
 public:
  Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) override {
    return dial_in_segments(address, 0, wakes);
  }
  // Of addresses alone: a name is dialed as by dial().
  Result<std::unique_ptr<Channel>> dial_in_segments(const std::string& address, std::uint32_t most_bytes,
                                                    Task& wakes) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) override;
  Result<bool> is_loopback(const std::string& address) override;
  Result<std::vector<InterfaceAddress>> addresses() override;
};

// The operating system as a Runtime. Must outlive everything opened on it. A process may have several.
class SystemRuntime {
 public:
  Runtime runtime() { return {clock_, rng_, executor_, network_}; }

 private:
  SystemClock clock_;
  SystemRng rng_;
  ThreadExecutor executor_{clock_};
  TcpNetwork network_;
};

}  // namespace fairway::sys
