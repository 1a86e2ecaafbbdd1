#pragma once

#include <memory>
#include <string>

#include "core/runtime.h"
#include "sys/address.h"
#include "sys/epoll_set.h"

namespace fairway::sys {

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

}  // namespace fairway::sys
