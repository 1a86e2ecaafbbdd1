#include "sys/address.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>

#include "sys/error.h"
#include "sys/thread.h"

namespace fairway::sys {
namespace {

bool is_v4_loopback(const std::uint8_t* address) {
  return address[0] == 127;
}

}  // namespace

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    return is_v4_loopback(reinterpret_cast<const std::uint8_t*>(&v4.sin_addr));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return is_v4_loopback(v6.sin6_addr.s6_addr + 12);
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

std::string SocketAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  const auto port = ntohs(v6.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ::inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), port);
  }
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return v6.sin6_scope_id ? fmt::format("[{}%{}]:{}", text.data(), v6.sin6_scope_id, port)
                          : fmt::format("[{}]:{}", text.data(), port);
}

Result<HostPort> parse_host_port(const std::string& address) {
  const auto colon = address.rfind(':');
  const auto wrong = [&](std::string_view why) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("\"{}\" is not a valid address: {}; write host:port or [IPv6]:port", address, why));
  };
  if (colon == std::string::npos) return wrong("it has no port");
  HostPort out;
  out.host = address.substr(0, colon);
  const char* end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, out.port);
  if (error != std::errc{} || stop != end) return wrong("its port is not a number up to 65535");
  if (out.host.size() >= 2 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host.find(':') != std::string::npos) {
    return wrong("an IPv6 address needs brackets");
  }
  if (out.host.empty()) return wrong("it has no host (0.0.0.0 means every interface)");
  return out;
}

Result<SocketAddress> numeric_address(const HostPort& where) {
  SocketAddress out;
  auto& v4 = reinterpret_cast<sockaddr_in&>(out.storage);
  if (::inet_pton(AF_INET, where.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(where.port);
    out.size = sizeof(v4);
    return out;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out.storage);
  const auto percent = where.host.find('%');
  if (::inet_pton(AF_INET6, where.host.substr(0, percent).c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(where.port);
    if (percent != std::string::npos) {
      const std::string scope = where.host.substr(percent + 1);
      v6.sin6_scope_id = ::if_nametoindex(scope.c_str());
      if (v6.sin6_scope_id == 0) std::from_chars(scope.data(), scope.data() + scope.size(), v6.sin6_scope_id);
    }
    out.size = sizeof(v6);
    return out;
  }
  return Status(ErrorCode::not_found, fmt::format("\"{}\" is a host name, not a numeric address", where.host));
}

Result<std::vector<SocketAddress>> resolve_address(const HostPort& where) {
  if (auto numeric = numeric_address(where); numeric) return std::vector{numeric.value()};
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(where.host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    const std::string what = fmt::format("cannot resolve the host name \"{}\"", where.host);
    if (error == EAI_SYSTEM) return system_status(errno, what);
    return Status(ErrorCode::not_found, fmt::format("{}: {}", what, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  std::vector<SocketAddress> out;
  for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    (entry->ai_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address.storage).sin_port
                                 : reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port) = htons(where.port);
    out.push_back(address);
  }
  if (out.empty())
    return Status(ErrorCode::not_found, fmt::format("the host name \"{}\" has no IPv4 or IPv6 address", where.host));
  return out;
}

Result<std::vector<SocketAddress>> resolve_address_within(const HostPort& where, std::chrono::microseconds most) {
  if (auto numeric = numeric_address(where); numeric) return std::vector{numeric.value()};
  struct Answer {
    std::mutex mutex;  // guards found
    std::condition_variable came;
    std::optional<Result<std::vector<SocketAddress>>> found;
  };
  const auto answer = std::make_shared<Answer>();
  auto thread = Thread::start("that resolves " + where.host, [answer, where] {
    auto found = resolve_address(where);
    const std::lock_guard lock(answer->mutex);
    answer->found = std::move(found);
    answer->came.notify_all();
  });
  if (!thread) return thread.status();
  thread->detach();
  std::unique_lock lock(answer->mutex);
  const auto longest = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::hours(24));
  if (!answer->came.wait_for(lock, std::min(most, longest), [&] { return answer->found.has_value(); }))
    return Status(
        ErrorCode::timed_out,
        fmt::format("cannot resolve the host name \"{}\": the resolver has not answered in time", where.host));
  return std::move(*answer->found);
}

}  // namespace fairway::sys
