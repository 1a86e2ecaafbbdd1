#include "net/proxy.h"

#include <array>
#include <cerrno>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fairway::net {
namespace {

constexpr std::size_t kHeld = 64 * 1024;
constexpr int kTurns = 16;  // before the other connections have theirs

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(::inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1) << host;
  return address;
}

sys::Fd open_socket() {
  sys::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int one = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return socket;
}

}  // namespace

Proxy::Proxy(const Host& outside, const Host& inside, const Place& place) : inside_(inside), place_(place) {
  wake_ = sys::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const Inside there(outside);
  std::vector<std::uint16_t> numbers = {place.control};
  for (std::uint16_t i = 0; i < place.lanes; ++i) numbers.push_back(static_cast<std::uint16_t>(place.first_lane + i));
  for (const std::uint16_t number : numbers) {
    Port port{open_socket(), number};
    const sockaddr_in at = address_of(place.address, number);
    EXPECT_EQ(::bind(port.socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0) << number;
    EXPECT_EQ(::listen(port.socket.get(), 64), 0);
    ports_.push_back(std::move(port));
  }
  thread_ = std::thread([this] { run(); });
}

Proxy::~Proxy() {
  stop_.store(true);
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Proxy::set(std::shared_ptr<Meddler> meddler) {
  const std::lock_guard lock(mutex_);
  meddler_ = std::move(meddler);
}

void Proxy::release() {
  {
    const std::lock_guard lock(mutex_);
    for (Connection& each : connections_) each.forth.stalled = each.back.stalled = false;
  }
  ::eventfd_write(wake_.get(), 1);
}

void Proxy::run() {
  inside_.enter();  // where it dials
  std::vector<pollfd> polled;
  while (!stop_.load()) {
    polled.clear();
    polled.push_back({wake_.get(), POLLIN, 0});
    for (const Port& port : ports_) polled.push_back({port.socket.get(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      for (const Connection& each : connections_) {
        const auto wants = [](const Direction& in, const Direction& out) {
          const bool reads = in.held.empty() && !in.ended && !in.stalled;
          const bool writes = !out.held.empty() && !out.stalled;
          return static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
        };
        // One that wants nothing is left out: its hang-up would only wake.
        const short at_dialer = each.connected ? wants(each.forth, each.back) : short{0};
        const short at_listener = static_cast<short>(each.connected ? wants(each.back, each.forth) : POLLOUT);
        polled.push_back({at_dialer != 0 ? each.dialer.get() : -1, at_dialer, 0});
        polled.push_back({at_listener != 0 ? each.listener.get() : -1, at_listener, 0});
      }
    }
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) {
      eventfd_t count = 0;
      ::eventfd_read(wake_.get(), &count);
    }
    const std::lock_guard lock(mutex_);
    std::size_t at = 1 + ports_.size();
    for (auto each = connections_.begin(); each != connections_.end(); at += 2) {
      if (polled[at + 1].revents != 0) each->connected = true;
      bool alive = true;
      if (each->connected && (polled[at].revents | polled[at + 1].revents) != 0)
        alive = move(*each, true) && move(*each, false);
      each = alive ? std::next(each) : connections_.erase(each);
    }
    for (std::size_t i = 0; i < ports_.size(); ++i)
      if (polled[1 + i].revents != 0) accept(ports_[i]);
  }
}

void Proxy::accept(Port& port) {
  sys::Fd dialer(::accept4(port.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!dialer) return;
  const int one = 1;
  ::setsockopt(dialer.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  Connection& made = connections_.emplace_back();
  made.way.connection = ++accepted_;
  made.way.is_control = port.number == place_.control;
  made.dialer = std::move(dialer);
  made.listener = open_socket();
  const sockaddr_in at = address_of(place_.address, port.number);
  // From a port of its own: those that the kernel would choose are few there, and linger after use.
  const sockaddr_in from = address_of(place_.address, next_source_++);
  if (::bind(made.listener.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)) != 0) ADD_FAILURE() << "bind";
  if (::connect(made.listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 && errno != EINPROGRESS) {
    reset(made);
    connections_.pop_back();
  }
}

// Reads a piece and asks what becomes of it. False: the connection is over.
bool Proxy::take(Connection& connection, bool forth) {
  Direction& way = forth ? connection.forth : connection.back;
  way.held.resize(kHeld);
  const ssize_t got =
      ::recv((forth ? connection.dialer : connection.listener).get(), way.held.data(), way.held.size(), MSG_DONTWAIT);
  way.held.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  way.sent = 0;
  if (got == 0) way.ended = true;
  if (got < 0 && errno != EAGAIN && errno != EINTR) return false;
  if (got <= 0 || meddler_ == nullptr) {
    way.at += way.held.size();
    return true;
  }
  connection.way.to_listener = forth;
  Meddler::Piece piece{connection.way, way.at, way.held, 0};
  way.at += way.held.size();
  switch (meddler_->meddle(piece)) {
    case Meddler::Verdict::pass: break;
    case Meddler::Verdict::stall: way.stalled = true; break;
    case Meddler::Verdict::cut:
      way.held.resize(piece.passed);
      way.cut_after = true;
      break;
  }
  return true;
}

bool Proxy::move(Connection& connection, bool forth) {
  Direction& way = forth ? connection.forth : connection.back;
  const int to = (forth ? connection.listener : connection.dialer).get();
  for (int turn = 0; turn < kTurns && !way.stalled && !way.closed; ++turn) {
    if (way.held.empty() && !way.ended && !way.cut_after) {
      if (!take(connection, forth)) {
        reset(connection);
        return false;
      }
      if (way.stalled || (way.held.empty() && !way.ended && !way.cut_after)) break;
    }
    while (way.sent < way.held.size()) {
      const ssize_t sent =
          ::send(to, way.held.data() + way.sent, way.held.size() - way.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (sent < 0) {
        reset(connection);
        return false;
      }
      way.sent += static_cast<std::size_t>(sent);
    }
    way.held.clear();
    if (way.cut_after) {
      reset(connection);
      return false;
    }
    if (way.ended) {
      ::shutdown(to, SHUT_WR);
      way.closed = true;
    }
  }
  return !(connection.forth.closed && connection.back.closed);
}

// Closing a socket that lingers for no time sends a reset.
void Proxy::reset(Connection& connection) {
  const linger now{1, 0};
  for (sys::Fd* each : {&connection.dialer, &connection.listener}) {
    ::setsockopt(each->get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    each->reset();
  }
}

}  // namespace fairway::net
