#include "sys/tcp_channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "sys/error.h"
#include "sys/thread.h"

namespace fairway::sys {
namespace {
constexpr std::size_t kMaxPieces = 256;  // per call; the kernel takes up to 1,024
}

void set_tcp_options(int socket) {
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

Result<std::unique_ptr<Channel>> TcpChannel::connect(const SocketAddress& to, std::string name,
                                                     std::shared_ptr<EpollSet> epoll, std::uint32_t most_segment) {
  Fd socket(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) return system_status(errno, fmt::format("cannot open a socket to {}", name));
  set_tcp_options(socket.get());
  if (most_segment != 0) limit_segments(socket.get(), most_segment);
  if (::connect(socket.get(), to.data(), to.size) != 0 && errno != EINPROGRESS) {
    if (errno == EADDRNOTAVAIL)  // for connect() this means a limit, unlike for bind(), where it is a wrong address
      return Status(
          ErrorCode::resource_exhausted,
          fmt::format("cannot connect to {}: no local port is free; see sysctl net.ipv4.ip_local_port_range", name));
    return system_status(errno, fmt::format("cannot connect to {}", name));
  }
  std::unique_ptr<TcpChannel> channel(new TcpChannel(std::move(socket), std::move(name), std::move(epoll), false));
  if (Status status = channel->start(); !status) return status;
  return std::unique_ptr<Channel>(std::move(channel));
}

Result<std::unique_ptr<Channel>> TcpChannel::adopt(Fd socket, std::string peer, std::shared_ptr<EpollSet> epoll) {
  set_tcp_options(socket.get());
  std::unique_ptr<TcpChannel> channel(new TcpChannel(std::move(socket), std::move(peer), std::move(epoll), true));
  if (Status status = channel->start(); !status) return status;
  return std::unique_ptr<Channel>(std::move(channel));
}

Status TcpChannel::start() {
  Status status = epoll_->watch_edge(socket_.get(), *this);
  watched_ = status.is_ok();
  return status;
}

std::string TcpChannel::local_address() const {
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) return {};
  return bound.text();
}

std::uint64_t TcpChannel::unacknowledged() const {
  return unacknowledged_bytes(socket_.get());
}

std::uint32_t TcpChannel::swallowed_segment() const {
  return sys::swallowed_segment(socket_.get());
}

TcpChannel::~TcpChannel() {
  if (watched_) epoll_->forget(socket_.get());
}

void TcpChannel::on_ready(std::uint32_t events) {
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    readable_ = true;
    if (!announced_.exchange(true) && list_ != nullptr) list_->push_back(number_);
  }
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable_ = true;
}

Status TcpChannel::fail(int error, bool sending) {
  const auto what = !connected_ ? fmt::format("cannot connect to {}", peer_)
                                : fmt::format("{} {} failed", sending ? "sending to" : "receiving from", peer_);
  return system_status(error, what);
}

// Handles the result of a send call. Sets `again` when it was interrupted.
Result<std::size_t> TcpChannel::sent(ssize_t result, bool& again) {
  ++system_calls_;
  again = false;
  if (result >= 0) {
    connected_ = true;
    return static_cast<std::size_t>(result);
  }
  again = errno == EINTR;
  if (again) return std::size_t{0};
  if (errno != EAGAIN && errno != EWOULDBLOCK) return send_failure_ = fail(errno, true);
  writable_ = !epoll_->harvested();
  return std::size_t{0};
}

Result<std::size_t> TcpChannel::received(ssize_t result, bool& again) {
  ++system_calls_;
  again = false;
  if (result > 0) {
    connected_ = true;
    return static_cast<std::size_t>(result);
  }
  if (result == 0) {
    // The system says once why there never was a connection; a send may have been told.
    const bool never = !connected_ && !send_failure_;
    receive_failure_ =
        never ? send_failure_ : Status(ErrorCode::closed, fmt::format("{} closed the connection", peer_));
    return receive_failure_;
  }
  again = errno == EINTR;
  if (again) return std::size_t{0};
  if (errno != EAGAIN && errno != EWOULDBLOCK) return receive_failure_ = fail(errno, false);
  readable_ = !epoll_->harvested();
  return std::size_t{0};
}

