#include "sys/process.h"

#include <array>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sys/error.h"
#include "sys/system_runtime.h"

namespace fairway::sys {
namespace {

Status gone() {
  return {ErrorCode::link_failed, "the peer's process has ended"};
}

}  // namespace

Result<Process> Process::open(pid_t pid, Fd held) {
  if (pid <= 0) return Status(ErrorCode::not_found, "the peer's process is not visible here (another PID namespace)");
  Process process;
  process.fd_ = held ? std::move(held) : Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.fd_) return system_status(errno, "cannot hold on to the peer's process (pidfd_open)");
  process.pid_ = pid;
  return process;
}

bool Process::ended() const {
  pollfd wanted{fd_.get(), POLLIN, 0};
  return ::poll(&wanted, 1, 0) > 0;
}

Status Process::read(std::span<const Span> spans) {
  return move(Direction::read, spans);
}
Status Process::write(std::span<const Span> spans) {
  return move(Direction::write, spans);
}

Status Process::move(Direction direction, std::span<const Span> spans) {
  if (!fd_) return {ErrorCode::unsupported, "the peer's process is not visible here (another PID namespace)"};
  if (const Time now = SystemClock().now(); now - lived_at_ >= kTrusted) {
    ++calls_;
    if (ended()) return gone();
    lived_at_ = now;
  }
  std::array<iovec, kMaxSpans> here, there;
  while (!spans.empty()) {
    const std::size_t count = std::min(spans.size(), kMaxSpans);
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < count; ++i) {
      here[i] = {spans[i].here, spans[i].size};
      there[i] = {spans[i].there, spans[i].size};
      wanted += spans[i].size;
    }
    std::size_t from = 0;  // the first span not fully moved
    while (wanted > 0) {
      ++calls_;
      const ssize_t moved = direction == Direction::read
                                ? ::process_vm_readv(pid_, &here[from], count - from, &there[from], count - from, 0)
                                : ::process_vm_writev(pid_, &here[from], count - from, &there[from], count - from, 0);
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0 && errno == ESRCH) return gone();
      if (moved <= 0)
        return system_status(moved == 0 ? EFAULT : errno, direction == Direction::read
                                                              ? "process_vm_readv is refused"
                                                              : "process_vm_writev is refused");
      auto left = static_cast<std::size_t>(moved);
      wanted -= left;
      for (; from < count && left >= here[from].iov_len; ++from) left -= here[from].iov_len;
      if (left == 0) continue;
      here[from] = {static_cast<std::byte*>(here[from].iov_base) + left, here[from].iov_len - left};
      there[from] = {static_cast<std::byte*>(there[from].iov_base) + left, there[from].iov_len - left};
    }
    spans = spans.subspan(count);
  }
  return {};
}

}  // namespace fairway::sys
