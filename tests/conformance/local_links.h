#pragma once

#include <cstdlib>
#include <vector>

#include <dirent.h>
#include <sys/socket.h>

// Cutting the links of transports whose two sides hold a local socket in this process.
namespace fairway::conformance {

// The ends of local connections that this process has open.
inline std::vector<int> local_connections() {
  std::vector<int> found;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int domain = 0, type = 0, listens = 0;
    socklen_t size = sizeof(int);
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
        ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET &&
        ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 0)
      found.push_back(fd);
  }
  ::closedir(folder);
  return found;
}

// False: there is none.
inline bool cut_local_links() {
  const std::vector<int> ends = local_connections();
  for (const int fd : ends) ::shutdown(fd, SHUT_RDWR);
  return !ends.empty();
}

}  // namespace fairway::conformance
