#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "sys/local_socket.h"
#include "transport/host/handshake.h"

namespace fairway::transport::host {

struct JoinRequest {  // a dialer's hello
  sys::LocalSocket socket;
  Note note;
  std::vector<sys::Fd> fds;
};

// Incoming connections at the local socket, until their hello is read. Connections of other users are refused. Their
// number, time and rate are limited, so a peer without a token costs little and does not keep others out. Owner: the
// transport's worker.
class PendingConnections {
 public:
  explicit PendingConnections(Runtime& runtime) : runtime_(runtime) {}

  Status listen(Task& task);  // once
  const std::string& name() const { return name_; }
  bool listening() const { return static_cast<bool>(listener_); }
  bool any() const { return !all_.empty(); }
  // Accepts connections, and passes each hello to `on_request`.
  using OnRequest = std::function<void(JoinRequest)>;
  void poll(Time now, const OnRequest& on_request);
  Time next() const;  // poll by then, even without a wake-up
  void close();

  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kPerPoll = 16;                  // accepted at once
  static constexpr Time kHelloTimeout = kSecond;               // time limit of the hello
  static constexpr Time kEvictable = 100 * kMillisecond;       // older ones make room: a peer sends its hello at once
  static constexpr Time kPause = 5 * kMillisecond;             // after accepting kPerPoll
  static constexpr Time kAfterExhaustion = 10 * kMillisecond;  // out of descriptors

 private:
  struct Pending {
    sys::LocalSocket socket;
    Time since = 0;
  };
  void accept(Time now);
  bool evict_oldest(Time now);
  void pause(Time until);
  void resume();
  bool receive(Pending& pending, Time now, const OnRequest& on_request);  // true: done with it

  Runtime& runtime_;
  Task* task_ = nullptr;
  sys::LocalListener listener_;
  std::string name_;
  std::vector<Pending> all_;  // oldest first
  Time paused_until_ = 0;     // until then the listener does not wake the worker
};

}  // namespace fairway::transport::host
