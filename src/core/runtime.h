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

// The interface of engine, control and transports to time, randomness, threads and sockets. sys implements it on the
// operating system, sim on virtual time driven by one seed. Nothing else in those layers may read a clock, sleep, start
// a thread or open a socket.
namespace fairway {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() = 0;  // any thread
  // For one that asks every microsecond or so: now(), or what that was kLate ago at most. `last` is the asker's own and
  // has its last answer; empty: it has none.
  static constexpr Time kLate = 4 * kMicrosecond;
  struct Reading {
    Time time = 0;
    std::uint64_t ticks = 0;  // of the processor, when the clock was read
  };
  virtual Time about(Reading& last) { return last.time = now(); }
  virtual std::uint64_t unix_ns() = 0;  // wall clock, only for directory records and incarnations; any thread
};

class Rng {
 public:
  virtual ~Rng() = default;
  virtual void fill(std::span<std::byte> out) = 0;  // any thread; unpredictable on sys, seeded on sim
};

// A state machine with one owner. step() does a bounded amount of work and returns when it must run again.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Returns a time <= now to run again at once, a later time as a timer, or kNever to run only when woken.
  virtual Time step(Time now) = 0;
  // Called just before the thread sleeps: arm every wake-up source. False: work arrived meanwhile, do not sleep.
  virtual bool prepare_sleep() { return true; }
};

// A Stepper that an executor runs.
class Task {
 public:
  virtual ~Task() = default;  // end()
  virtual void wake() = 0;    // any thread; several wakes may cause one step
  // Returns only once step() is not running and never will again. wake() may still be called, and does nothing. Not
  // from step().
  virtual void end() = 0;
  // Also wake when fd is readable (level-triggered); on the owner thread, or before the first step.
  virtual Status watch(int fd) = 0;
  virtual void unwatch(int fd) = 0;
};

// A file descriptor that becomes readable once set, for the user's event loop. The simulator has no descriptor.
class Signal {
 public:
  virtual ~Signal() = default;
  virtual void set() = 0;    // any thread; makes a system call only when someone may be sleeping on it
  virtual void clear() = 0;  // any thread
  virtual void clear_at(Time /*now*/) { clear(); }  // by a caller that knows the time; it may be some microseconds old
  // Blocks until the signal is set, a descriptor watched by its caller-stepped task is ready, or `deadline`. Any
  // thread.
  virtual void wait(Time deadline) = 0;
  virtual int fd() = 0;  // readable while set, starting with the first call of fd(); -1 in the simulator
  // Also makes fd() readable at `when` (kNever: not), until the next clear() after that. Any thread.
  virtual void set_at(Time when) = 0;
};

struct TaskOptions {
  std::string name;                  // of the thread, at most 15 characters
  Time spin_ns = 20 * kMicrosecond;  // how long to spin before sleeping; no spin while runnable threads outnumber cores
  bool caller_steps = false;         // no thread: the owner calls step() itself, and wake() sets `signal`
  Signal* signal = nullptr;          // required with caller_steps
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) = 0;
  virtual Result<std::unique_ptr<Signal>> make_signal() = 0;
  // Blocks while `word` holds `seen`, until wake_all(word) or `deadline`. May return spuriously. In the simulator other
  // steppers run meanwhile.
  virtual void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) = 0;
  virtual void wake_all(std::atomic<std::uint32_t>& word) = 0;
  // That this process may use; 0: nobody counts them, as in the simulator.
  [[nodiscard]] virtual unsigned cores() const { return 0; }
  // A caller has polled and found nothing. In the simulator, where only such calls tell of a program that polls, time
  // goes on by them.
  virtual void polled_in_vain() {}
  // Runs job(0) to job(count - 1), in parallel where threads are available, and returns when all have run. Any thread.
  // Use it for work that takes much longer than starting a thread.
  virtual void run_all(std::size_t count, const std::function<void(std::size_t)>& job) {
    for (std::size_t i = 0; i < count; ++i) job(i);
  }
};

