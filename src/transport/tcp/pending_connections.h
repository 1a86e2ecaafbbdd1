#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/tcp/frame.h"

namespace fairway::transport::tcp {

// Who connects to this side's data port, until the hello is whole. Few are kept and for a short time, and so many are
// looked at in a while: whoever knows no token costs little and keeps nobody out. Owner: the transport's worker.
class PendingConnections {
 public:
  explicit PendingConnections(Runtime& runtime) : runtime_(runtime) {}

  Status listen(const std::string& address, Task& task);  // once
  std::string address() const { return listener_->address(); }
  // Takes who waits, and gives each whole hello to `meet` with the connection that it came on.
  using Meet = std::function<void(std::unique_ptr<Channel>, const Hello&)>;
  void look(Time now, const Meet& meet);
  Time next() const;                     // look at that time even when nothing wakes
  void look_at_next() { look_at_ = 0; }  // whatever was announced: before a sleep
  void close();

  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kPerLook = 4;                   // taken at once
  static constexpr Time kHelloWithin = kSecond;                // for a hello
  static constexpr Time kEvictable = 30 * kMillisecond;        // a dialer says its hello as it is connected
  static constexpr Time kPause = 2 * kMillisecond;             // where more come than are taken at once
  static constexpr Time kAfterExhaustion = 10 * kMillisecond;  // of descriptors

 private:
  struct Pending {
    std::unique_ptr<Channel> channel;
    Time since = 0;
    std::array<std::byte, kHelloBytes> bytes{};
    std::size_t heard = 0;
  };
  void accept(Time now);
  bool make_room(Time now);
  static bool hear(Pending& pending, Time now, const Meet& meet);  // true: it is done with

  Runtime& runtime_;
  Task* task_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::vector<Pending> all_;  // the oldest first
  Time paused_until_ = 0;     // nobody is taken before
  Time look_at_ = 0;          // for connections that were not announced: a system call, so not in every poll
};

}  // namespace fairway::transport::tcp
