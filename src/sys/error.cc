#include "sys/error.h"

#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <sys/resource.h>

namespace fairway::sys {
namespace {

ErrorCode code_of(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EAGAIN:
    case ENOSPC: return ErrorCode::resource_exhausted;
    case EADDRINUSE: return ErrorCode::already_exists;
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case EINVAL: return ErrorCode::invalid_argument;
    case ECONNREFUSED: return ErrorCode::unreachable;
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN: return ErrorCode::link_failed;
    default: return ErrorCode::system_error;
  }
}

std::string remedy_of(int error) {
  switch (error) {
    case EMFILE: {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      return fmt::format("this process is limited to {} file descriptors; raise the limit with `ulimit -n`",
                         limit.rlim_cur);
    }
    case ENFILE: return "the whole host is out of file descriptors; see sysctl fs.file-max";
    case ENOSPC: return "a kernel limit is reached; see sysctl fs.epoll.max_user_watches";
    case EADDRINUSE:
      return "the port is in use (`ss -ltnp` shows by which process); choose another port, or 0 for any free one";
    case EADDRNOTAVAIL: return "no interface of this host has that address, or all its ports are in use";
    case EACCES: return "ports below 1024 need CAP_NET_BIND_SERVICE";
    case ECONNREFUSED: return "the host is up, but nothing listens on that port";
    case EHOSTUNREACH:
    case ENETUNREACH: return "no route leads there; check the address and `ip route`";
    default: return {};
  }
}

}  // namespace

Status system_status(int error, std::string_view what) {
  const std::string text = std::generic_category().message(error);
  const std::string remedy = remedy_of(error);
  return {code_of(error),
          remedy.empty() ? fmt::format("{}: {}", what, text) : fmt::format("{}: {}: {}", what, text, remedy)};
}

}  // namespace fairway::sys