// A non-blocking ordered byte stream. Owned by the stepper whose task it wakes.
class Channel {
 public:
  virtual ~Channel() = default;  // closes the connection
  // Returns the bytes accepted; 0: would block, and the task is woken when there is room. An error is final.
  virtual Result<std::size_t> send(std::span<const std::byte> bytes) = 0;
  // Returns the bytes stored; 0: none yet, and the task is woken when there are. ErrorCode::closed: the peer closed in
  // order. Any other error: the connection broke (refused, reset, unreachable), with the system's text.
  virtual Result<std::size_t> receive(std::span<std::byte> into) = 0;
  // Like send and receive, with several buffers in order: one system call where there are system calls.
  virtual Result<std::size_t> send_pieces(std::span<const std::span<const std::byte>> pieces);
  virtual Result<std::size_t> receive_pieces(std::span<const std::span<std::byte>> pieces);
  virtual std::string peer_address() const = 0;  // "host:port" for messages
  // False: no readiness was reported since the last receive. Input that was not reported yet still wakes the task.
  virtual bool announced() const { return true; }
  // From now on `list` gets `number` whenever announced() becomes true, on the thread of the task: an owner of many
  // channels visits those alone. Null: no longer; a list that is not null outlives that. False: this channel tells
  // nobody, so its owner must ask it.
  virtual bool announce_in(std::vector<std::uint32_t>* /*list*/, std::uint32_t /*number*/) { return false; }
  // False: the owner receives in each of its steps, so that input need not wake its task. True, as at first: it does
  // again, also what came meanwhile. Returns what holds from now on.
  virtual bool wake_for_input(bool /*wanted*/) { return true; }
  virtual std::string local_address() const { return {}; }  // empty: unknown
  virtual std::uint64_t system_calls() const { return 0; }  // number made so far
  // Bytes that send() took and the peer's system has not acknowledged yet; 0 also where nobody knows.
  virtual std::uint64_t unacknowledged() const { return 0; }
  // The size of segments that get no answer although shorter ones did, as where a way's MTU is smaller than the
  // interface's and nobody says so. 0: nothing points to that.
  virtual std::uint32_t swallowed_segment() const { return 0; }
  // Whether announced() knows, in the first step after a sleep of the task, of all that came before. Not where somebody
  // else sleeps for it.
  virtual bool announces_first() const { return false; }
};

class Listener {
 public:
  virtual ~Listener() = default;                                     // stops listening
  virtual Result<std::unique_ptr<Channel>> accept(Task& wakes) = 0;  // null when no connection waits
  virtual std::string address() const = 0;                           // the bound "host:port"
  virtual bool announced() const { return true; }                    // as Channel::announced
};

// Implemented by a Listener that can send a message to a peer before it rejects the connection because this process is
// out of file descriptors.
class RejectionSender {
 public:
  virtual ~RejectionSender() = default;
  virtual void set_rejection(std::vector<std::byte> message) = 0;
};

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string host;       // "10.0.0.7", "fd00::7"
  bool loopback = false;
  std::uint64_t bytes_per_second = 0;  // speed of the interface; 0: unknown
};

class Network {
 public:
  virtual ~Network() = default;
  // `address`: "host:port" or "[v6]:port". Returns at once; the connection is made in the background, and send() or
  // receive() return its error.
  virtual Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) = 0;
  // The same in segments of at most so many bytes, in both directions: for a way that swallows longer ones.
  virtual Result<std::unique_ptr<Channel>> dial_in_segments(const std::string& address, std::uint32_t /*most_bytes*/,
                                                            Task& wakes) {
    return dial(address, wakes);
  }
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) = 0;
  // True for an address that only this host can reach. Error when the address cannot be parsed or resolved.
  virtual Result<bool> is_loopback(const std::string& address) = 0;
  // This host's own addresses that other hosts may dial, without a port.
  virtual Result<std::vector<InterfaceAddress>> addresses() { return std::vector<InterfaceAddress>(); }
};

// Everything opened on a Runtime borrows it; the Runtime must outlive all of it.
struct Runtime {
  Clock& clock;
  Rng& rng;
  Executor& executor;
  Network& network;
};

}  // namespace fairway
