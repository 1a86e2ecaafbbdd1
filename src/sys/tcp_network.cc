#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/runtime.h"
#include "sys/address.h"
#include "sys/error.h"
#include "sys/system_runtime.h"
#include "sys/tcp_channel.h"
#include "sys/thread_task.h"

namespace fairway::sys {
namespace {

// The kernel caps this at net.core.somaxconn (4096 by default): enough for all engines of a large job at once.
constexpr int kBacklog = 4096;

Result<EpollTask*> epoll_task(Task& task) {
  if (auto* ours = dynamic_cast<EpollTask*>(&task)) return ours;
  return Status(ErrorCode::invalid_argument, "the task to wake must come from this network's own executor");
}

// As reported by the driver, in Mb/s; 0 when unknown (loopback, most virtual interfaces).
std::uint64_t interface_speed(const std::string& name) {
  const Fd file(::open(("/sys/class/net/" + name + "/speed").c_str(), O_RDONLY | O_CLOEXEC));
  char text[32] = {};
  if (!file || ::read(file.get(), text, sizeof(text) - 1) <= 0) return 0;
  const long long mbps = std::atoll(text);
  return mbps > 0 ? static_cast<std::uint64_t>(mbps) * 125'000 : 0;
}

// Owned by the stepper whose task it wakes, and called on its thread.
class TcpListener final : public Listener, public RejectionSender, private Readiness {
 public:
  TcpListener(Fd socket, std::string address, std::shared_ptr<EpollSet> epoll)
      : socket_(std::move(socket)), address_(std::move(address)), epoll_(std::move(epoll)), spare_fd_(open_reserve()) {}
  ~TcpListener() override { epoll_->forget(socket_.get()); }

  Status start() { return epoll_->watch_edge(socket_.get(), *this); }
  Result<std::unique_ptr<Channel>> accept(Task& wakes) override;
  std::string address() const override { return address_; }
  void set_rejection(std::vector<std::byte> words) override { rejection_ = std::move(words); }

 private:
  static Fd open_reserve() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
  bool announced() const override { return announced_; }
  void on_ready(std::uint32_t) override { readable_ = announced_ = true; }
  Status turn_away(int error);

  const Fd socket_;
  const std::string address_;
  const std::shared_ptr<EpollSet> epoll_;
  std::vector<std::byte> rejection_;  // sent to a connection that is rejected
  Fd spare_fd_;                       // closed for a moment to reject a connection when descriptors run out
  std::atomic<bool> readable_{true};  // as in TcpChannel
  std::atomic<bool> announced_{true};
};

Result<std::unique_ptr<Channel>> TcpListener::accept(Task& wakes) {
  auto task = epoll_task(wakes);
  if (!task) return task.status();
  while (readable_) {
    SocketAddress from;
    from.size = sizeof(from.storage);
    announced_ = false;  // first: another thread may report meanwhile what comes behind this call
    Fd socket(
        ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      if (!spare_fd_) spare_fd_ = open_reserve();
      return TcpChannel::adopt(std::move(socket), from.text(), task.value()->epoll());
    }
    switch (errno) {
      case EAGAIN: readable_ = !epoll_->harvested(); return std::unique_ptr<Channel>();
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM: return turn_away(errno);
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
      case EOPNOTSUPP:
      case EFAULT: return system_status(errno, fmt::format("cannot accept on {}", address_));
      default: break;  // that peer gave up, or its network failed (errors listed in accept(2)): try the next connection
    }
  }
  return std::unique_ptr<Channel>();
}

// Rejects the waiting connection with the message in rejection_, so that the peer fails now with the reason instead of
// hanging.
Status TcpListener::turn_away(int error) {
  spare_fd_.reset();
  if (const Fd victim(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); victim)
    static_cast<void>(::send(victim.get(), rejection_.data(), rejection_.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  spare_fd_ = open_reserve();
  return system_status(error, fmt::format("cannot accept a connection on {}", address_));
}

}  // namespace

Result<std::unique_ptr<Channel>> TcpNetwork::dial_in_segments(const std::string& address, std::uint32_t most_bytes,
                                                              Task& wakes) {
  auto task = epoll_task(wakes);
  if (!task) return task.status();
  auto where = parse_host_port(address);
  if (!where) return where.status();
  if (auto numeric = numeric_address(where.value()); numeric)
    return TcpChannel::connect(numeric.value(), address, task.value()->epoll(), most_bytes);
  return ResolvingChannel::dial(where.value(), address, task.value()->epoll());
}

Result<std::unique_ptr<Listener>> TcpNetwork::listen(const std::string& address, Task& wakes) {
  auto task = epoll_task(wakes);
  if (!task) return task.status();
  auto where = parse_host_port(address);
  if (!where) return where.status();
  auto found = resolve_address(where.value());
  if (!found) return found.status();
  const SocketAddress& at = found.value().front();

  const std::string what = fmt::format("cannot listen on {}", address);
  Fd socket(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) return system_status(errno, what);
  const int one = 1;
  const int zero = 0;
  // Only allows a port whose old connections are in TIME_WAIT, never one that another socket listens on.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (at.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
  if (::bind(socket.get(), at.data(), at.size) != 0) {
    if (errno == EADDRINUSE && where.value().port == 0)  // any port would have done
      return Status(ErrorCode::resource_exhausted,
                    fmt::format("{}: no local port is free; see sysctl net.ipv4.ip_local_port_range", what));
    return system_status(errno, what);
  }
  if (::listen(socket.get(), kBacklog) != 0) return system_status(errno, what);
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0)
    return system_status(errno, what);
  auto listener = std::make_unique<TcpListener>(std::move(socket), bound.text(), task.value()->epoll());
  if (Status status = listener->start(); !status) return status;
  return std::unique_ptr<Listener>(std::move(listener));
}

Result<bool> TcpNetwork::is_loopback(const std::string& address) {
  auto where = parse_host_port(address);
  if (!where) return where.status();
  auto found = resolve_address(where.value());
  if (!found) return found.status();
  return std::all_of(found.value().begin(), found.value().end(),
                     [](const SocketAddress& each) { return each.is_loopback(); });
}

Result<std::vector<InterfaceAddress>> TcpNetwork::addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return system_status(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, each->ifa_addr, address.size);
    // A link-local address is meaningless without its interface, whose name differs from host to host.
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_addr))
      continue;
    auto parsed = parse_host_port(address.text());
    if (!parsed) continue;
    InterfaceAddress one;
    one.interface = each->ifa_name;
    one.host = parsed->host;
    one.loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
    one.bytes_per_second = interface_speed(one.interface);
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace fairway::sys
