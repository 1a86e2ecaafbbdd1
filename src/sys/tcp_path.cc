#include <cstddef>

#include <linux/sockios.h>
#include <linux/tcp.h>  // the C library's own has an older tcp_info
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "sys/tcp_channel.h"

namespace fairway::sys {
namespace {

// Segments up to this length pass every way but the oddest.
constexpr std::uint32_t kPasses = 1024;

}  // namespace

std::uint64_t unacknowledged_bytes(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

// Retransmissions without an answer alone may be an outage. Here what was answered so far came in short segments, and
// what waits is long.
std::uint32_t swallowed_segment(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_delivered) + sizeof info.tcpi_delivered) return 0;  // before Linux 4.18
  if (info.tcpi_retransmits == 0 || info.tcpi_snd_mss <= kPasses || unacknowledged_bytes(socket) <= kPasses) return 0;
  const std::uint64_t segments = info.tcpi_delivered;
  return info.tcpi_bytes_acked <= segments * info.tcpi_snd_mss / 2 ? info.tcpi_snd_mss : 0;
}

void limit_segments(int socket, std::uint32_t most_bytes) {
  const auto most = static_cast<int>(most_bytes);
  ::setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &most, sizeof most);
}

}  // namespace fairway::sys
