#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "core/time.h"

// All that engine, control and transports may know of time, chance, threads and sockets. sys implements it on the
// operating system, sim on virtual time with one seed. Nothing else in those layers reads a clock, sleeps, starts a
// thread or opens a socket.
namespace fairway {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() = 0;               // any thread
  virtual std::uint64_t unix_ns() = 0;  // wall clock, for directory records and incarnations only; any thread
};

class Rng {
 public:
  virtual ~Rng() = default;
  virtual void fill(std::span<std::byte> out) = 0;  // any thread; unpredictable on sys, seeded on sim
};

// Code with one owner. step() does a bounded amount of work and says when it wants to run again.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Returns <= now when there is more to do at once, a later time for a timer, kNever to run only when woken.
  virtual Time step(Time now) = 0;
  // The last look before its thread sleeps: arm every wake-up source. False: work arrived meanwhile, do not sleep.
  virtual bool prepare_sleep() { return true; }
};

// A Stepper that an executor runs. Destroying it returns only when step() is not running and never will again.
class Task {
 public:
  virtual ~Task() = default;
  virtual void wake() = 0;           // any thread; wakes coalesce
  virtual Status watch(int fd) = 0;  // also wake when fd is readable (level); owner thread or before the first step
  virtual void unwatch(int fd) = 0;
};

// A file descriptor that becomes readable once set, for a user's event loop. In the simulator there is no descriptor.
class Signal {
 public:
  virtual ~Signal() = default;
  virtual void set() = 0;    // any thread; a system call only when somebody may sleep on it
  virtual void clear() = 0;  // any thread
  // Blocks until it is set, a descriptor watched by its caller-stepped task is ready, or `deadline`. Any thread.
  virtual void wait(Time deadline) = 0;
  virtual int fd() = 0;  // readable while set, from the first call on; -1 in the simulator
  // fd() turns readable at `when` too (kNever: not), until the first clear() from then on. Any thread.
  virtual void set_at(Time when) = 0;
};

struct TaskOptions {
  std::string name;                  // of the thread, <= 15 characters
  Time spin_ns = 20 * kMicrosecond;  // how long to spin before sleeping; 0 when runnable threads exceed cores
  bool caller_steps = false;         // no thread: the owner calls step() itself; wake() sets `signal`
  Signal* signal = nullptr;          // with caller_steps
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) = 0;
  virtual Result<std::unique_ptr<Signal>> make_signal() = 0;
  // Blocks while `word` holds `seen`, until wake_all(word) or `deadline`. Spurious returns are allowed. The simulator
  // runs other steppers meanwhile.
  virtual void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) = 0;
  virtual void wake_all(std::atomic<std::uint32_t>& word) = 0;
  // job(0) to job(count - 1), side by side where there are threads for it; returns when all have run. Any thread; for
  // work that takes much longer than starting a thread.
  virtual void run_all(std::size_t count, const std::function<void(std::size_t)>& job) {
    for (std::size_t i = 0; i < count; ++i) job(i);
  }
};

// An ordered byte stream that never blocks. One owner: the stepper whose task it wakes.
class Channel {
 public:
  virtual ~Channel() = default;  // closes
  // Bytes taken; 0: would block, the task is woken when there is room. A failure is final.
  virtual Result<std::size_t> send(std::span<const std::byte> bytes) = 0;
  // Bytes stored; 0: none now, the task is woken when there are. ErrorCode::closed: the other end closed in order;
  // anything else: it broke (refused, reset, unreachable: the system's text says).
  virtual Result<std::size_t> receive(std::span<std::byte> into) = 0;
  // The same of several pieces at once, in order: one system call where there are system calls.
  virtual Result<std::size_t> send_pieces(std::span<const std::span<const std::byte>> pieces);
  virtual Result<std::size_t> receive_pieces(std::span<const std::span<std::byte>> pieces);
  virtual std::string peer_address() const = 0;  // "host:port" for messages
  // False: nothing announced itself since the last receive. What has come unannounced still wakes the task.
  virtual bool announced() const { return true; }
  virtual std::string local_address() const { return {}; }  // empty: unknown
  virtual std::uint64_t system_calls() const { return 0; }  // made so far
};

class Listener {
 public:
  virtual ~Listener() = default;                                     // stops listening
  virtual Result<std::unique_ptr<Channel>> accept(Task& wakes) = 0;  // null when none waits
  virtual std::string address() const = 0;                           // the bound "host:port"
  virtual bool announced() const { return true; }                    // as a channel's
};

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string host;       // "10.0.0.7", "fd00::7"
  bool loopback = false;
  std::uint64_t bytes_per_second = 0;  // of the interface; 0: unknown
};

class Network {
 public:
  virtual ~Network() = default;
  // "host:port", "[v6]:port". Returns at once; connecting goes on, and its failure shows in send() or receive().
  virtual Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) = 0;
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) = 0;
  // True for an address that only this host can reach; an error for one that cannot be parsed or resolved.
  virtual Result<bool> is_loopback(const std::string& address) = 0;
  // This host's own addresses that others may dial, without a port.
  virtual Result<std::vector<InterfaceAddress>> addresses() { return std::vector<InterfaceAddress>(); }
};

// Borrowed by everything that is opened on it; outlives all of it.
struct Runtime {
  Clock& clock;
  Rng& rng;
  Executor& executor;
  Network& network;
};

}  // namespace fairway
