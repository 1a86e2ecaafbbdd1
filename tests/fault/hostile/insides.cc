#include "insides.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "sys/fd.h"

namespace fairway::hostile {
namespace {

std::vector<int> where(const std::function<bool(int)>& wanted) {
  std::vector<int> found;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder))
    if (const int fd = std::atoi(entry->d_name); fd > 2 && wanted(fd)) found.push_back(fd);
  ::closedir(folder);
  return found;
}

int option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

std::uint16_t far_port(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? ntohs(address.sin_port) : 0;
}

}  // namespace

std::vector<int> local_pairs() {
  return where([](int fd) {
    return option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_SEQPACKET && option(fd, SO_ACCEPTCONN) == 0;
  });
}

std::vector<int> lanes(std::uint16_t but) {
  return where([&](int fd) {
    return option(fd, SO_DOMAIN) == AF_INET && option(fd, SO_ACCEPTCONN) == 0 && far_port(fd) != 0 &&
           far_port(fd) != but;
  });
}

std::string local_name() {
  for (const int fd :
       where([](int each) { return option(each, SO_DOMAIN) == AF_UNIX && option(each, SO_ACCEPTCONN) == 1; })) {
    sockaddr_un address{};
    socklen_t size = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      return std::string(address.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  }
  return {};
}

std::vector<std::uint16_t> listening_ports() {
  std::vector<std::uint16_t> ports;
  for (const int fd :
       where([](int each) { return option(each, SO_DOMAIN) == AF_INET && option(each, SO_ACCEPTCONN) == 1; })) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

transport::host::Segment* segment() {
  constexpr auto kPages = (sizeof(transport::host::Segment) + 4095) / 4096 * 4096;
  // By their names: ThreadSanitizer takes fstat() and mmap() of the engine's own descriptor for a race with its
  // close().
  for (const int each : where([](int) { return true; })) {
    const std::string name = "/proc/self/fd/" + std::to_string(each);
    struct stat facts {};
    if (::stat(name.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size != kPages) continue;
    const sys::Fd own(::open(name.c_str(), O_RDWR | O_CLOEXEC));
    if (!own || ::fcntl(own.get(), F_GET_SEALS) <= 0) continue;
    void* at = ::mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_SHARED, own.get(), 0);
    if (at != MAP_FAILED) return static_cast<transport::host::Segment*>(at);
  }
  return nullptr;
}

std::size_t descriptors() {
  return where([](int) { return true; }).size();
}

std::size_t resident_kib() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4;
}

int dial_local(const std::string& name) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return fd;
  ::close(fd);
  return -1;
}

int dial_tcp(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

std::uint16_t port_of(const std::string& address) {
  return static_cast<std::uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
}

}  // namespace fairway::hostile
