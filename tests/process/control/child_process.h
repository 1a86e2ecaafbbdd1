#pragma once

#include <csignal>
#include <functional>
#include <string>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/fd.h"

namespace fairway::control {

// A real process, forked from the test while the test has one thread. They talk in lines. Killed with its owner.
class ChildProcess {
 public:
  // What the child reads and writes.
  class Line {
   public:
    explicit Line(int fd) : fd_(fd) {}
    void write(const std::string& text) {
      const std::string line = text + "\n";
      [[maybe_unused]] const ssize_t sent = ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL);
    }
    // Empty when the other side is gone.
    std::string read() {
      std::string line;
      for (char letter; ::read(fd_, &letter, 1) == 1 && letter != '\n';) line += letter;
      return line;
    }

   private:
    int fd_;
  };

  explicit ChildProcess(const std::function<void(Line&)>& body) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return;
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(pair[0]);
      if (::getppid() != parent) ::_exit(1);
      Line line(pair[1]);
      body(line);
      ::_exit(0);
    }
    ::close(pair[1]);
    socket_ = sys::Fd(pair[0]);
  }
  ~ChildProcess() { kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void write(const std::string& text) { Line(socket_.get()).write(text); }
  std::string read() { return Line(socket_.get()).read(); }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  sys::Fd socket_;
};

}  // namespace fairway::control
