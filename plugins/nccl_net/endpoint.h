#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fairway/engine.h"

#include "nccl_net/background_tasks.h"
#include "nccl_net/log.h"
#include "nccl_net/message.h"
#include "nccl_net/settings.h"

namespace fairway::nccl {

// A receiver of messages: a listener, or one end of a connection. Called on whichever of NCCL's threads polls.
class Port {
 public:
  virtual ~Port() = default;
  virtual void on_message(const Message& message, PeerId from) = 0;
  virtual void on_peer_down(PeerId peer, const Status& reason) = 0;
  [[nodiscard]] PortId id() const { return id_; }

 private:
  friend class Endpoint;
  PortId id_;
};

// NCCL's memory handle: a region of one endpoint, registered once and counted, however often NCCL registers it.
struct Memory {
  Region region;
  std::atomic<bool> published{false};
  std::uint32_t users = 0;
};

// The number of sends in flight, over all engines of a device.
using SendCount = std::atomic<std::uint32_t>;

// One engine and the ports that its notifications go to. Any thread.
class Endpoint : public std::enable_shared_from_this<Endpoint> {
 public:
  static Result<std::shared_ptr<Endpoint>> open(const Settings& settings, const Log& log, BackgroundTasks& background,
                                                std::shared_ptr<SendCount> sends);
  Endpoint(Engine engine, const Settings& settings, const Log& log, BackgroundTasks& background,
           std::shared_ptr<SendCount> sends);
  ~Endpoint() { stop(); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Engine& engine() { return engine_; }
  const Log& log() const { return log_; }
  // Runs a task that may block, after those of the same peer.
  void later(PeerId peer, std::function<void()> job);
  [[nodiscard]] Timeout connect_timeout() const { return connect_timeout_; }  // how long to wait for a peer's answer
  [[nodiscard]] std::vector<std::string> transports() const;
  [[nodiscard]] bool has(std::string_view transport) const;

  void add(const std::shared_ptr<Port>& port);
  void remove(PortId id);  // no message reaches the port afterwards, except one that another thread is delivering
  void close();            // closes the engine and releases all ports

  // Drives progress and delivers what has arrived, unless another thread is doing so.
  void pump();
  // Connections report data in flight here; it decides when the progress thread takes over.
  void on_send(std::size_t bytes);
  void on_sent();
  void on_received(std::size_t bytes);
  // Posts one message without data. False: no room now. `callback`, if any, gets the completion.
  Result<bool> post(PeerId peer, PortId to, const Message& message, CompletionCallback callback = nullptr,
                    void* user_data = nullptr);
  // Posts the message, retrying until there is room. Nobody gets the completion.
  void post_until_accepted(PeerId peer, PortId to, const Message& message);

  Result<Memory*> register_memory(void* data, std::size_t size, Access access);
  // Not ok: somebody may still touch it. The handle stays valid, and this may be called again.
  Status deregister(Memory* memory);
  Status publish(Memory& memory);
  // A region of the peer's: imported once, and released when the last of those who imported it has released it. Both
  // may block: call them in tasks of that peer.
  Result<RemoteRegion> import(PeerId peer, RegionId region);
  void release(const RemoteRegion& region);

 private:
  using Clock = std::chrono::steady_clock;
  void progress_loop();
  void mark_busy();
  [[nodiscard]] bool is_busy() const;
  void stop();
  void dispatch_all();
  bool dispatch_some();  // delivers one batch; true: there may be more
  void dispatch(const Notification& notification);
  void poll_peer_events();

  struct Entry {
    std::shared_ptr<Port> port;
    std::uint32_t generation = 0;
  };
  struct MemoryKey {  // of registered memory
    void* data;
    std::size_t size;
    Access access;
    auto operator<=>(const MemoryKey&) const = default;
  };

  Engine engine_;
  const Log& log_;
  BackgroundTasks& background_;
  const Timeout connect_timeout_;
  const Timeout fence_;     // time limit of deregister()
  std::mutex ports_mutex_;  // guards ports_ and free_
  std::vector<Entry> ports_;
  std::vector<std::uint32_t> free_;
  std::mutex memory_mutex_;  // guards the next three and their contents
  std::map<MemoryKey, std::unique_ptr<Memory>> memory_;
  std::vector<std::unique_ptr<Memory>> ending_;
  std::map<RemoteRegionId, std::uint32_t> imports_;  // how many have each
  std::atomic_flag pumping_;                         // guards the two below
  std::array<Notification, 16> batch_;
  std::uint32_t rounds_ = 0;
  const bool own_threads_;  // the engine has its own threads; otherwise NCCL's threads and progress_thread_ drive it
  std::atomic<std::uint32_t> pumps_{0};
  const std::shared_ptr<SendCount> sends_;
  std::atomic<bool> progress_thread_active_{false};
  std::atomic<std::int64_t> busy_until_{0};  // a time of Clock
  std::atomic<bool> stopping_{false};
  std::thread progress_thread_;
};

}  // namespace fairway::nccl
