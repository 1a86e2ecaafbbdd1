#include "other_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace fairway::tool {
namespace {

Status system_error(const std::string& what) {
  return {ErrorCode::system_error, what + ": " + std::strerror(errno)};
}

}  // namespace

Result<std::string> OtherProcess::start(const std::vector<std::string>& arguments) {
  end();
  int to_child[2];
  int from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  if (::pipe2(from_child, O_CLOEXEC) != 0) {
    ::close(to_child[0]);
    ::close(to_child[1]);
    return system_error("cannot make a pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  std::vector<std::string> words{"fairway"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  // Ctrl-C reaches all processes of a terminal; this one ends with its starter, which prints first.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  ::sigset_t deaf;
  ::sigemptyset(&deaf);
  ::sigaddset(&deaf, SIGINT);
  posix_spawnattr_setsigmask(&attributes, &deaf);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int failed = ::posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to_child[0]);
  ::close(from_child[1]);
  stdin_ = to_child[1];
  stdout_ = from_child[0];
  if (failed != 0) {
    pid_ = -1;
    errno = failed;
    return system_error("cannot start a second process");
  }
  auto line = hear(std::chrono::milliseconds(-1));
  if (!line || line->empty()) return Status(ErrorCode::system_error, "the second process ended at once");
  if (line->starts_with(kCannot)) return Status(ErrorCode::unsupported, line->substr(kCannot.size()));
  return line;
}

Status OtherProcess::say(std::string_view words) const {
  while (!words.empty()) {
    const ssize_t written = ::write(stdin_, words.data(), words.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write to another process");
    words.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<std::string> OtherProcess::hear(std::chrono::milliseconds timeout) {
  for (;;) {
    if (const std::size_t end = heard_.find('\n'); end != std::string::npos) {
      std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    pollfd wait{stdout_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(timeout.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return Status(ErrorCode::timed_out, "it does not answer");
    char bytes[4096];
    const ssize_t got = ready < 0 ? -1 : ::read(stdout_, bytes, sizeof bytes);
    if (got > 0) {
      heard_.append(bytes, static_cast<std::size_t>(got));
      continue;
    }
    int how = 0;
    const bool known = ::waitpid(pid_, &how, 0) == pid_;
    pid_ = -1;
    return Status(ErrorCode::peer_dead, !known             ? "it ended"
                                        : WIFSIGNALED(how) ? std::string("it ended by ") + ::strsignal(WTERMSIG(how))
                                                           : "it exited with " + std::to_string(WEXITSTATUS(how)));
  }
}

void OtherProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void OtherProcess::kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  end();
}

void OtherProcess::close_input() {
  if (stdin_ >= 0) ::close(stdin_);
  stdin_ = -1;
}

void OtherProcess::end() {
  close_input();
  if (stdout_ >= 0) ::close(stdout_);
  stdout_ = -1;
  heard_.clear();
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void OtherProcess::end_by(std::chrono::milliseconds patience) {
  close_input();
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= deadline) return kill();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  end();
}

void wait_for_end_of_input() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

}  // namespace fairway::tool
