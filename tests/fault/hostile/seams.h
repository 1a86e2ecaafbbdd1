#pragma once

#include <atomic>

#include <sys/socket.h>

// Interposes system calls of the library, so that a hostile process controls their results. Set only in a child
// process.
namespace fairway::hostile {

using SendMessage = ssize_t (*)(int, const msghdr*, int);
extern std::atomic<SendMessage> send_message;

extern std::atomic<bool> never_reads;  // for sockets: every receive returns nothing

ssize_t really_send(int fd, const msghdr* message, int flags);
ssize_t really_send(int fd, const void* bytes, std::size_t size, const int* fds, std::size_t count);

}  // namespace fairway::hostile
