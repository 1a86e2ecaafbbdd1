#include "other_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
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
  const int failed = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to_child[0]);
  ::close(from_child[1]);
  stdin_ = to_child[1];
  std::string line;
  if (failed == 0)
    for (char c = 0; ::read(from_child[0], &c, 1) == 1 && c != '\n';) line += c;
  ::close(from_child[0]);
  if (failed != 0) {
    pid_ = -1;
    errno = failed;
    return system_error("cannot start a second process");
  }
  if (line.empty()) return Status(ErrorCode::system_error, "the second process ended at once");
  if (line.starts_with(kCannot)) return Status(ErrorCode::unsupported, line.substr(kCannot.size()));
  return line;
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

void OtherProcess::end() {
  if (stdin_ >= 0) ::close(stdin_);
  stdin_ = -1;
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void wait_for_end_of_input() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

}  // namespace fairway::tool
