#pragma once

#include <cerrno>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process/nccl/pattern.h"

// What NCCL sends of a large call: pieces of 128 KiB on some channels at once, eight posted ahead on each, by one
// thread that polls. By the plugin, and by bare sockets, one a channel, which is what NCCL's own transport does by
// default.
namespace fairway::nccl {

inline constexpr std::size_t kPiece = 128 * 1024;
inline constexpr int kAhead = 8;

// One channel, one way, of this process.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void turn() = 0;  // as much as goes without waiting
  [[nodiscard]] int done() const { return done_; }

 protected:
  Stream(int pieces, std::uint64_t seed, bool sends) : pieces_(pieces), bytes_(kAhead * kPiece) {
    if (sends)
      for (int i = 0; i < kAhead; ++i) fill(at(i), kPiece, seed + static_cast<std::uint64_t>(i));
  }
  std::byte* at(int piece) { return bytes_.data() + static_cast<std::size_t>(piece % kAhead) * kPiece; }
  const int pieces_;
  int begun_ = 0, done_ = 0;

 public:
  void check(std::uint64_t seed) {
    for (int i = 0; i < kAhead; ++i) compare(at(i), kPiece, seed + static_cast<std::uint64_t>(i));
  }

 protected:
  std::vector<std::byte> bytes_;
};

class ByPlugin final : public Stream {
 public:
  ByPlugin(Rank& rank, void* end, bool sends, int pieces, std::uint64_t seed)
      : Stream(pieces, seed, sends), rank_(rank), end_(end), sends_(sends) {
    memory_ = rank_.register_memory(end_, bytes_.data(), bytes_.size());
  }
  ~ByPlugin() override { (void)rank_.table->deregister(end_, memory_); }
  void turn() override {
    if (begun_ < pieces_ && begun_ < done_ + kAhead) {
      void*& request = requests_[begun_ % kAhead];
      void* data = at(begun_);
      std::size_t size = kPiece;
      int tag = 0;
      request = nullptr;
      if (sends_)
        rank_.must(rank_.table->send(end_, data, size, tag, memory_, &request), "isend");
      else
        rank_.must(rank_.table->receive(end_, 1, &data, &size, &tag, &memory_, &request), "irecv");
      begun_ += request != nullptr ? 1 : 0;
    }
    if (done_ == begun_) return;
    int done = 0;
    rank_.must(rank_.table->test(requests_[done_ % kAhead], &done, nullptr), "test");
    done_ += done;
  }

 private:
  Rank& rank_;
  void* const end_;
  const bool sends_;
  void* memory_ = nullptr;
  void* requests_[kAhead] = {};
};

class BySocket final : public Stream {
 public:
  BySocket(int socket, bool sends, int pieces, std::uint64_t seed)
      : Stream(pieces, seed, sends), socket_(socket), sends_(sends) {}
  ~BySocket() override { ::close(socket_); }
  void turn() override {
    while (done_ < pieces_) {
      const auto moved = sends_ ? ::send(socket_, at(done_) + offset_, kPiece - offset_, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : ::recv(socket_, at(done_) + offset_, kPiece - offset_, MSG_DONTWAIT);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (moved <= 0) throw Failure("a socket");
      offset_ += static_cast<std::size_t>(moved);
      if (offset_ != kPiece) return;  // the next channel has its turn
      offset_ = 0;
      ++done_;
    }
  }

 private:
  const int socket_;
  const bool sends_;
  std::size_t offset_ = 0;
};

// Two ends over loopback, as NCCL opens them.
inline std::array<int, 2> connected() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), from = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, plain, length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, plain, &length) != 0 || ::connect(from, plain, length) != 0)
    throw Failure("no connection over loopback");
  const int to = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  const int one = 1;
  for (const int end : {from, to}) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return {from, to};
}

}  // namespace fairway::nccl
