#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include "fairway/status.h"

#include "core/time.h"
#include "sys/fd.h"

namespace fairway::sys {

// Another process of this host, held by a pidfd: after it ends, a new process with the same number is not mistaken for
// it.
class Process {
 public:
  // Error: not_found when the process has ended or is not visible (another PID namespace: pid 0). `held` is a pidfd
  // known to belong to that process; if empty, one is opened by number.
  static Result<Process> open(pid_t pid, Fd held = {});

  Process() = default;

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }  // becomes readable when the process ends; -1: none
  bool ended() const;

  struct Span {
    std::byte* here = nullptr;
    std::byte* there = nullptr;
    std::size_t size = 0;
  };
  static constexpr std::size_t kMaxSpans = 64;  // per call
  // Cross-memory attach: moves all bytes of the spans, usually in one system call. First checks that the process is
  // still alive, unless it did so less than kTrusted ago. After an error an unknown part has been moved.
  Status read(std::span<const Span> spans);
  Status write(std::span<const Span> spans);
  std::uint64_t system_calls() const { return calls_; }  // made by read() and write() so far

 private:
  enum class Direction : std::uint8_t { read, write };
  Status move(Direction direction, std::span<const Span> spans);
  // The kernel assigns process ids in turn: a freed id is reused only after the counter wraps, thousands of forks
  // later.
  static constexpr Time kTrusted = 100 * kMicrosecond;

  Fd fd_;
  pid_t pid_ = 0;
  Time lived_at_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace fairway::sys
