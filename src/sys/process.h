#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include "fairway/status.h"

#include "core/time.h"
#include "sys/fd.h"

namespace fairway::sys {

// Another process of this host, held by a descriptor: once it has ended it stays ended, whoever gets its number next. A
// resource.
class Process {
 public:
  // not_found when it has ended, or when it lives where this process cannot see it (another PID namespace: pid 0).
  // `held`: a descriptor of it that is known to be of that very process; else one is made by its number.
  static Result<Process> open(pid_t pid, Fd held = {});

  Process() = default;

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }  // readable once it has ended; -1: none
  bool ended() const;

  struct Span {
    std::byte* here = nullptr;
    std::byte* there = nullptr;
    std::size_t size = 0;
  };
  static constexpr std::size_t kMaxSpans = 64;  // of one call
  // Cross-memory attach: moves all bytes of the spans, one system call for them in the usual case. Looks first that it
  // is still that process, unless it did so less than kTrusted ago. After a failure an unknown part has been moved.
  Status read(std::span<const Span> spans);
  Status write(std::span<const Span> spans);
  std::uint64_t system_calls() const { return calls_; }  // of these two so far

 private:
  enum class Direction : std::uint8_t { read, write };
  Status move(Direction direction, std::span<const Span> spans);
  // The kernel gives numbers out in turn: one that has become free is not given again before it has come round, which
  // takes thousands of forks.
  static constexpr Time kTrusted = 100 * kMicrosecond;

  Fd fd_;
  pid_t pid_ = 0;
  Time lived_at_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace fairway::sys
