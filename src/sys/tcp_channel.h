#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "sys/address.h"
#include "sys/epoll_set.h"
#include "sys/fd.h"

// TCP connections: to an address, and to a name that must be resolved first.
namespace fairway::sys {

// A non-blocking TCP connection, owned by the stepper whose task it wakes. It calls the kernel only after epoll
// reported readiness, so that a stepper may poll hundreds of idle channels for nanoseconds each.
class TcpChannel final : public Channel, private Readiness {
 public:
  // Starts to connect. Returns an error that the kernel reports at once; send() or receive() return a later one.
  // `most_segment`: bytes of a segment, 0: as the interfaces allow.
  static Result<std::unique_ptr<Channel>> connect(const SocketAddress& to, std::string name,
                                                  std::shared_ptr<EpollSet> epoll, std::uint32_t most_segment = 0);
  // Takes ownership of a connected socket.
  static Result<std::unique_ptr<Channel>> adopt(Fd socket, std::string peer, std::shared_ptr<EpollSet> epoll);
  ~TcpChannel() override;

  Result<std::size_t> send(std::span<const std::byte> bytes) override;
  Result<std::size_t> receive(std::span<std::byte> into) override;
  Result<std::size_t> send_pieces(std::span<const std::span<const std::byte>> pieces) override;
  Result<std::size_t> receive_pieces(std::span<const std::span<std::byte>> pieces) override;
  std::string peer_address() const override { return peer_; }
  bool announced() const override { return announced_; }
  bool announces_first() const override { return !epoll_->is_given(); }
  bool announce_in(std::vector<std::uint32_t>* list, std::uint32_t number) override {
    list_ = list, number_ = number;
    return epoll_->harvested();  // otherwise nobody tells this channel
  }
  bool wake_for_input(bool wanted) override {
    return wanted ? epoll_->resume(socket_.get()) : !epoll_->pause(socket_.get());
  }
  std::string local_address() const override;
  std::uint64_t system_calls() const override { return system_calls_; }
  std::uint64_t unacknowledged() const override;
  std::uint32_t swallowed_segment() const override;

 private:
  TcpChannel(Fd socket, std::string peer, std::shared_ptr<EpollSet> epoll, bool connected)
      : socket_(std::move(socket)), peer_(std::move(peer)), epoll_(std::move(epoll)), connected_(connected) {}
  Status start();
  void on_ready(std::uint32_t events) override;
  Status fail(int error, bool sending);
  // Before a call that reads: another thread may report meanwhile what comes behind it.
  void look() { announced_.store(false, std::memory_order_relaxed); }
  Result<std::size_t> sent(ssize_t result, bool& again);
  Result<std::size_t> received(ssize_t result, bool& again);

  const Fd socket_;
  const std::string peer_;
  const std::shared_ptr<EpollSet> epoll_;
  bool watched_ = false;
  bool connected_;
  // Readiness hints from epoll. Written by the task's thread before step(); for caller-stepped tasks by any polling
  // thread.
  std::atomic<bool> readable_{true};
  std::atomic<bool> announced_{true};
  std::atomic<bool> writable_{true};
  std::vector<std::uint32_t>* list_ = nullptr;  // of announce_in(), by the task's thread
  std::uint32_t number_ = 0;
  // One per direction: data that arrived before the connection broke can still be received after sending failed.
  Status send_failure_;
  Status receive_failure_;
  std::uint64_t system_calls_ = 0;
};

// Sets the socket options that every Fairway TCP socket has.
void set_tcp_options(int socket);

// A connection to a host name. The system's resolver can block for seconds when a name server is down, so it runs on a
// detached thread. Until it answers, the channel neither sends nor receives. Ownership and thread: as any Channel.
class ResolvingChannel final : public Channel, private Readiness {
 public:
  static Result<std::unique_ptr<Channel>> dial(const HostPort& where, std::string name,
                                               std::shared_ptr<EpollSet> epoll);
  ~ResolvingChannel() override;

  Result<std::size_t> send(std::span<const std::byte> bytes) override;
  Result<std::size_t> receive(std::span<std::byte> into) override;
  std::string peer_address() const override { return name_; }
  bool announced() const override { return channel_ == nullptr || channel_->announced(); }
  bool announce_in(std::vector<std::uint32_t>* list, std::uint32_t number) override {
    return channel_ != nullptr && channel_->announce_in(list, number);
  }
  bool wake_for_input(bool wanted) override { return channel_ == nullptr || channel_->wake_for_input(wanted); }

 private:
  struct Answer;  // shared with the resolver thread
  ResolvingChannel(std::string name, std::shared_ptr<EpollSet> epoll, std::shared_ptr<Answer> answer)
      : name_(std::move(name)), epoll_(std::move(epoll)), answer_(std::move(answer)) {}
  void on_ready(std::uint32_t) override {}
  Channel* connected(Status& failure);

  const std::string name_;
  const std::shared_ptr<EpollSet> epoll_;
  const std::shared_ptr<Answer> answer_;
  std::unique_ptr<Channel> channel_;
  Status failure_;
};

// What the kernel knows of the way that a connection takes (tcp_path.cc).
std::uint64_t unacknowledged_bytes(int socket);
// As Channel::swallowed_segment.
std::uint32_t swallowed_segment(int socket);
// For a socket before connect(): the longest segment in both directions, since the peer is told.
void limit_segments(int socket, std::uint32_t most_bytes);

}  // namespace fairway::sys
