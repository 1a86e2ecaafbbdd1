// What a process is beside its environment: its host, its session, the processes above it.
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/launcher.h"

namespace fairway::collectives {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

std::string text_of(const sockaddr* address) {
  char text[INET_ADDRSTRLEN] = {};
  return ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text) == nullptr
             ? ""
             : text;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string full_host_name() {
  const std::string own = host_name();
  addrinfo wanted = {};
  wanted.ai_flags = AI_CANONNAME;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(own.c_str(), nullptr, &wanted, &found) != 0 || found == nullptr) return own;
  const Addresses held(found, ::freeaddrinfo);
  return found->ai_canonname != nullptr ? found->ai_canonname : own;
}

std::string session() {
  const int leader = ::getsid(0);
  return fmt::format("session-{}-{}", leader, facts_of(leader).started);
}

std::string ancestor(std::string_view name) {
  int process = ::getppid();
  for (ProcessFacts facts = facts_of(process); process > 1; facts = facts_of(process)) {
    if (facts.state == 'X' || facts.name.starts_with(name)) break;
    process = facts.parent;
  }
  if (process <= 1) process = ::getppid();
  return fmt::format("{}-{}", process, facts_of(process).started);
}

}  // namespace

ProcessFacts facts_of(int process) {
  ProcessFacts facts;
  // Its first thread, which started with it: of the process's own file QEMU tells each thread another start.
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return facts;
  std::istringstream fields(text.substr(close + 1));
  char state = 'X';
  if (!(fields >> state >> facts.parent)) return facts;
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  if (!(fields >> facts.started)) return facts;
  facts.name = text.substr(open + 1, close - open - 1);
  facts.state = state == 'Z' ? 'X' : state;
  return facts;
}

Result<std::string> address_of(const std::string& host) {
  addrinfo wanted = {};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found); error != 0)
    return Status(ErrorCode::unreachable, fmt::format("{} has no address: {}", host, ::gai_strerror(error)));
  const Addresses held(found, ::freeaddrinfo);
  return text_of(found->ai_addr);
}

std::string own_address(const std::string& towards) {
  const auto there = address_of(towards);
  const int way = there ? ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
  if (way < 0) return "";
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  (void)::inet_pton(AF_INET, there->c_str(), &address.sin_addr);
  socklen_t length = sizeof address;
  // Connecting sends nothing.
  const bool known = ::connect(way, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     ::getsockname(way, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(way);
  return known ? text_of(reinterpret_cast<const sockaddr*>(&address)) : "";
}

Whereabouts of_this_process() {
  return {host_name, full_host_name, session, ancestor};
}

}  // namespace fairway::collectives
