#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fairway/engine.h"

#include "nccl_net/jobs.h"
#include "nccl_net/log.h"
#include "nccl_net/message.h"
#include "nccl_net/settings.h"

namespace fairway::nccl {

// What messages are for: a listener, or one end of a connection. Called by whichever of NCCL's threads is pumping.
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

// NCCL's memory handle: memory of one endpoint, registered once however often NCCL asks.
struct Memory {
  Region region;
  std::atomic<bool> published{false};
  std::uint32_t users = 0;
};

// How many sends are on their way, of all engines of a device.
using SendCount = std::atomic<std::uint32_t>;

// One engine, and who is told what its notifications say. Any thread.
class Endpoint : public std::enable_shared_from_this<Endpoint> {
 public:
  static Result<std::shared_ptr<Endpoint>> open(const Settings& settings, const Log& log, Jobs& jobs,
                                                std::shared_ptr<SendCount> sends);
  Endpoint(Engine engine, const Settings& settings, const Log& log, Jobs& jobs, std::shared_ptr<SendCount> sends);
  ~Endpoint() { stop(); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Engine& engine() { return engine_; }
  const Log& log() const { return log_; }
  Jobs& jobs() { return jobs_; }
  [[nodiscard]] Timeout patience() const { return patience_; }  // with a peer that should answer
  [[nodiscard]] std::vector<std::string> transports() const;
  [[nodiscard]] bool has(std::string_view transport) const;

  void add(const std::shared_ptr<Port>& port);
  void remove(PortId id);  // no message reaches it afterwards, but for one that is on its way in another thread
  void close();            // everything ends; ports are let go

  // Moves bytes and hands out what has come, unless another thread is at it.
  void pump();
  // How much there is to move, as connections see it.
  void on_send(std::size_t bytes);
  void on_sent();
  void on_received(std::size_t bytes);
  // One message, with nothing to move. False: no room now. What becomes of it is told to `callback`, if any.
  Result<bool> post(PeerId peer, PortId to, const Message& message, CompletionCallback callback = nullptr,
                    void* user_data = nullptr);
  // The same, tried again until there is room; nobody is told what becomes of it.
  void tell(PeerId peer, PortId to, const Message& message);

  Result<Memory*> register_memory(void* data, std::size_t size, Access access);
  Status deregister(Memory* memory);
  Status publish(Memory& memory);

 private:
  using Clock = std::chrono::steady_clock;
  void stand_in();
  void be_busy();
  [[nodiscard]] bool is_busy() const;
  void stop();
  void dispatch_all();
  bool dispatch_some();  // a batch; whether there may be more
  void dispatch(const Notification& notification);
  void look_for_peers();

  struct Entry {
    std::shared_ptr<Port> port;
    std::uint32_t generation = 0;
  };
  struct Place {  // of memory
    void* data;
    std::size_t size;
    Access access;
    auto operator<=>(const Place&) const = default;
  };

  Engine engine_;
  const Log& log_;
  Jobs& jobs_;
  const Timeout patience_;
  const Timeout fence_;     // how long deregister() may take
  std::mutex ports_mutex_;  // guards ports_ and free_
  std::vector<Entry> ports_;
  std::vector<std::uint32_t> free_;
  std::mutex memory_mutex_;  // guards memory_ and what it holds
  std::map<Place, std::unique_ptr<Memory>> memory_;
  std::atomic_flag pumping_;  // guards the two below
  std::array<Notification, 16> batch_;
  std::uint32_t rounds_ = 0;
  const bool own_threads_;  // the engine's; else NCCL's step it, and keeper_ while they are elsewhere
  std::atomic<std::uint32_t> pumps_{0};
  const std::shared_ptr<SendCount> sends_;
  std::atomic<bool> stands_in_{false};
  std::atomic<std::int64_t> busy_until_{0};  // of Clock
  std::atomic<bool> ends_{false};
  std::thread keeper_;
};

}  // namespace fairway::nccl
