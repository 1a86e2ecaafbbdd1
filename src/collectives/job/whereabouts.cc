// What a process is beside its environment: its host, its session, the processes above it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/job/launcher.h"
#include "sys/address.h"

namespace fairway::collectives {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// "192.0.2.1", "[fd00::1]".
std::string host_of(const sys::SocketAddress& address) {
  const std::string text = address.text();
  return text.substr(0, text.rfind(':'));
}

// This host's address on the way there; empty: there is none.
std::string way_to(const sys::SocketAddress& there) {
  const int way = ::socket(there.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (way < 0) return "";
  sys::SocketAddress own;
  own.size = sizeof own.storage;
  // Connecting sends nothing.
  const bool known = ::connect(way, there.data(), there.size) == 0 &&
                     ::getsockname(way, reinterpret_cast<sockaddr*>(&own.storage), &own.size) == 0;
  ::close(way);
  return known ? host_of(own) : "";
}

// Where others may reach this host: the address of its default route, else that of the first interface.
std::string own_address_beyond() {
  for (const char* far : {"192.0.2.1", "2001:db8::1"})  // of documentation: nobody has them
    if (const auto there = sys::numeric_address({far, 9}))
      if (std::string own = way_to(*there); !own.empty() && !own.starts_with("127.") && own != "[::1]") return own;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> held(all, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || (one->ifa_flags & IFF_UP) == 0) continue;
      sys::SocketAddress address;
      address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.storage, one->ifa_addr, address.size);
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
      if (!address.is_loopback() && (family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)))
        return host_of(address);
    }
  return "";
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
  if (process <= 1) {
    constexpr std::uint64_t kFirst = 0xEFFFFFFC;  // the kernel's PROC_PID_INIT_INO: of the namespace that sees all
    if (process_namespace() != kFirst) return "";
    process = ::getppid();
  }
  return fmt::format("{}-{}", process, facts_of(process).started);
}

std::optional<std::string> line_of_file(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos && line[begin] != '#') return line.substr(begin);
  }
  return std::nullopt;
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

std::uint64_t process_namespace() {
  struct stat found {};
  return ::stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

Result<std::string> address_of(const std::string& host, bool beyond, Timeout most) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const sys::HostPort where{bracketed ? host.substr(1, host.size() - 2) : host, 9};
  auto found = sys::resolve_address_within(where, most);
  if (!found)
    return Status(found.status().code() == ErrorCode::timed_out ? ErrorCode::timed_out : ErrorCode::unreachable,
                  fmt::format("{} has no address: {}", host, found.status().message()));
  const bool is_name = !sys::numeric_address(where) && where.host != "localhost";
  std::stable_sort(found->begin(), found->end(), [](const sys::SocketAddress& a, const sys::SocketAddress& b) {
    return std::pair(a.is_loopback(), a.family() != AF_INET) < std::pair(b.is_loopback(), b.family() != AF_INET);
  });
  const auto reached = std::find_if(found->begin(), found->end(), [](const auto& one) { return !way_to(one).empty(); });
  const sys::SocketAddress& best = reached != found->end() ? *reached : found->front();
  if (is_name && beyond && best.is_loopback())
    if (std::string own = own_address_beyond(); !own.empty()) return own;
  return host_of(best);
}

std::string own_address(const std::string& towards, Timeout most) {
  const auto there = address_of(towards, true, most);
  if (!there) return "";
  const bool v6 = there->starts_with('[');
  const auto numeric = sys::numeric_address({v6 ? there->substr(1, there->size() - 2) : *there, 9});
  return numeric ? way_to(*numeric) : "";
}

Whereabouts of_this_process() {
  return {host_name, full_host_name, session, ancestor, line_of_file};
}

}  // namespace fairway::collectives