Result<std::size_t> TcpChannel::send(std::span<const std::byte> bytes) {
  if (!send_failure_) return send_failure_;
  if (bytes.empty() || !writable_) return std::size_t{0};
  for (bool again = true;;) {
    auto result = sent(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT), again);
    if (!again) return result;
  }
}

Result<std::size_t> TcpChannel::receive(std::span<std::byte> into) {
  if (!receive_failure_) return receive_failure_;
  if (into.empty() || !readable_) return std::size_t{0};
  for (bool again = true;;) {
    look();
    auto result = received(::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT), again);
    if (!again) return result;
  }
}

Result<std::size_t> TcpChannel::send_pieces(std::span<const std::span<const std::byte>> pieces) {
  if (!send_failure_) return send_failure_;
  std::array<iovec, kMaxPieces> vector;
  msghdr message{};
  message.msg_iov = vector.data();
  for (const auto& piece : pieces.first(std::min(pieces.size(), vector.size())))
    if (!piece.empty()) vector[message.msg_iovlen++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  if (message.msg_iovlen == 0 || !writable_) return std::size_t{0};
  for (bool again = true;;) {
    auto result = sent(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT), again);
    if (!again) return result;
  }
}

Result<std::size_t> TcpChannel::receive_pieces(std::span<const std::span<std::byte>> pieces) {
  if (!receive_failure_) return receive_failure_;
  std::array<iovec, kMaxPieces> vector;
  msghdr message{};
  message.msg_iov = vector.data();
  for (const auto& piece : pieces.first(std::min(pieces.size(), vector.size())))
    if (!piece.empty()) vector[message.msg_iovlen++] = {piece.data(), piece.size()};
  if (message.msg_iovlen == 0 || !readable_) return std::size_t{0};
  for (bool again = true;;) {
    look();
    auto result = received(::recvmsg(socket_.get(), &message, MSG_DONTWAIT), again);
    if (!again) return result;
  }
}

struct ResolvingChannel::Answer {
  std::mutex mutex;  // guards found
  Fd done;           // an eventfd that wakes the channel's task
  std::optional<Result<std::vector<SocketAddress>>> found;
};

Result<std::unique_ptr<Channel>> ResolvingChannel::dial(const HostPort& where, std::string name,
                                                        std::shared_ptr<EpollSet> epoll) {
  auto answer = std::make_shared<Answer>();
  answer->done = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!answer->done) return system_status(errno, "cannot create an eventfd");
  std::unique_ptr<ResolvingChannel> channel(new ResolvingChannel(std::move(name), std::move(epoll), answer));
  if (Status status = channel->epoll_->watch_edge(answer->done.get(), *channel); !status) return status;
  auto thread = Thread::start("that resolves " + where.host, [answer, where] {
    auto found = resolve_address(where);
    const std::lock_guard lock(answer->mutex);
    answer->found = std::move(found);
    [[maybe_unused]] const int result = ::eventfd_write(answer->done.get(), 1);
  });
  if (!thread) return thread.status();
  thread->detach();
  return std::unique_ptr<Channel>(std::move(channel));
}

ResolvingChannel::~ResolvingChannel() {
  epoll_->forget(answer_->done.get());
}

// The connection, once the name is resolved; null with an ok status until then.
Channel* ResolvingChannel::connected(Status& failure) {
  if (!channel_ && failure_) {
    const std::lock_guard lock(answer_->mutex);
    if (!answer_->found) return nullptr;
    if (auto& found = *answer_->found; !found) {
      failure_ = found.status();
    } else {
      for (const SocketAddress& address : found.value()) {
        auto channel = TcpChannel::connect(address, name_, epoll_);
        failure_ = channel.status();
        if (!channel) continue;
        channel_ = std::move(channel).value();
        break;
      }
    }
  }
  failure = failure_;
  return channel_.get();
}

Result<std::size_t> ResolvingChannel::send(std::span<const std::byte> bytes) {
  Status failure;
  Channel* channel = connected(failure);
  if (channel) return channel->send(bytes);
  return failure ? Result<std::size_t>(std::size_t{0}) : failure;
}

Result<std::size_t> ResolvingChannel::receive(std::span<std::byte> into) {
  Status failure;
  Channel* channel = connected(failure);
  if (channel) return channel->receive(into);
  return failure ? Result<std::size_t>(std::size_t{0}) : failure;
}

}  // namespace fairway::sys
