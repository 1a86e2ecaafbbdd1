#include "bench_verbs_wire.h"

#include <cerrno>
#include <ctime>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fairway::tool::bench::raw {

Answer answer_of(const Status& status) {
  Answer answer;
  answer.code = status.code();
  put(answer.text, status.message());
  return answer;
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

Wire::~Wire() {
  ::close(socket_);
}

bool Wire::send(const void* bytes, std::size_t size) const {
  return ::send(socket_, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool Wire::receive(void* bytes, std::size_t size) const {
  ssize_t got = 0;
  while ((got = ::recv(socket_, bytes, size, 0)) < 0 && errno == EINTR) {
  }
  return got == static_cast<ssize_t>(size);
}

bool Wire::has_something() const {
  pollfd one{socket_, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

}  // namespace fairway::tool::bench::raw
