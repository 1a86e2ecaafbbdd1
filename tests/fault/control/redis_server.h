#pragma once

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/control/plain_socket.h"

namespace fairway::control {

// A process of the system's redis-server, on its own port, without persistence.
class RedisServer {
 public:
  static bool available() {
    return std::system("command -v redis-server > /dev/null 2>&1") == 0;
  }  // NOLINT(cert-env33-c)
  RedisServer() {
    plain_listen(port_).reset();
    start();
  }
  ~RedisServer() { kill(); }
  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1);
      ::dup2(null, 2);
      const std::string port = std::to_string(port_);
      ::execlp("redis-server", "redis-server", "--port", port.c_str(), "--bind", "127.0.0.1", "--save", "",
               "--appendonly", "no", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    for (int i = 0; i < 500 && !plain_connect(port_); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string command(const std::string& text) const {
    auto socket = plain_connect(port_);
    ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    char answer[4096];
    const ssize_t got = ::recv(socket.get(), answer, sizeof(answer), 0);
    return got > 0 ? std::string(answer, static_cast<std::size_t>(got)) : std::string();
  }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_) + "/job7:"; }

 private:
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace fairway::control
