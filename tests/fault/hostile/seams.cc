#include "seams.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/syscall.h>
#include <unistd.h>

namespace fairway::hostile {

std::atomic<SendMessage> send_message{nullptr};
std::atomic<bool> never_reads{false};

ssize_t really_send(int fd, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t really_send(int fd, const void* bytes, std::size_t size, const int* fds, std::size_t count) {
  iovec piece{const_cast<void*>(bytes), size};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (count != 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  }
  return really_send(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace fairway::hostile

using namespace fairway::hostile;

extern "C" {

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const SendMessage instead = send_message.load();
  return instead != nullptr ? instead(fd, message, flags) : really_send(fd, message, flags);
}

ssize_t recv(int fd, void* into, size_t size, int flags) {
  if (!never_reads.load()) return ::syscall(SYS_recvfrom, fd, into, size, flags, nullptr, nullptr);
  errno = EAGAIN;
  return -1;
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (!never_reads.load()) return ::syscall(SYS_recvmsg, fd, message, flags);
  errno = EAGAIN;
  return -1;
}
}
