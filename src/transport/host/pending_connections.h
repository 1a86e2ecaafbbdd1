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

// Who connects to this side's local socket, until its hello is read. Another user gets no further than the door. Few
// are kept and for a short time, and so many are looked at in a while: whoever knows no token costs little and keeps
// nobody out. Owner: the transport's worker.
class PendingConnections {
 public:
  explicit PendingConnections(Runtime& runtime) : runtime_(runtime) {}

  Status listen(Task& task);  // once
  const std::string& name() const { return name_; }
  bool listening() const { return static_cast<bool>(listener_); }
  bool any() const { return !all_.empty(); }
  // Takes who waits, and gives each whole hello to `meet`.
  void look(Time now, const std::function<void(JoinRequest)>& meet);
  Time next() const;  // look at that time even when nothing wakes
  void close();

  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kPerLook = 16;                  // taken at once
  static constexpr Time kHelloWithin = kSecond;                // for a hello
  static constexpr Time kEvictable = 100 * kMillisecond;       // a dialer says its hello at once
  static constexpr Time kPause = 5 * kMillisecond;             // where more come than are taken at once
  static constexpr Time kAfterExhaustion = 10 * kMillisecond;  // of descriptors

 private:
  struct Pending {
    sys::LocalSocket socket;
    Time since = 0;
  };
  void accept(Time now);
  bool make_room(Time now);
  void pause(Time until);
  void resume();
  bool hear(Pending& pending, Time now, const std::function<void(JoinRequest)>& meet);  // true: it is done with

  Runtime& runtime_;
  Task* task_ = nullptr;
  sys::LocalListener listener_;
  std::string name_;
  std::vector<Pending> all_;  // the oldest first
  Time paused_until_ = 0;     // meanwhile the listener does not wake the worker
};

}  // namespace fairway::transport::host
