#include "net/host.h"

#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fairway::net {
namespace {

bool is_installed(const char* program) {
  for (const char* folder : {"/sbin/", "/usr/sbin/", "/bin/", "/usr/bin/"})
    if (::access((folder + std::string(program)).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

std::string Host::why_not() {
  if (::geteuid() != 0) return "network namespaces need root";
  if (!is_installed("ip")) return "the program ip is missing (package iproute2)";
  if (const auto tried = sys::NetworkNamespace::make(); !tried) return tried.status().message();
  const Host one;
  const Outcome made = one.run({"ip", "link", "add", "one", "type", "veth", "peer", "name", "two"});
  return made.status == 0 ? "" : "no veth pair can be made here: " + made.output;
}

Host::Host() {
  auto made = sys::NetworkNamespace::make();
  if (!made) {
    ADD_FAILURE() << made.status().message();
    return;
  }
  namespace_ = std::move(*made);
  must("ip link set dev lo up");
}

void Host::enter() const {
  if (const Status status = namespace_.enter(); !status) ADD_FAILURE() << status.message();
}

// Spawned and not forked: other threads of the test may hold locks.
Outcome Host::run(const std::vector<std::string>& command) const {
  int pipe[2];
  Outcome outcome;
  if (::pipe2(pipe, O_CLOEXEC) != 0) return outcome;
  sys::Fd out(pipe[0]), in(pipe[1]);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, in.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, in.get(), STDERR_FILENO);
  pid_t pid = -1;
  {
    const Inside inside(*this);
    if (::posix_spawnp(&pid, words[0], &files, nullptr, words.data(), environ) != 0) pid = -1;
  }
  ::posix_spawn_file_actions_destroy(&files);
  in.reset();
  if (pid < 0) {
    outcome.output = "cannot start " + command[0];
    return outcome;
  }
  char buffer[4096];
  for (ssize_t size; (size = ::read(out.get(), buffer, sizeof(buffer))) > 0;)
    outcome.output.append(buffer, static_cast<std::size_t>(size));
  int status = 0;
  ::waitpid(pid, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string Host::must(const std::string& command) const {
  std::istringstream text(command);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, 0) << command << ": " << outcome.output;
  return outcome.output;
}

// The kernel shows each thread the settings of the namespace that it is in.
void Host::set_sysctl(const std::string& path, const std::string& value) const {
  const Inside inside(*this);
  std::ofstream file("/proc/sys/net/" + path);
  file << value << std::flush;
  EXPECT_TRUE(file.good()) << path;
}

Inside::Inside(const Host& host) : inside_(host.namespace_) {
  if (!inside_.status()) ADD_FAILURE() << inside_.status().message();
}

bool has_ipv6() {
  return ::access("/proc/sys/net/ipv6", F_OK) == 0;
}

void cable(const Host& first, const Host& second, const std::string& name, int number) {
  // ip takes a file for a namespace; the second host's is open in this process.
  first.must(
      fmt::format("ip link add {0} type veth peer name {0} netns /proc/{1}/fd/{2}", name, ::getpid(), second.fd()));
  int end = 0;
  for (const Host* host : {&first, &second}) {
    ++end;
    host->must(fmt::format("ip address add 10.77.{}.{}/24 dev {}", number, end, name));
    // Without duplicate detection an address is usable at once.
    if (has_ipv6()) host->must(fmt::format("ip -6 address add fd77:{}::{}/64 dev {} nodad", number, end, name));
    host->must(fmt::format("ip link set dev {} up", name));
  }
}

void set_link(const Host& host, const std::string& name, bool up) {
  host.must(fmt::format("ip link set dev {} {}", name, up ? "up" : "down"));
}

// Tried on a connection of lo.
std::string why_not_destroy() {
  const Host host;
  const Inside inside(host);
  const sys::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sys::Fd dialer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(5000);
  const auto* where = reinterpret_cast<const sockaddr*>(&at);
  if (::bind(listener.get(), where, sizeof(at)) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::connect(dialer.get(), where, sizeof(at)) != 0)
    return "no connection can be made here";
  const Outcome killed = host.run({"ss", "-HKtn", "dport", "=", ":5000"});
  return killed.status == 0 && !killed.output.empty()
             ? ""
             : "this kernel destroys no connection for ss -K (CONFIG_INET_DIAG_DESTROY) " + killed.output;
}

void destroy(const Host& host, const std::string& filter) {
  EXPECT_NE(host.must("ss -HKtn state established " + filter), "") << filter;
}

}  // namespace fairway::net
