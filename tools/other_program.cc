#include "other_program.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace fairway::tool {
namespace {

using Clock = std::chrono::steady_clock;

// In its own process group: it is ended with its children, and Ctrl-C reaches only its starter.
Result<pid_t> start(const std::vector<std::string>& words, const Kept& out, const Kept& err) {
  if (out.number() < 0 || err.number() < 0)
    return Status(ErrorCode::system_error, fmt::format("cannot keep what {} prints", words.front()));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.number(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> copies = words;
  std::vector<char*> pointers;
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, pointers.front(), &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    return Status(ErrorCode::system_error, fmt::format("cannot start {}: {}", words.front(), std::strerror(failed)));
  return pid;
}

void end(pid_t pid) {
  ::kill(-pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// As the kernel's tables have it: "0100007F:1F90 00000000:0000 0A", the port in hexadecimal, 0A for listening.
bool listens(int port) {
  const std::string wanted = fmt::format(":{:04X}", port);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      if (words >> number >> local >> remote >> state && state == "0A" && local.ends_with(wanted)) return true;
    }
  }
  return false;
}

}  // namespace

Kept::Kept() : number_(::memfd_create("kept", MFD_CLOEXEC)) {}

Kept::~Kept() {
  if (number_ >= 0) ::close(number_);
}

std::string Kept::text() const {
  std::string out;
  char buffer[65536];
  for (off_t at = 0;;) {
    const ssize_t got = ::pread(number_, buffer, sizeof buffer, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return out;
    out.append(buffer, static_cast<std::size_t>(got));
    at += got;
  }
}

Result<Ran> run_program(const std::vector<std::string>& words, int seconds) {
  const Kept out;
  const Kept err;
  const auto pid = start(words, out, err);
  if (!pid) return pid.status();
  const auto deadline = Clock::now() + std::chrono::seconds(seconds);
  int state = 0;
  for (pid_t ended = 0; (ended = ::waitpid(*pid, &state, WNOHANG)) != *pid;) {
    if (ended < 0 && errno != EINTR)
      return Status(ErrorCode::system_error,
                    fmt::format("cannot wait for {}: {}", words.front(), std::strerror(errno)));
    if (Clock::now() > deadline) {
      end(*pid);
      return Status(ErrorCode::timed_out, fmt::format("took longer than {} s", seconds));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Ran{WIFEXITED(state) && WEXITSTATUS(state) == 0, out.text(), err.text()};
}

ServerProgram::ServerProgram(std::vector<std::string> words) {
  // If this process is killed, the server still ends after a minute.
  words.insert(words.begin(), {"timeout", "--signal=KILL", "60"});
  if (const auto pid = start(words, kept_, kept_)) pid_ = *pid;
}

ServerProgram::~ServerProgram() {
  if (pid_ > 0) end(pid_);
}

Status ServerProgram::await(int port) {
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (pid_ > 0 && !listens(port)) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    if (Clock::now() > until)
      return {ErrorCode::timed_out, fmt::format("it does not listen at TCP port {} after 10 s", port)};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return pid_ > 0 ? Status() : Status(ErrorCode::system_error, "it ended before a client could come");
}

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), length);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(socket);
  return ntohs(address.sin_port);
}

}  // namespace fairway::tool
