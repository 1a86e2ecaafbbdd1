#pragma once

#include <atomic>

#include <sys/socket.h>

// System calls of the library in this program, which a hostile process answers itself. Set in a child alone.
namespace fairway::hostile {

using SendMessage = ssize_t (*)(int, const msghdr*, int);
extern std::atomic<SendMessage> send_message;

extern std::atomic<bool> never_reads;  // of sockets: each receives nothing

ssize_t really_send(int fd, const msghdr* message, int flags);
ssize_t really_send(int fd, const void* bytes, std::size_t size, const int* fds, std::size_t count);

}  // namespace fairway::hostile
