#include "sys/resolving_channel.h"

#include <cerrno>
#include <mutex>
#include <optional>

#include <sys/eventfd.h>

#include "sys/error.h"
#include "sys/tcp_channel.h"
#include "sys/thread.h"

namespace fairway::sys {

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
