#include <algorithm>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_net/own_address.h"

// What own_address() asks of this host, from the system.
namespace fairway::nccl {
namespace {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = address->sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  ::inet_ntop(address->sa_family, bytes, text, sizeof text);
  return text;
}

bool is_usable(const ifaddrs& each) {
  if (each.ifa_addr == nullptr || (each.ifa_flags & IFF_UP) == 0) return false;
  if (each.ifa_addr->sa_family == AF_INET) return true;
  if (each.ifa_addr->sa_family != AF_INET6) return false;
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(each.ifa_addr)->sin6_addr);
}

// A datagram socket that is connected sends nothing, and the kernel tells the address that it would send from.
std::string source_towards(const addrinfo& target) {
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const bool known = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  ::close(fd);
  return known ? text_of(reinterpret_cast<const sockaddr*>(&own)) : std::string();
}

std::vector<std::string> sources(const std::string& host) {
  std::vector<std::string> all;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &wanted, &found) != 0) return all;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (std::string source = source_towards(*each); !source.empty()) all.push_back(std::move(source));
  return all;
}

}  // namespace

HostNetwork this_host() {
  HostNetwork host;
  host.sources = sources;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return host;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next)
    if (is_usable(*each))
      host.addresses.push_back({each->ifa_name, text_of(each->ifa_addr), each->ifa_addr->sa_family == AF_INET6,
                                (each->ifa_flags & IFF_LOOPBACK) != 0, (each->ifa_flags & IFF_RUNNING) != 0});
  return host;
}

}  // namespace fairway::nccl
