#include "bench_peers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace fairway::tool::bench {
namespace {

// A shell command in a process group of its own, ended with this object.
class Server {
 public:
  explicit Server(const std::string& command) {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const std::string quiet = "exec " + command + " >/dev/null 2>&1 </dev/null";
    const char* words[] = {"sh", "-c", quiet.c_str(), nullptr};
    if (::posix_spawn(&pid_, "/bin/sh", nullptr, &attributes, const_cast<char**>(words), environ) != 0) pid_ = -1;
    posix_spawnattr_destroy(&attributes);
  }
  ~Server() {
    if (pid_ <= 0) return;
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  pid_t pid_ = -1;
};

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(("timeout 30 " + command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 4096> part{};
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) out.append(part.data(), got);
  ::pclose(pipe);
  return out;
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

// The numbers of the last line that begins with one.
std::vector<double> last_numbers(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<double> found;
    for (std::string word; words >> word;) {
      char* end = nullptr;
      const double value = std::strtod(word.c_str(), &end);
      if (end == word.c_str()) break;
      found.push_back(value);
    }
    if (found.size() >= 4) numbers = std::move(found);
  }
  return numbers;
}

Status unread(const Rival& rival, const std::string& text) {
  const std::size_t from = text.size() > 200 ? text.size() - 200 : 0;
  return {ErrorCode::unsupported, fmt::format("{} told no figure: {}", rival.tool, text.substr(from))};
}

constexpr auto kServerComesUp = std::chrono::milliseconds(400);

Result<double> run_ucx(const Rival& rival, std::uint64_t size, int port) {
  const char* transports = rival.path == "tcp" ? "tcp" : "posix,sysv,self,cma";
  const int rounds = size >= 1 << 20 ? 200 : 5000;
  const std::string tool = fmt::format("env UCX_TLS={} ucx_perftest -p {}", transports, port);
  const Server server(tool);
  std::this_thread::sleep_for(kServerComesUp);
  const std::string text = output_of(
      fmt::format("{} 127.0.0.1 -t {} -s {} -n {} -w {} -O 1 -f", tool, rival.what, size, rounds, rounds / 10));
  const auto numbers = last_numbers(text);
  if (numbers.size() < 4) return unread(rival, text);
  return numbers[1];  // iterations, then the median
}

Result<double> run_fabric(const Rival& rival, std::uint64_t size, int port) {
  const std::string tool = fmt::format("fi_pingpong -p {} -e {} -I {} -S {}", rival.path,
                                       rival.path == "tcp" ? "msg" : "rdm", size >= 1 << 20 ? 100 : 3000, size);
  const Server server(fmt::format("{} -B {}", tool, port));
  std::this_thread::sleep_for(kServerComesUp);
  const std::string text = output_of(fmt::format("{} -P {} 127.0.0.1", tool, port));
  std::istringstream lines(text);  // bytes, #sent, #ack, total, time, MB/sec, usec/xfer, Mxfers/sec
  std::string line, last;
  while (std::getline(lines, line))
    if (!line.empty()) last = line;
  std::istringstream words(last);
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  const double us = found.size() >= 8 ? std::strtod(found[6].c_str(), nullptr) : 0;
  return us > 0 ? Result<double>(us) : Result<double>(unread(rival, text));
}

Result<double> run_iperf(const Rival& rival, std::uint64_t size, int port) {
  const Server server(fmt::format("iperf3 -s -1 -p {}", port));
  std::this_thread::sleep_for(kServerComesUp);
  const std::string text = output_of(fmt::format("iperf3 -c 127.0.0.1 -p {} -t 1 {} -J", port, rival.what));
  const std::size_t sum = text.find("\"sum_received\"");
  const std::size_t at = sum == std::string::npos ? sum : text.find("\"bits_per_second\":", sum);
  const double rate = at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 18, nullptr);
  return rate > 0 ? Result<double>(static_cast<double>(size) * 8 / rate * 1e6) : Result<double>(unread(rival, text));
}

}  // namespace

std::vector<Rival> rivals() {
  std::vector<Rival> all;
  for (const char* path : {"shm", "tcp"}) {
    all.push_back({"ucx_perftest", "ucx-utils", path, "ucp_put_lat", Operation::count});
    all.push_back({"ucx_perftest", "ucx-utils", path, "ucp_get", Operation::read});
    all.push_back({"ucx_perftest", "ucx-utils", path, "tag_lat", Operation::send});
    all.push_back({"fi_pingpong", "libfabric-bin", path, "pingpong", Operation::send});
  }
  all.push_back({"iperf3", "iperf3", "tcp", "-P 1", Operation::write, true});
  all.push_back({"iperf3", "iperf3", "tcp", "-P 2", Operation::write, true});
  return all;
}

bool installed(const Rival& rival) {
  return std::system(("command -v " + rival.tool + " >/dev/null 2>&1").c_str()) == 0;
}

Result<double> run_rival(const Rival& rival, std::uint64_t size) {
  const int port = free_port();
  if (rival.tool == "ucx_perftest") return run_ucx(rival, size, port);
  if (rival.tool == "fi_pingpong") return run_fabric(rival, size, port);
  return run_iperf(rival, size, port);
}

}  // namespace fairway::tool::bench
